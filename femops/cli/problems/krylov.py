"""Iterations that end at the residual asked for, or say that they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import minres as scipy_minres

import femops
from femops.errors import SolverError

Vector = NDArray[np.float64]

# A round must reduce the residual to this part of it, or there is no use in more rounds.
_PROGRESS = 0.5


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
    apply: Callable[[Vector], Vector], b: Vector, diagonal: Vector, rtol: float
) -> tuple[Vector, int]:
    """SciPy's MINRES for a symmetric operator, preconditioned by a positive diagonal.

    It stops when the residual is small beside |A| |x|, which says little of |b|; so it is called
    again for what is left, until |b - A x| <= rtol |b|.

    Parameters
    ----------
    apply : callable
        Of flat vectors.
    b : flat vector
    diagonal : flat vector
    rtol : float

    Returns
    -------
    x : flat vector
    iterations : int

    Raises
    ------
    SolverError
        No convergence.
    """
    shape = (len(b), len(b))
    A = LinearOperator(shape, apply, dtype=float)
    M = LinearOperator(shape, lambda r: r.reshape(-1) / diagonal, dtype=float)
    x, residual, count = np.zeros_like(b), b, [0]

    def counted(_: Any) -> None:
        count[0] += 1

    goal, norm = rtol * float(np.linalg.norm(b)), float(np.linalg.norm(b))
    while norm > goal:
        step, _ = scipy_minres(A, residual, rtol=min(rtol, 1e-3), M=M, callback=counted)
        x = x + step
        residual = b - apply(x)
        before, norm = norm, float(np.linalg.norm(residual))
        if not norm <= max(goal, _PROGRESS * before):
            raise no_convergence(rtol, count[0])
    return x, count[0]


def no_convergence(rtol: float, iterations: int) -> SolverError:
    """The error of an iteration that does not come to its end."""
    return SolverError(
        f"no convergence to a relative residual of {rtol:g} in {iterations} iterations: "
        "ask for less (--rtol 1e-8) or look at the mesh"
    )
