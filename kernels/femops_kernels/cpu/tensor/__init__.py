"""Batches of small tensors on the host: contractions of two, and linear algebra."""
