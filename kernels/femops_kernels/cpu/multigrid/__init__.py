"""Multigrid cycles on the host."""
