"""Solvers whose whole iteration is compiled."""

from femops.solvers.cg import Info, cg
from femops.solvers.jacobi import Jacobi, jacobi

__all__ = ["Info", "Jacobi", "cg", "jacobi"]
