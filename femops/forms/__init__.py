"""Weak forms: each file is one integral."""

from femops.forms.diffusion import diffusion
from femops.forms.load import load
from femops.forms.mass import mass

__all__ = ["diffusion", "load", "mass"]
