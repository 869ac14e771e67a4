"""What is done with a batch of elements."""
