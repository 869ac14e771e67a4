"""MINRES for vectors of ranks or devices, which SciPy's knows nothing of."""

from __future__ import annotations

from math import hypot, sqrt

import numpy as np

from femops.solvers.inner_products import Sums
from femops.solvers.restarts import Apply, Vector, solve_in_rounds

# A round must reduce the residual to this part of it, or there is no use in more rounds.
_PROGRESS = 0.5
# The preconditioned residual is reduced by that much more than the residual has to be.
_MARGIN = 0.3
_ROUND_OFF = 450.0  # times the machine's precision, 1e-13 in float64


def minres(
    apply: Apply, b: Vector, inverse: Vector, sums: Sums, *, rtol: float, maxiter: int = 3000
) -> tuple[Vector, int, bool]:
    """Minimal residuals for a symmetric operator, preconditioned by a positive diagonal.

    The preconditioned residual is small before the residual is, or after; so the method is begun
    again for what is left. Collective.

    Parameters
    ----------
    apply, b, inverse, sums, rtol, maxiter
        As of `gmres`.

    Returns
    -------
    x : (size,) array
    iterations : int
    converged : bool
    """
    least = _ROUND_OFF * float(np.finfo(b.dtype).eps)

    def one_round(residual: Vector, norm: float, goal: float, steps: int) -> tuple[Vector, int]:
        part = max(_MARGIN * goal / norm, least)
        return _reduced(apply, residual, inverse, sums, part, least, steps)

    return solve_in_rounds(
        apply, b, sums, one_round, rtol=rtol, maxiter=maxiter, progress=_PROGRESS
    )


def _reduced(
    apply: Apply,
    b: Vector,
    inverse: Vector,
    sums: Sums,
    part: float,
    least: float,
    steps: int,
) -> tuple[Vector, int]:
    """Vector whose residual is that part of b in the preconditioner's norm, and iterations.

    Less is reached where there is no solution, or in so many steps; ``least`` is relative and
    counts as zero.

    Notes
    -----
    H. Elman, D. Silvester and A. Wathen, "Finite elements and fast iterative solvers", algorithm
    6.1. C. Paige and M. Saunders, "Solution of sparse indefinite systems of linear equations",
    1975: what is left is a least-squares solution's if A takes it to zero.
    """
    x, older, old, earlier, v = (sums.arrays.zeros_like(b) for _ in range(5))
    new, z = b, inverse * b
    gamma, gamma_new = 1.0, sqrt(sums.dot(z, b))
    c_old, c, s_old, s, size = 1.0, 1.0, 0.0, 0.0, 0.0
    first = left = gamma_new
    for count in range(1, steps + 1):
        earlier, v, gamma_old, gamma = v, new, gamma, gamma_new
        z = z / gamma
        product = apply(z)
        delta = sums.dot(product, z)
        new = product - (delta / gamma) * v - (gamma / gamma_old) * earlier
        below = inverse * new
        gamma_new = sqrt(max(sums.dot(below, new), 0.0))
        a0, a2, a3 = c * delta - c_old * s * gamma, s * delta + c_old * c * gamma, s_old * gamma
        size = max(size, abs(delta), gamma_new)
        if hypot(a0, c * gamma_new) <= least * size:
            return x, count
        a1 = hypot(a0, gamma_new)
        older, old = old, (z - a3 * older - a2 * old) / a1
        c_old, c, s_old, s = c, a0 / a1, s, gamma_new / a1
        x += c * left * old
        left *= -s
        if abs(left) <= part * first or gamma_new <= least * size:
            return x, count
        z = below
    return x, steps
