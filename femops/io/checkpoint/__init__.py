"""Checkpoints that any number of ranks continues."""
