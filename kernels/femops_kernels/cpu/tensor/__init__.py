"""Batches of small tensors on the host: contractions of two tensors, and linear algebra."""
