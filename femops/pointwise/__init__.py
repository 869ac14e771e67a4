"""What a form does at one quadrature point."""

from femops.pointwise.program import Program, diffusion_program, fuse, mass_program

__all__ = ["Program", "diffusion_program", "fuse", "mass_program"]
