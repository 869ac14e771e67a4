"""GMRES on the host, on ranks and on devices."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.solvers.any_preconditioner import AnyOrNamed
from femops.solvers.call import Call
from femops.solvers.complex_systems import Algebra, RealSystem
from femops.solvers.linear_problem import Info, LinearProblem, Vector
from femops.solvers.restarts import Seen, solve_in_rounds
from femops.solvers.watch import Callback, Progress, Watch
from femops_common.arguments import Count, Fraction, NotNegative, checked, whole_numbers


@checked(SolverError)
def gmres(
    A: Operator | ComplexOperator,
    b: NDArray[Any],
    x0: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-5,
    atol: NotNegative = 0.0,
    restart: Annotated[int, whole_numbers(1)] = 60,
    maxiter: Count | None = None,
    M: AnyOrNamed = None,
    callback: Callback | None = None,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> tuple[NDArray[Any], Info]:
    """Solve A x = b for any operator by restarted flexible GMRES. Collective.

    M is applied from the right. It may round to float32, as multigrid does, or iterate itself, so
    that it is not the same linear map each time.

    Unlike `scipy.sparse.linalg.gmres` it works on ranks and devices. On a reproducible mesh the
    result has the same bits for any number of ranks and threads.

    Parameters
    ----------
    A : Operator or ComplexOperator
    b, x0, rtol, atol
        As for `cg`. Columns are solved for one after the other. Done when |b - A x| <= max(rtol
        |b|, atol), computed from x.
    restart : int
        Number of iterations between restarts. The method stores a vector for each of them, and with
        M another one.
    maxiter : int, optional
        Maximum number of products with A, all restarts together. The default is ten times the
        number of unknowns. The solve also ends after a restart without progress.
    M : Preconditioner, LinearOperator, matrix or name, optional
        Approximate inverse of A. It need not be symmetric. Otherwise as for `cg`.
    callback : callable, optional
        As for `cg`. Each call forms the iterate, which costs one vector update per stored
        direction.
    history, progress, warn
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
        An operator or preconditioner that cannot be used, or arguments that make no sense.
    VectorError
        Vectors of another shape or type.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning names the likely cause, such as a singular operator.

    Notes
    -----
    Y. Saad and M. H. Schultz, "GMRES: a generalized minimal residual algorithm for solving
    nonsymmetric linear systems", SIAM J. Sci. Stat. Comput. 7 (1986). Y. Saad, "A flexible
    inner-outer preconditioned GMRES algorithm", SIAM J. Sci. Comput. 14 (1993). Each direction is
    orthogonalized twice, each time with one reduction.
    """

    def solve(system: RealSystem, problem: LinearProblem, watch: Watch) -> tuple[Vector, Info]:
        precondition = None if system.M is None else problem.preconditioner()
        algebra = system.algebra(problem, precondition)

        def one_round(
            residual: Vector, norm: float, steps: int, seen: Seen | None
        ) -> tuple[Vector, int]:
            directions = min(int(restart), steps)
            return _cycle(algebra, problem.tolerance, residual / norm, norm, directions, seen)

        return solve_in_rounds(problem, one_round, watch)

    limits, reports = (rtol, atol, maxiter), (history, progress, callback)
    call = Call("gmres", A, M, limits, reports, warn, solve, {"restart": restart})
    return call.solve(b, x0)


def _cycle(
    algebra: Algebra,
    tolerance: float,
    start: Vector,
    norm: float,
    steps: int,
    seen: Seen | None,
) -> tuple[Vector, int]:
    """Do up to ``steps`` iterations. Return the update of x, and the number of iterations done.

    The first direction ``start`` and the update are vectors of real numbers.
    """
    first, kind = algebra.vector(start), algebra.kind
    least = float(np.finfo(first.dtype).eps)
    basis = algebra.sums.arrays.empty((steps + 1, len(first)), first.dtype)
    corrections = basis if algebra.plain else algebra.sums.arrays.empty_like(basis[:steps])
    basis[0] = first
    upper, right = np.zeros((steps + 1, steps), kind), np.zeros(steps + 1, kind)
    right[0] = norm
    turns: list[tuple[Any, Any]] = []

    def update() -> Vector:
        k = len(turns)
        if abs(upper[k - 1, k - 1]) <= least * size:
            k -= 1  # A is singular: its product with the last direction adds nothing
        if not k:
            return 0.0 * start
        weights = np.linalg.solve(upper[:k, :k], right[:k])
        return algebra.reals(algebra.combined(weights, corrections[:k]))

    for k in range(steps):
        if not algebra.plain:
            # M of the combination would differ from this by M's round-off, which A may enlarge
            corrections[k] = algebra.precondition(basis[k])
        w = algebra.product(corrections[k])
        upper[:, k], size = _orthogonalised(w, basis[: k + 1], steps, algebra)
        length = upper[k + 1, k].real
        _turn(upper[:, k], right, turns, k)
        if seen is not None:
            seen(abs(right[k + 1]), update)
        if abs(right[k + 1]) <= tolerance or length <= least * size:
            break
        basis[k + 1] = w / length
    return update(), len(turns)


def _orthogonalised(w: Vector, basis: Vector, steps: int, algebra: Algebra) -> tuple[Vector, float]:
    """Orthogonalize w against the basis, in place. Return a column, and the norm that w had.

    The column holds the coefficients of the basis, followed by the norm of the new w.
    """
    column, count = np.zeros(steps + 1, algebra.kind), len(basis)
    for _ in range(2):
        h = algebra.dots(basis, w)
        w -= algebra.combined(h, basis)
        column[:count] += h
    column[count] = algebra.norm(w)
    return column, float(np.linalg.norm(column))


def _turn(column: Vector, right: Vector, turns: list[tuple[Any, Any]], k: int) -> None:
    """Apply the earlier Givens rotations to a column. Add a rotation that zeroes its last entry."""
    for i, (c, s) in enumerate(turns):
        a, b = column[i], column[i + 1]
        column[i : i + 2] = c.conjugate() * a + s.conjugate() * b, c * b - s * a
    length = math.hypot(abs(column[k]), abs(column[k + 1]))
    c, s = (column[k] / length, column[k + 1] / length) if length else (1.0, 0.0)
    turns.append((c, s))
    column[k : k + 2] = length, 0.0
    right[k : k + 2] = c.conjugate() * right[k], -s * right[k]
