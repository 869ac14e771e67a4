"""Compilation of CUDA C++ to machine code by NVRTC, with a cache on disk."""
