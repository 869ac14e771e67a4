"""Q-functions of kernels, and the numbers that they take at a quadrature point."""
