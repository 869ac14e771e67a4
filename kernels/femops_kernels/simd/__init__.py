"""Lanes and lines: vectors of the processor, and what kernels do with them."""
