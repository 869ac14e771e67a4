"""Kernels' sources put together, compiled, and kept on disk."""
