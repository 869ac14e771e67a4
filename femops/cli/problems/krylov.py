"""Iterations that end at the residual asked for, or say that they do not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import femops
from femops.errors import SolverError
from femops.solvers.inner_products import Sums
from femops.solvers.minres import minres as solve_by_minres
from femops.solvers.restarts import Apply
from femops.spaces.base import Space

Vector = NDArray[np.float64]


def prepare_cg(A: femops.Operator) -> None:
    """Compile what `cg` runs, or read it from the cache."""
    femops.cg(A, A.space.zeros(), maxiter=0, M=femops.jacobi(A))


def cg(A: femops.Operator, b: Vector, rtol: float) -> tuple[Vector, int]:
    """Conjugate gradients with Jacobi's preconditioner: solution and iterations.

    Raises
    ------
    SolverError
        No convergence.
    """
    u, info = femops.cg(A, b, rtol=rtol, M=femops.jacobi(A))
    if not info.converged:
        raise no_convergence(rtol, info.iterations)
    return u, info.iterations


def minres(
    space: Space | femops.Product, apply: Apply, b: Vector, diagonal: Vector, rtol: float
) -> tuple[Vector, int]:
    """MINRES, preconditioned by a positive diagonal: solution and iterations.

    Raises
    ------
    SolverError
        No convergence.
    """
    most = 10 * space.global_size
    x, iterations, converged = solve_by_minres(
        apply, b, 1.0 / diagonal, Sums(space), rtol=rtol, maxiter=most
    )
    if not converged:
        raise no_convergence(rtol, iterations)
    return x, iterations


def total(space: Space, vector: Vector) -> float:
    """Sum of all entries of a vector of a space. Collective, where ranks share the mesh."""
    return Sums(space).dot(vector, np.ones_like(vector))


def no_convergence(rtol: float, iterations: int) -> SolverError:
    """The error of an iteration that does not come to its end."""
    return SolverError(
        f"no convergence to a relative residual of {rtol:g} in {iterations} iterations: "
        "ask for less (--rtol 1e-8) or look at the mesh"
    )
