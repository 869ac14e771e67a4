"""GPU kernels: CUDA C++, its compiler, and the devices that run it."""
