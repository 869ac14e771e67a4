"""Gradients: derivatives of goals by coefficients, fields and the nodes of the mesh."""

from femops.adjoint.gradient import Gradient as Gradient
from femops.adjoint.gradient import gradient as gradient
from femops.adjoint.gradient import gradients as gradients
from femops.adjoint.maps import FunctionalMap as FunctionalMap
from femops.adjoint.maps import Map as Map
from femops.adjoint.maps import OperatorMap as OperatorMap
from femops.adjoint.maps import ResidualMap as ResidualMap
from femops.adjoint.maps import moved as moved
from femops.adjoint.sensitivity import Sensitivity as Sensitivity
from femops.adjoint.solve_map import SolveMap as SolveMap
from femops.adjoint.steps import Steps as Steps
from femops.adjoint.taylor import taylor as taylor

__all__ = [
    "FunctionalMap",
    "Gradient",
    "Map",
    "OperatorMap",
    "ResidualMap",
    "Sensitivity",
    "SolveMap",
    "Steps",
    "gradient",
    "gradients",
    "moved",
    "taylor",
]
