"""Devices for machines without a GPU, and the kernels that are tried on them."""
