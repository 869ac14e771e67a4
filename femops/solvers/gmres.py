"""GMRES for vectors of ranks or devices, which SciPy's knows nothing of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.devices import arrays, put
from femops.operators import Operator
from femops.solvers.jacobi import Jacobi
from femops.solvers.sums import Sums

Floats = NDArray[np.float64]


def gmres(
    A: Operator,
    b: NDArray[Any],
    M: Jacobi,
    sums: Sums,
    *,
    rtol: float,
    restart: int = 60,
    maxiter: int = 3000,
) -> tuple[NDArray[Any], int, bool]:
    """Solve A x = b by restarted GMRES, preconditioned from the right. Collective.

    Parameters
    ----------
    A : Operator
    b : (size,) array
    M : Jacobi
    sums : Sums
        Of the operator's space.
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
    x, goal, spent = arrays(A.space).zeros_like(b), rtol * sums.norm(b), 0
    while True:
        residual = b - A.apply(x)
        norm = sums.norm(residual)
        if norm <= goal or spent >= maxiter:
            return x, spent, norm <= goal
        steps = min(restart, maxiter - spent)
        update, count = _cycle(A, M, sums, residual / norm, norm, goal, steps)
        x += update
        spent += count


def _cycle(
    A: Operator,
    M: Jacobi,
    sums: Sums,
    first: NDArray[Any],
    norm: float,
    goal: float,
    steps: int,
) -> tuple[NDArray[Any], int]:
    """The update of up to so many steps, and how many were done."""
    basis = arrays(A.space).empty((steps + 1, len(first)), first.dtype)
    basis[0] = first
    upper, right = np.zeros((steps + 1, steps)), np.zeros(steps + 1)
    right[0] = norm
    turns: list[tuple[float, float]] = []
    for k in range(steps):
        w = A.apply(M.inverse * basis[k])
        column = np.zeros(steps + 1)
        for _ in range(2):
            h = sums.dots(basis[: k + 1], w)
            w -= put(A.space, h.astype(w.dtype)) @ basis[: k + 1]
            column[: k + 1] += h
        column[k + 1] = length = sums.norm(w)
        _turn(column, right, turns, k)
        upper[:, k] = column
        if abs(right[k + 1]) <= goal or length == 0.0:
            break
        basis[k + 1] = w / length
    count = len(turns)
    weights = np.linalg.solve(upper[:count, :count], right[:count])
    return M.inverse * (put(A.space, weights.astype(first.dtype)) @ basis[:count]), count


def _turn(column: Floats, right: Floats, turns: list[tuple[float, float]], k: int) -> None:
    """Givens rotations: those of before on the new column, and one that makes its last zero."""
    for i, (c, s) in enumerate(turns):
        column[i : i + 2] = c * column[i] + s * column[i + 1], c * column[i + 1] - s * column[i]
    length = math.hypot(column[k], column[k + 1])
    c, s = (column[k] / length, column[k + 1] / length) if length else (1.0, 0.0)
    turns.append((c, s))
    column[k : k + 2] = length, 0.0
    right[k : k + 2] = c * right[k], -s * right[k]
