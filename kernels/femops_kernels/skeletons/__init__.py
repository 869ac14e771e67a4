"""Kernel skeletons: ordinary numba Python with default sizes, specialised by ``femops_kernels.specialize``."""
