"""Multigrid cycles on a device: vector updates, and products with sparse matrices."""
