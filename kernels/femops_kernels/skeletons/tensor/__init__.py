"""Work on batches of small tensors."""
