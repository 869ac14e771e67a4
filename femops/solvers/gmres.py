"""GMRES for vectors of ranks or devices, which SciPy's knows nothing of."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from femops.solvers.inner_products import Sums
from femops.solvers.restarts import Apply, Vector, solve_in_rounds

Floats = NDArray[np.float64]


def gmres(
    apply: Apply,
    b: Vector,
    inverse: Vector,
    sums: Sums,
    *,
    rtol: float,
    restart: int = 60,
    maxiter: int = 3000,
) -> tuple[Vector, int, bool]:
    """Solve A x = b by restarted GMRES, preconditioned from the right. Collective.

    Parameters
    ----------
    apply : callable
        A, of flat vectors.
    b : (size,) array
    inverse : (size,) array
        Of a diagonal.
    sums : Sums
        Of the vectors' space.
    rtol : float
        Done when |b - A x| <= rtol |b|.
    restart : int
        Directions that are kept.
    maxiter : int
        Most iterations, of all restarts together.

    Returns
    -------
    x : (size,) array
    iterations : int
    converged : bool

    Notes
    -----
    Y. Saad and M. H. Schultz, "GMRES: a generalized minimal residual algorithm for solving
    nonsymmetric linear systems", SIAM J. Sci. Stat. Comput. 7 (1986). Directions are made
    orthogonal twice, each time with one reduction.
    """

    def one_round(residual: Vector, norm: float, goal: float, steps: int) -> tuple[Vector, int]:
        return _cycle(apply, inverse, sums, residual / norm, norm, goal, min(restart, steps))

    return solve_in_rounds(apply, b, sums, one_round, rtol=rtol, maxiter=maxiter)


def _cycle(
    apply: Apply,
    inverse: Vector,
    sums: Sums,
    first: Vector,
    norm: float,
    goal: float,
    steps: int,
) -> tuple[Vector, int]:
    """The update of up to so many steps, and how many were done."""
    basis = sums.arrays.empty((steps + 1, len(first)), first.dtype)
    basis[0] = first
    upper, right = np.zeros((steps + 1, steps)), np.zeros(steps + 1)
    right[0] = norm
    turns: list[tuple[float, float]] = []
    for k in range(steps):
        w = apply(inverse * basis[k])
        column = np.zeros(steps + 1)
        for _ in range(2):
            h = sums.dots(basis[: k + 1], w)
            w -= sums.combined(h, basis[: k + 1])
            column[: k + 1] += h
        column[k + 1] = length = sums.norm(w)
        _turn(column, right, turns, k)
        upper[:, k] = column
        if abs(right[k + 1]) <= goal or length == 0.0:
            break
        basis[k + 1] = w / length
    count = len(turns)
    weights = np.linalg.solve(upper[:count, :count], right[:count])
    return inverse * sums.combined(weights, basis[:count]), count


def _turn(column: Floats, right: Floats, turns: list[tuple[float, float]], k: int) -> None:
    """Givens rotations: those of before on the new column, and one that makes its last zero."""
    for i, (c, s) in enumerate(turns):
        column[i : i + 2] = c * column[i] + s * column[i + 1], c * column[i + 1] - s * column[i]
    length = math.hypot(column[k], column[k + 1])
    c, s = (column[k] / length, column[k + 1] / length) if length else (1.0, 0.0)
    turns.append((c, s))
    column[k : k + 2] = length, 0.0
    right[k : k + 2] = c * right[k], -s * right[k]
