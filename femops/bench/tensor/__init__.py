"""Benchmarks of small tensors, compared with the machine's limits and other libraries."""
