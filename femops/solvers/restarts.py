"""Common part of GMRES and MINRES: rounds, each begun from the residual as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.solvers.inner_products import Sums

Vector = NDArray[Any]
Apply = Callable[[Vector], Vector]
Round = Callable[[Vector, float, float, int], tuple[Vector, int]]


def solve_in_rounds(
    apply: Apply,
    b: Vector,
    sums: Sums,
    one_round: Round,
    *,
    rtol: float,
    maxiter: int,
    progress: float = 1.0,
) -> tuple[Vector, int, bool]:
    """Solve A x = b, round by round. Collective.

    Parameters
    ----------
    apply : callable
        A, of flat vectors.
    b : (size,) array
    sums : Sums
        Of the vectors' space.
    one_round : callable
        Given a residual, its norm, the norm that it has to come to and the most iterations, what
        to add to x, and iterations done.
    rtol : float
        Done when |b - A x| <= rtol |b|.
    maxiter : int
        Most iterations, of all rounds together.
    progress : float
        A round that leaves this part of the residual, or more, is the last.

    Returns
    -------
    x : (size,) array
    iterations : int
    converged : bool
    """
    x, residual, spent = sums.arrays.zeros_like(b), b, 0
    norm, before = sums.norm(b), np.inf
    goal = rtol * norm
    while goal < norm < progress * before and spent < maxiter:
        update, count = one_round(residual, norm, goal, maxiter - spent)
        x += update
        residual = b - apply(x)
        before, norm, spent = norm, sums.norm(residual), spent + count
    return x, spent, norm <= goal
