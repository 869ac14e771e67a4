"""Checkpoints from which any number of ranks can continue."""
