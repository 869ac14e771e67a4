"""Multigrid cycles on a device: vector updates, products with matrices."""
