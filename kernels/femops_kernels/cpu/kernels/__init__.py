"""Kernels of the host: of sweeps by sum factorisation, dense matrices and separable forms."""
