"""Solvers whose whole iteration is compiled."""

from femops.solvers.cg import Info, cg
from femops.solvers.jacobi import Jacobi, jacobi
from femops.solvers.newton import NewtonInfo, newton

__all__ = ["Info", "Jacobi", "NewtonInfo", "cg", "jacobi", "newton"]
