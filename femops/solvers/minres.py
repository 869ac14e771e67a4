"""MINRES on the host, on ranks and on devices."""

from __future__ import annotations

from math import hypot, isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.solvers.any_preconditioner import AnyOrNamed
from femops.solvers.call import Call
from femops.solvers.complex_systems import RealSystem
from femops.solvers.linear_problem import Info, LinearProblem, Map, Vector
from femops.solvers.restarts import Seen, solve_in_rounds
from femops.solvers.watch import Callback, Progress, Watch
from femops_common.arguments import Count, Fraction, NotNegative, checked

# A round must reduce the residual to this part, or it is the last.
_PROGRESS = 0.5
# The preconditioned residual is reduced to this part of the reduction that the residual needs.
_MARGIN = 0.3
_ROUND_OFF = 450.0  # times the machine's precision, 1e-13 in float64
_NOT_POSITIVE = (
    "M is found not to be positive definite, and minres needs that: make it of a positive definite "
    "operator, as femops.jacobi(femops.diffusion(V) + femops.mass(V))"
)


@checked(SolverError)
def minres(
    A: Operator | ComplexOperator,
    b: NDArray[Any],
    x0: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-5,
    atol: NotNegative = 0.0,
    maxiter: Count | None = None,
    M: AnyOrNamed = None,
    callback: Callback | None = None,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> tuple[NDArray[Any], Info]:
    """Solve A x = b for a symmetric operator, definite or not, by MINRES. Collective.

    Unlike `scipy.sparse.linalg.minres` it works on ranks and devices. SciPy's solver stops when the
    residual is small compared with |A| |x|, which may be much larger than |b|. MINRES reduces the
    preconditioned residual. So it is restarted until b - A x is small too. On a reproducible mesh
    the result has the same bits for any number of ranks and threads.

    Parameters
    ----------
    A : Operator or ComplexOperator
        Symmetric, or Hermitian. It may be singular if there is a solution.
    b, x0, rtol, atol, maxiter
        As for `cg`. Columns are solved for one after the other. Done when |b - A x| <= max(rtol
        |b|, atol), computed from x.
    M : Preconditioner, LinearOperator, matrix or name, optional
        Symmetric positive definite preconditioner, an approximate inverse of |A|. For an indefinite
        A take `femops.jacobi` or `femops.multigrid` of a similar definite operator, or
        `femops.block_diagonal`. Otherwise as for `cg`.
    callback, history, progress, warn
        As for `cg`.

    Returns
    -------
    x : array of the shape of b
        The last iterate, converged or not.
    info : Info
        For many columns as for `cg`. ``residuals`` belong to the column farthest from its
        tolerance.

    Raises
    ------
    SolverError
        An operator that is not symmetric, a preconditioner found not to be positive definite, or
        arguments that make no sense.
    VectorError
        Vectors of another shape or type.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning names the likely cause, such as a singular operator.

    Notes
    -----
    H. Elman, D. Silvester and A. Wathen, "Finite elements and fast iterative solvers", algorithm
    6.1. C. Paige and M. Saunders, "Solution of sparse indefinite systems of linear equations",
    1975. If A takes the residual to zero, x is a least-squares solution.
    """

    def solve(_: RealSystem, problem: LinearProblem, watch: Watch) -> tuple[Vector, Info]:
        precondition = problem.preconditioner(positive=True)
        eps = float(np.finfo(problem.right.dtype).eps)
        least = _ROUND_OFF * eps
        # |A r| that small beside |A| |r|: steps change the residual by less than round-off
        flat = 2.0 * sqrt(eps)

        def one_round(
            residual: Vector, norm: float, steps: int, seen: Seen | None
        ) -> tuple[Vector, int]:
            part = max(_MARGIN * problem.tolerance / norm, least)
            told = None if seen is None else _times(norm, seen)
            unit = residual / norm  # squares in the preconditioner's norm stay in range
            update, count = _reduced(problem, precondition, unit, part, least, flat, steps, told)
            return norm * update, count

        return solve_in_rounds(problem, one_round, watch, progress=_PROGRESS)

    limits, reports = (rtol, atol, maxiter), (history, progress, callback)
    return Call("minres", A, M, limits, reports, warn, solve).solve(b, x0)


def _reduced(
    problem: LinearProblem,
    precondition: Map,
    b: Vector,
    part: float,
    least: float,
    flat: float,
    steps: int,
    seen: Seen | None,
) -> tuple[Vector, int]:
    """Reduce |b - A x| to ``part`` |b| in the norm of M. Return x, and the iterations done.

    The residual stays larger if there is no solution, or after ``steps`` iterations. Numbers below
    ``least``, relative to A, count as zero. For the gradient of the squared residual the bound is
    ``flat``.
    """
    sums = problem.sums
    x, older, old, earlier, v = (sums.arrays.zeros_like(b) for _ in range(5))
    new, z = b, precondition(b)
    gamma, gamma_new = 1.0, _norm(sums.dot(z, b), 0.0)
    if not gamma_new:
        raise SolverError(_NOT_POSITIVE)
    c_old, c, s_old, s, size = 1.0, 1.0, 0.0, 0.0, 0.0
    first = left = gamma_new
    residual = b
    for count in range(1, steps + 1):
        earlier, v, gamma_old, gamma = v, new, gamma, gamma_new
        z = z / gamma
        product = problem.A.apply(z)
        delta = sums.dot(product, z)
        new = product - (delta / gamma) * v - (gamma / gamma_old) * earlier
        below = precondition(new)
        size = max(size, abs(delta))
        gamma_new = _norm(sums.dot(below, new), least * size)
        a0, a2, a3 = c * delta - c_old * s * gamma, s * delta + c_old * c * gamma, s_old * gamma
        size = max(size, gamma_new)
        if hypot(a0, c * gamma_new) <= flat * size:
            return x, count - 1
        a1 = hypot(a0, gamma_new)
        older, old = old, (z - a3 * older - a2 * old) / a1
        c_old, c, s_old, s = c, a0 / a1, s, gamma_new / a1
        x += c * left * old
        left *= -s
        if seen is not None:
            residual = s * s * residual + (c * left / max(gamma_new, least * size)) * new
            seen(sums.norm(residual), x.copy)
        if abs(left) <= part * first or gamma_new <= least * size:
            return x, count
        z = below
    return x, steps


def _times(norm: float, seen: Seen) -> Seen:
    """Return a callback that multiplies norms and updates by ``norm`` and calls ``seen``."""
    return lambda residual, update: seen(norm * residual, lambda: norm * update())


def _norm(square: float, least: float) -> float:
    """Return the square root of a squared norm. A value from -least**2 to 0 counts as round-off."""
    if not isfinite(square):
        raise SolverError("products with A or M are not finite: look at their coefficients")
    if square < -(least**2):
        raise SolverError(_NOT_POSITIVE)
    return sqrt(max(square, 0.0))
