"""NVRTC: CUDA C++ to machine code, kept on disk."""
