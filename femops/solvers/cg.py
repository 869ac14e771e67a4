"""Conjugate gradients, compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError, VectorError
from femops.operators import BlockOperator, Operator
from femops.operators.execution.choice import backend_of
from femops.solvers.inner_products import Sums, is_tolerance
from femops.solvers.jacobi import Jacobi
from femops_kernels.cg import BREAKDOWN, CONVERGED, Solve

_ADVICE = (
    "are boundary conditions missing, or is a coefficient negative? "
    "scipy.sparse.linalg.minres takes indefinite operators"
)
# Times the machine's precision and |b|: a residual that is no use to reduce further.
_ROUND_OFF = 1e4
_FIRST_BURST = 16  # iterations
_BURST_SECONDS = 0.1


@final
@dataclass(frozen=True)
class Info:
    """Report of a solve.

    Attributes
    ----------
    converged : bool
        Whether the recursion came to the tolerance and the residual is within ten times of it.
    iterations : int
    residual : float
        Euclidean norm of b - A x, computed at the end.
    tolerance : float
        What it had to come to, max(rtol |b|, atol).
    merged : bool
        Whether vectors were updated inside the operator's sweep.
    """

    converged: bool
    iterations: int
    residual: float
    tolerance: float
    merged: bool


def cg(
    A: Operator | BlockOperator,
    b: NDArray[Any],
    x0: NDArray[Any] | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Jacobi | None = None,
    callback: Callable[[NDArray[Any]], Any] | None = None,
    merged: bool | None = None,
) -> tuple[NDArray[Any], Info]:
    """Solve A x = b for a symmetric positive definite operator.

    The method of Hestenes and Stiefel (1952) with SciPy's names for tolerances; operator,
    preconditioner and vector updates run in one compiled loop.  The result has the same bits for
    any number of threads of the host.

    Parameters
    ----------
    A : Operator or BlockOperator
    b : l_vec or flat vector
        Right-hand side, of the operator's type; see `Operator.rhs` for essential conditions. On a
        device, if the operator is, as are x0 and x; nothing moves but a few numbers.
    x0 : array like b, optional
        First guess, zero if omitted.
    rtol, atol : float
        Done when |b - A x| <= max(rtol |b|, atol), Euclidean norms. The recursion for the residual
        goes on getting smaller where round-off keeps b - A x itself from it. So a solve ends
        whatever the tolerance, at the latest where the recursion's squares would underflow (a norm
        of 1.5e-154, in float32 1.1e-19); ``info`` has the residual as it is then, and is not
        converged if that is more than ten times the tolerance.
    maxiter : int, optional
        Most iterations; ten times the number of unknowns if omitted.
    M : Jacobi, optional
        Preconditioner, from `femops.jacobi`.
    callback : callable, optional
        Called as ``callback(x)`` after each iteration with a view of the iterate, in the shape of
        b; it must not be written to, and can't where arrays are the host's. A device waits for it
        each time.
    merged : bool, optional
        Whether vectors are updated inside the operator's sweep, so that they are read and written
        less often; iterates agree to round-off. If omitted, where that is possible: for operators
        of one sweep over all elements.

    Returns
    -------
    x : array of the shape of b
        The last iterate, converged or not.
    info : Info

    Raises
    ------
    SolverError
        An operator or preconditioner that is not femops' own (use `scipy.sparse.linalg.cg`),
        tolerances that are not numbers >= 0, a right-hand side that is not finite or so small
        that its norm underflows, or an operator found not to be positive definite; updates to be
        merged into an operator of several sweeps.
    VectorError
        Vectors of another length or type.
    """
    _check_arguments(A, M, rtol, atol, maxiter)
    right = _flat(A, b, "b")
    xp = A.space.memory.xp
    guess = xp.zeros_like(right) if x0 is None else _flat(A, x0, "x0")
    sums = Sums(A.space)
    norm = _norm_of(A, right, sums)
    tolerance = max(rtol * norm, atol)
    limit = 10 * A.space.global_size if maxiter is None else maxiter
    inverse = None if M is None else xp.ascontiguousarray(M.inverse, dtype=right.dtype)
    merge = _merged(A, merged, sums)
    solve = A.compiled.conjugate_gradients(right, guess, inverse, merge, sums)
    view = solve.x.reshape(b.shape)
    A.space.memory.protect(view)
    # squares of less would underflow in the recursion
    goal = max(tolerance, float(np.finfo(right.dtype).tiny) ** 0.5)
    _run(solve, goal, limit, None if callback is None else lambda: callback(view))
    x, info = _conclude(solve, A, right, sums, tolerance)
    return x.reshape(b.shape), info


def _norm_of(A: Operator | BlockOperator, right: NDArray[Any], sums: Sums) -> float:
    """Euclidean norm of a right-hand side for which there can be a solve."""
    norm = sums.norm(right)
    if not np.isfinite(norm):
        raise SolverError(
            "b has entries that are not finite: look at the load vector and the boundary values"
        )
    # of entries whose squares underflow nothing would be reduced, and the solve called converged
    if norm == 0.0 and A.space.comm.max(int(bool(right.any()))):
        raise SolverError(
            "b has entries other than zero, but their squares underflow: multiply b, and then "
            "divide x, by a large number"
        )
    return norm


def _merged(A: Operator | BlockOperator, wanted: bool | None, sums: Sums) -> bool:
    possible = sums.all(A.compiled.mergeable(A.space.size, many=sums.many))
    if wanted and not possible:
        raise SolverError(
            f"merged = True, but {A!r} is not one sweep over all elements, or its mesh is "
            "reproducible, or ranks have a GPU each: leave merged out"
        )
    return possible if wanted is None else wanted


def _conclude(
    solve: Solve,
    A: Operator | BlockOperator,
    right: NDArray[Any],
    sums: Sums,
    tolerance: float,
) -> tuple[NDArray[Any], Info]:
    """Solution and report, by the residual as it is and not as the recursion has it."""
    norm = sums.norm(right)
    reducible = solve.residual > _ROUND_OFF * np.finfo(right.dtype).eps * norm
    if not np.isfinite(solve.residual) or (solve.status == BREAKDOWN and reducible):
        raise SolverError(
            f"after {solve.iterations} iterations the operator (or preconditioner) is found not to "
            f"be positive definite: {_ADVICE}"
        )
    x = backend_of(A.space).placed(solve.x.copy())
    residual = sums.norm(right - A.apply(x))
    if solve.status == CONVERGED and not residual <= max(norm, tolerance):
        raise SolverError(
            f"the recursion has converged, but |b - A x| = {residual:.1e} and |b| = {norm:.1e}: "
            f"the operator is singular; {_ADVICE}"
        )
    converged = solve.status == CONVERGED and residual <= 10.0 * tolerance
    return x, Info(converged, solve.iterations, residual, tolerance, solve.merged)


def _run(solve: Solve, tolerance: float, limit: int, after: Callable[[], Any] | None) -> None:
    """Iterate to the end, in bursts of compiled iterations.

    Between bursts Python can act on an interrupt from the keyboard, which compiled code can't.
    """
    burst = 1 if after else solve.every or _FIRST_BURST
    solve.advance(tolerance, limit, 0)
    while solve.status == 0 and solve.iterations < limit:
        begin = perf_counter()
        solve.advance(tolerance, limit, burst, show=after is not None)
        if after is None and solve.every is None:
            pace = _BURST_SECONDS / max(perf_counter() - begin, 1e-9)
            burst = max(1, int(burst * min(pace, 4.0)))
        elif after and solve.status != BREAKDOWN:
            after()


def _check_arguments(A: Any, M: Any, rtol: float, atol: float, maxiter: int | None) -> None:
    if not isinstance(A, Operator | BlockOperator):
        raise SolverError(
            f"A is a {type(A).__name__}: femops.cg takes femops operators, "
            "scipy.sparse.linalg.cg any"
        )
    if not A.symmetric:
        raise SolverError(
            f"{A!r} is not symmetric: cg needs that, scipy.sparse.linalg.gmres not (a tensor "
            "coefficient is symmetric only if it is so to the last bit: give (K + K.T) / 2)"
        )
    if M is not None and not isinstance(M, Jacobi):
        raise SolverError(
            f"M is a {type(M).__name__}: femops.cg takes femops.jacobi(A), "
            "scipy.sparse.linalg.cg any preconditioner"
        )
    if M is not None and M.shape != A.shape:
        raise SolverError(
            f"M is {M.shape[0]} x {M.shape[1]}, A {A.shape[0]} x {A.shape[1]}: "
            "make it with jacobi(A)"
        )
    if M is not None and M.device is not A.space.device:
        raise SolverError("A and M are not on the same device: make M with jacobi(A)")
    if not (is_tolerance(rtol) and is_tolerance(atol)):
        raise SolverError(f"rtol = {rtol!r}, atol = {atol!r}: give numbers >= 0")
    if maxiter is not None and (not isinstance(maxiter, int | np.integer) or maxiter < 0):
        raise SolverError(f"maxiter = {maxiter}: give a whole number >= 0")


def _flat(A: Operator | BlockOperator, vector: Any, what: str) -> NDArray[Any]:
    vector = A.space.memory.vector_of(A.space, vector, what)
    if vector.dtype != A.dtype:
        raise VectorError(
            f"{what} has type {vector.dtype}, the operator {A.dtype}: "
            f"convert it by .astype({A.dtype})"
        )
    flat: NDArray[Any] = A.space.memory.xp.ascontiguousarray(vector).reshape(-1)
    return flat
