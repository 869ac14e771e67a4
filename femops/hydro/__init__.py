"""Lagrangian hydrodynamics: gas dynamics on high-order meshes that move with the gas.

The method of Dobrev, Kolev and Rieben (SIAM J. Sci. Comput. 34(5), 2012), an application that
stands on what femops offers to all.
"""

from femops.hydro.integrators import METHODS, Method, method
from femops.hydro.lagrangian import Clock, Forces, Lagrangian
from femops.hydro.meshes import MESHES, built_in, grid
from femops.hydro.problems import PROBLEMS, Problem, problem
from femops.hydro.simulation import Simulation

__all__ = [
    "MESHES",
    "METHODS",
    "PROBLEMS",
    "Clock",
    "Forces",
    "Lagrangian",
    "Method",
    "Problem",
    "Simulation",
    "built_in",
    "grid",
    "method",
    "problem",
]
