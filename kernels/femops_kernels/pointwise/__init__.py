"""The step of a form at one quadrature point, as kernels take it."""
