"""Weak forms: each file is one integral."""

from femops.forms.convection import convection
from femops.forms.diffusion import diffusion
from femops.forms.elasticity import elasticity
from femops.forms.form import form
from femops.forms.load import load
from femops.forms.mass import mass

__all__ = ["convection", "diffusion", "elasticity", "form", "load", "mass"]
