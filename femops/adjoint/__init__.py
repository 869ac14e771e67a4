"""Gradients: derivatives of goals by coefficients, fields and the nodes of the mesh."""

from femops.adjoint.gradient import Gradient as Gradient
from femops.adjoint.gradient import gradient as gradient
from femops.adjoint.moved import moved as moved
from femops.adjoint.sensitivity import Sensitivity as Sensitivity
from femops.adjoint.steps import Steps as Steps
from femops.adjoint.taylor import taylor as taylor

__all__ = ["Gradient", "Sensitivity", "Steps", "gradient", "moved", "taylor"]
