"""Kernel skeletons: numba Python with default sizes, for ``femops_kernels.codegen.specialize``."""
