"""Batches of small tensors on a device: contractions of two, and linear algebra."""
