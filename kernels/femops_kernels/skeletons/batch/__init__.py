"""Work on a batch of elements."""
