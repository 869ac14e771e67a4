"""Lanes and lines: vectors of the processor, and the operations of kernels on them."""
