"""Kernel skeletons: Python with default sizes, for ``femops_kernels.codegen.specialize``."""
