"""Batches of small tensors on a device: contractions of two tensors, and linear algebra."""
