"""Weak forms. Each file has one integral."""

from femops.forms.boundary import boundary_load, boundary_mass
from femops.forms.convection import convection
from femops.forms.diffusion import diffusion
from femops.forms.divergence import divergence
from femops.forms.elasticity import elasticity
from femops.forms.form import form
from femops.forms.functional import functional
from femops.forms.helmholtz import helmholtz
from femops.forms.interior_penalty import (
    dirichlet_load,
    elastic_interior_penalty,
    interior_penalty,
)
from femops.forms.load import load
from femops.forms.mass import mass
from femops.forms.neo_hookean import neo_hookean
from femops.forms.p_laplacian import p_laplacian
from femops.forms.point_load import point_load
from femops.forms.residual import residual
from femops.forms.upwind import upwind_convection

__all__ = [
    "boundary_load",
    "boundary_mass",
    "convection",
    "diffusion",
    "dirichlet_load",
    "divergence",
    "elastic_interior_penalty",
    "elasticity",
    "form",
    "functional",
    "helmholtz",
    "interior_penalty",
    "load",
    "mass",
    "neo_hookean",
    "p_laplacian",
    "point_load",
    "residual",
    "upwind_convection",
]
