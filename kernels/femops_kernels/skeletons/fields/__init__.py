"""Kernels of forms on several fields of different spaces."""
