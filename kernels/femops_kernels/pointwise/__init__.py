"""What a form does at one quadrature point, as kernels take it."""
