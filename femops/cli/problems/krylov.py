"""Iterations that end at the residual asked for, or say that they do not."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

import femops
from femops.abstract_space import Space
from femops.errors import SolverError
from femops.solvers.sums import Sums

Vector = NDArray[np.float64]

# A round must reduce the residual to this part of it, or there is no use in more rounds.
_PROGRESS = 0.5
# The preconditioned residual is reduced by that much more than the residual has to be.
_MARGIN = 0.3
_ROUND_OFF = 1e-13  # relative


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
    space: Space | femops.Product,
    apply: Callable[[Vector], Vector],
    b: Vector,
    diagonal: Vector,
    rtol: float,
) -> tuple[Vector, int]:
    """Minimal residuals for a symmetric operator, preconditioned by a positive diagonal.

    The preconditioned residual is small before the residual is, or after; so the method is begun
    again for what is left, until |b - A x| <= rtol |b|. Collective, where ranks share the mesh.

    Parameters
    ----------
    space : Space or Product
        Of the vectors.
    apply : callable
        Of flat vectors.
    b : vector
    diagonal : vector
    rtol : float

    Returns
    -------
    x : vector of the shape of b
    iterations : int

    Raises
    ------
    SolverError
        No convergence.
    """
    sums, limit = Sums(space), 5 * space.global_size
    x, residual, count = np.zeros_like(b), b, 0
    norm = sums.norm(b)
    goal = rtol * norm
    while norm > goal:
        part = max(_MARGIN * goal / norm, _ROUND_OFF)
        step, spent = _reduce(apply, residual, diagonal, part, limit, sums)
        x, count = x + step, count + spent
        residual = b - apply(x)
        before, norm = norm, sums.norm(residual)
        if not norm <= max(goal, _PROGRESS * before):
            raise no_convergence(rtol, count)
    return x, count


def _reduce(
    apply: Callable[[Vector], Vector],
    b: Vector,
    diagonal: Vector,
    part: float,
    limit: int,
    sums: Sums,
) -> tuple[Vector, int]:
    """Vector whose residual is that part of b in the preconditioner's norm, and iterations.

    Less is reached where there is no solution, or in `limit` iterations.

    Notes
    -----
    H. Elman, D. Silvester and A. Wathen, "Finite elements and fast iterative solvers", algorithm
    6.1. C. Paige and M. Saunders, "Solution of sparse indefinite systems of linear equations",
    1975: what is left is a least-squares solution's if A takes it to zero.
    """
    x, older, old, earlier, v = (np.zeros_like(b) for _ in range(5))
    new, z = b, b / diagonal
    gamma, gamma_new = 1.0, sqrt(sums.dot(z, b))
    c_old, c, s_old, s, size = 1.0, 1.0, 0.0, 0.0, 0.0
    first = left = gamma_new
    for count in range(1, limit + 1):
        earlier, v, gamma_old, gamma = v, new, gamma, gamma_new
        z = z / gamma
        product = apply(z)
        delta = sums.dot(product, z)
        new = product - (delta / gamma) * v - (gamma / gamma_old) * earlier
        below = new / diagonal
        gamma_new = sqrt(max(sums.dot(below, new), 0.0))
        a0, a2, a3 = c * delta - c_old * s * gamma, s * delta + c_old * c * gamma, s_old * gamma
        size = max(size, abs(delta), gamma_new)
        if hypot(a0, c * gamma_new) <= _ROUND_OFF * size:
            return x, count
        a1 = hypot(a0, gamma_new)
        older, old = old, (z - a3 * older - a2 * old) / a1
        c_old, c, s_old, s = c, a0 / a1, s, gamma_new / a1
        x += c * left * old
        left *= -s
        if abs(left) <= part * first or gamma_new <= _ROUND_OFF * size:
            return x, count
        z = below
    return x, limit


def total(space: Space, vector: Vector) -> float:
    """Sum of all entries of a vector of a space. Collective, where ranks share the mesh."""
    return Sums(space).dot(vector, np.ones_like(vector))


def no_convergence(rtol: float, iterations: int) -> SolverError:
    """The error of an iteration that does not come to its end."""
    return SolverError(
        f"no convergence to a relative residual of {rtol:g} in {iterations} iterations: "
        "ask for less (--rtol 1e-8) or look at the mesh"
    )
