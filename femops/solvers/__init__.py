"""Solvers of linear and nonlinear systems."""

from femops.solvers.block_jacobi import BlockJacobi, DenseBlocks, FactoredBlocks, block_jacobi
from femops.solvers.blocks import (
    BlockDiagonal,
    BlockTriangular,
    block_diagonal,
    block_triangular,
)
from femops.solvers.cg import cg
from femops.solvers.cg_solver import CGSolver
from femops.solvers.direct import Direct, direct
from femops.solvers.gmres import gmres
from femops.solvers.jacobi import Jacobi, jacobi
from femops.solvers.linear_problem import Info
from femops.solvers.low_order import low_order
from femops.solvers.minres import minres
from femops.solvers.multigrid import Multigrid, multigrid
from femops.solvers.nested import Accuracy, solve
from femops.solvers.newton import NewtonInfo, newton
from femops.solvers.projection import project
from femops.solvers.runge_kutta import runge_kutta
from femops.solvers.structure import Automatic, preconditioner

__all__ = [
    "Accuracy",
    "Automatic",
    "BlockDiagonal",
    "BlockJacobi",
    "BlockTriangular",
    "CGSolver",
    "DenseBlocks",
    "Direct",
    "FactoredBlocks",
    "Info",
    "Jacobi",
    "Multigrid",
    "NewtonInfo",
    "block_diagonal",
    "block_jacobi",
    "block_triangular",
    "cg",
    "direct",
    "gmres",
    "jacobi",
    "low_order",
    "minres",
    "multigrid",
    "newton",
    "preconditioner",
    "project",
    "runge_kutta",
    "solve",
]
