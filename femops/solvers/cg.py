"""Conjugate gradients in one compiled loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.operators.execution.choice import backend_of
from femops.operators.integrals.number_types import float_type
from femops.parallel.collective_checks import check_same
from femops.solvers import block_cg, preconditioned_cg
from femops.solvers.any_preconditioner import AnyPreconditioner
from femops.solvers.columns import columns_of, joined, many, one_by_one, warn_of_column
from femops.solvers.complex_systems import RealSystem
from femops.solvers.convergence import warn_of, warn_of_setup
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import (
    MOST_GROWTH,
    Info,
    LinearProblem,
    enlarged,
    excess_of,
)
from femops.solvers.multigrid import Multigrid
from femops.solvers.multigrid.precision import SINGLE, in_single
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Callback, Progress, Watch
from femops_common.arguments import Count, Fraction, NotNegative, checked
from femops_kernels.cg import BREAKDOWN, CONVERGED, Solve

Vector = NDArray[Any]
_INNER = 1e-4  # reduction of the residual by a solve in float32, measured
_PROGRESS = 0.5  # a solve that leaves this part of the residual is the last


def solve_refined(
    cg: Any,
    problem: LinearProblem,
    merged: bool | None,
    progress: Progress | None,
    *,
    history: bool,
) -> tuple[Vector, Info]:
    """Solve A x = b by solves of A d = b - A x in float32. Collective.

    Each solve reduces the residual by up to 1e-4. The residual of the sum is computed in float64.
    So a solve costs one product in float64, and its iterations move half as many bytes.

    Notes
    -----
    C. Moler, "Iterative refinement in floating point", Journal of the ACM 14 (1967).
    """
    A, sums, tolerance = problem.A, problem.sums, problem.tolerance
    short = _rounded(A)
    x = problem.guess.copy()
    residual = problem.right - A.apply(x)
    norm, spent, is_merged = sums.norm(residual), 0, False
    told = [norm]
    while norm > tolerance and spent < problem.limit:
        part = (residual / norm).astype(SINGLE)
        rtol = max(_INNER, 0.5 * tolerance / norm)
        options: dict[str, Any] = {"merged": merged, "warn": False}
        options["maxiter"] = problem.limit - spent
        if progress is not None:
            options["progress"] = _scaled(progress, spent, norm)
        try:
            d, info = cg(short, part, M=problem.M, rtol=rtol, **options)
        except SolverError as error:
            raise SolverError(
                f"in float32: {error}. If A is positive definite, float32 does not resolve it: "
                "leave inner_dtype out"
            ) from error
        spent, is_merged = spent + info.iterations, info.merged
        better = x + norm * d.astype(A.dtype)
        residual = problem.right - A.apply(better)
        before, norm = norm, sums.norm(residual)
        if not norm < before:  # round-off: the solve has added errors only
            norm = before
            break
        x = better
        told.append(norm)
        if norm > _PROGRESS * before:
            break
    fields = sums.of_fields(residual, problem.right)
    info = Info(norm <= tolerance, spent, norm, tolerance, is_merged, tuple(told) * history, fields)
    return backend_of(A.space).placed(x), info


def _rounded(A: Operator) -> Operator:
    """Copy of an operator in float32."""
    if A.dtype != np.float64:
        raise SolverError(f"inner_dtype is float32, and A is {A.dtype} already: leave it out")
    short = in_single(A)
    if short is None:
        raise SolverError(
            "numbers of A do not fit into float32: leave inner_dtype out, or scale the "
            "coefficients or the coordinates"
        )
    return short


def _scaled(progress: Progress, spent: int, norm: float) -> Progress:
    """Report of a solve as part of a longer one."""
    return lambda iterations, residual: progress(spent + iterations, norm * residual)


_ADVICE = (
    "are boundary conditions missing, or is a coefficient negative? "
    "femops.minres takes indefinite operators"
)
# Times the machine's precision and |b|: residuals below this are round-off.
_ROUND_OFF = 1e4
_FIRST_BURST = 16  # iterations
_MOST_COLUMNS = 16  # columns of a block, whose small products grow with the square
_BURST_SECONDS = 0.1


@checked(SolverError)
def cg(
    A: Operator | ComplexOperator,
    b: NDArray[Any],
    x0: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-5,
    atol: NotNegative = 0.0,
    maxiter: Count | None = None,
    M: AnyPreconditioner = None,
    callback: Callback | None = None,
    merged: bool | None = None,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
    inner_dtype: DTypeLike | None = None,
) -> tuple[NDArray[Any], Info]:
    """Solve A x = b for a symmetric, or Hermitian, positive definite operator.

    The method of Hestenes and Stiefel (1952) with SciPy's names for tolerances; operator,
    preconditioner and vector updates run in one compiled loop.  For one right-hand side the
    result has the same bits for any number of threads of the host.

    Parameters
    ----------
    A : Operator or ComplexOperator
    b : (size,) or (size, nvec) array
        Right-hand side, of the operator's type; see `Operator.rhs` for essential conditions. If the
        operator is on a device, so are b, x0 and x. Only a few numbers are copied to the host. The
        columns of a matrix are right-hand sides. Up to 16 are solved together, and share search
        directions (block conjugate gradients: O'Leary, 1980; Dubrulle, 2001). On a reproducible
        mesh, and with ``M=femops.multigrid(A)``, they are solved one by one.
    x0 : array of the shape of b, optional
        First guess, zero if omitted.
    rtol, atol : float
        Done when |b - A x| <= max(rtol |b|, atol), Euclidean norms over the dofs that are not
        constrained: at constrained dofs x is what b gives, whatever x0 is there. The residual in
        this test comes from a recursion. It decreases even where round-off keeps b - A x from
        decreasing. So each solve ends, at the latest before squares in the recursion underflow (at
        a norm of 1.5e-154, in float32 1.1e-19). ``info`` has the norm of b - A x at the end.
        ``info.converged`` is False if this norm is more than ten times the tolerance. A float32
        right-hand side may have any size. If its squares are out of range, the solver scales it by
        a power of two.
    maxiter : int, optional
        Maximum number of iterations. The default is ten times the number of unknowns.
    M : Preconditioner, LinearOperator or matrix, optional
        Symmetric positive definite preconditioner, an approximate inverse of A. Any object with a
        shape and a product with vectors will do, as for SciPy's solvers. `femops.jacobi` runs in
        the compiled loop, and `femops.multigrid` in its own kernels; with any other M each
        iteration goes through Python. On several ranks M must be made by femops, or be a
        LinearOperator whose product maps the rank's entries of a vector to the rank's entries of
        the result.
    callback : callable, optional
        Called as ``callback(x)`` after each iteration. x is a view of the iterate: do not write to
        it. On the host the view is read-only. A device waits for each call.
    merged : bool, optional
        Whether the operator's sweep also updates the vectors, which saves memory traffic. Iterates
        agree to round-off. By default updates are merged where possible: for an operator that makes
        one sweep over all elements.
    history : bool
        Whether ``info.residuals`` has the norm of the residual after each iteration.
    progress : callable, optional
        Called as ``progress(iterations, residual)`` with the number of iterations so far and the
        norm of the residual: at the beginning, and about ten times a second. With ``history`` or
        ``callback`` it is called after each iteration. Every rank calls it.
    warn : bool
        Whether to issue a `ConvergenceWarning` if the solve has not converged.
    inner_dtype : dtype, optional
        float32: iterate in float32, and correct the residual in float64 after each reduction by
        1e-4 (iterative refinement). The solution is as accurate. The solve is faster where the
        memory or the arithmetic limits the products, and float32 resolves A. ``info.residuals`` has
        the norms that were computed in float64.

    Returns
    -------
    x : array of the shape of b
        The last iterate, converged or not.
    info : Info
        Report of the solve. For several right-hand sides, ``iterations`` is the most that one
        needs, and ``converged`` is True if all have converged. ``residual`` and ``tolerance``
        belong to the right-hand side that is farthest from its tolerance.
        ``residuals`` has the largest residual in each iteration, after each right-hand side was
        scaled by a power of two to a norm from 1/2 to 1.

    Raises
    ------
    SolverError
        An operator that is not femops' own (use `scipy.sparse.linalg.cg`), a preconditioner that
        cannot be used or is found not to be positive definite, tolerances that are not numbers
        >= 0, a right-hand side that is not finite or so small that its norm underflows, or an
        operator found not to be positive definite; updates to be merged into an operator of several
        sweeps, or with another M than Jacobi's; a multigrid cycle that diverges; a callback, or
        merged updates, for many right-hand sides.
    VectorError
        Vectors of another shape or type.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning names the likely cause, such as a singular operator.
    """
    system = RealSystem.of("cg", A, b, x0, M, callback)
    if warn:
        warn_of_setup(A, M)
    A, b, M, callback = system.A, system.b, system.M, system.callback
    if many(b):
        if merged or callback is not None or inner_dtype is not None:
            raise SolverError("b has many columns: leave out callback, merged and inner_dtype")
        reports = {"history": history, "progress": progress, "warn": warn}
        limits = {"M": M, "rtol": rtol, "atol": atol, "maxiter": maxiter}
        x, info = _many(A, b, system.x0, limits, **reports)
        return system.solution(x), info
    watched = callback is not None or progress is not None
    options = {"merged": merged, "warn": warn}
    given = LinearProblem.checked("cg", A, b, system.x0, M, rtol, atol, maxiter, watched, **options)
    if inner_dtype is not None:
        if float_type(inner_dtype) != SINGLE or callback is not None:
            raise SolverError("inner_dtype is float32 or left out, without a callback")
        x, info = solve_refined(cg, given, merged, progress, history=history)
        advice = "Leave inner_dtype out if float32 does not resolve A, or give a larger maxiter."
    else:
        shown, space = given.shown(callback), A.space
        watch = Watch(history, progress, shown, space.comm, arrays=space.memory.xp)
        x, info = _of_one(given, merged, watch)
        advice = ""
    if warn:
        warn_of("cg", given, M, x, info, advice)
    return system.solution(given.held.put_into(x)), info


def _of_one(given: LinearProblem, merged: bool | None, watch: Watch) -> tuple[NDArray[Any], Info]:
    """Solve a checked problem with one right-hand side. Collective."""
    A = given.A
    exponent = excess_of(A, given.right, given.guess)
    problem = given.scaled(exponent)
    # smaller norms would underflow when the recursion squares them
    goal = max(problem.tolerance, float(np.finfo(problem.right.dtype).tiny) ** 0.5)
    watch.exponent = exponent
    if isinstance(problem.M, Jacobi | None):
        x, info = _solved(problem, problem.M, merged, watch, goal)
    else:
        if merged:
            raise SolverError(
                "merged = True, but M is not femops.jacobi(A), the only one that the operator's "
                "sweep applies: leave merged out"
            )
        x, info = preconditioned_cg.solve(problem, watch, goal)
    if exponent:
        allowed = max(problem.tolerance, least_change(A.dtype, problem.norm))
        x, info = enlarged(A, x, exponent, allowed), info.scaled(exponent)
    return x, info


def _many(
    A: Operator, B: NDArray[Any], X0: NDArray[Any] | None, options: dict[str, Any], **reports: Any
) -> tuple[NDArray[Any], Info]:
    """Solve for the columns of B (size, nvec). Collective."""
    if A.space.any_width or isinstance(options["M"], Multigrid):
        return one_by_one("cg", cg, A, B, X0, options, callback=None, **reports)
    check_same(A.space.comm, "a solve by cg", {"warn": reports["warn"]}, error=SolverError)
    columns = columns_of(A, B, X0, "a solve by cg")
    count, quiet = len(columns), reports | {"warn": False}  # once for all columns, at the end
    blocks = -(-count // _MOST_COLUMNS)  # of equal size: a block of one column would waste time
    edges = [k * count // blocks for k in range(blocks + 1)]
    found = [_block(A, columns, part, options, **quiet) for part in pairwise(edges)]
    X, info, worst = joined(A, found)
    if reports["warn"]:
        warn_of_column("cg", A, columns[worst], options, X[:, worst], info)
    return X, info


def _block(
    A: Operator,
    columns: Sequence[tuple[Any, Any]],
    part: tuple[int, int],
    options: dict[str, Any],
    **reports: Any,
) -> tuple[NDArray[Any], Info, int]:
    """Solve for the columns (b, x0) of a range at once. Collective."""
    problems = [
        LinearProblem.checked("cg", A, b, x0, **options, warn=reports["warn"])
        for b, x0 in columns[slice(*part)]
    ]
    watch = Watch(reports["history"], reports["progress"], None, A.space.comm)
    X, info, far = block_cg.solve(problems, watch)
    return X, info, part[0] + far


def _solved(
    problem: LinearProblem, M: Jacobi | None, merged: bool | None, watch: Watch, goal: float
) -> tuple[NDArray[Any], Info]:
    """Solve by compiled conjugate gradients. M is Jacobi's preconditioner or None."""
    A = problem.A
    right, sums = problem.right, problem.sums
    inverse = None
    if M is not None:
        inverse = A.space.memory.xp.ascontiguousarray(M.inverse, dtype=right.dtype)
    merge = merges(A, merged, sums)
    guess = None if problem.from_zero else problem.guess
    solve = A.compiled.conjugate_gradients(right, guess, inverse, merge, sums)
    view = solve.x.view()
    A.space.memory.protect(view)
    _run(solve, goal, problem.limit, watch, view)
    return _conclude(solve, problem, tuple(watch.norms))


def least_change(dtype: np.dtype[Any], norm: float) -> float:
    """Bound of the round-off in a product with A whose result has the norm ``norm``."""
    return float(_ROUND_OFF * np.finfo(dtype).eps * norm)


def indefinite(solve: Solve, A: Operator, least: float) -> str:
    """Return the message for an operator that is not positive definite. Collective."""
    r = solve.right - A.apply(solve.x)
    energy = abs(Sums(A.space).dot(r, A.apply(r)))  # not a number after overflow
    if not (math.isfinite(solve.residual) and energy < float(np.finfo(A.dtype).max)):
        return (
            "squares of the residual overflow, or its energy does: give a first guess nearer to "
            "the solution or none, or make A in float64, or scale it"
        )
    return (
        f"after {solve.iterations} iterations the operator (or preconditioner) is found not to "
        f"be positive definite: {singular_cause(A, solve.right, least) or _ADVICE}"
    )


def merges(A: Operator, wanted: bool | None, sums: Sums) -> bool:
    """True if the operator's sweep also updates the vectors. Collective."""
    possible = sums.all(A.compiled.mergeable(A.space.size, many=sums.many))
    if wanted and not possible:
        raise SolverError(
            f"merged = True, but {A!r} is not one sweep over all elements, or its mesh is "
            "reproducible, or ranks have a GPU each: leave merged out"
        )
    return possible if wanted is None else wanted


def _conclude(
    solve: Solve, problem: LinearProblem, residuals: tuple[float, ...]
) -> tuple[NDArray[Any], Info]:
    """Return the solution and a report with the norm of b - A x instead of the recursion's."""
    A, right, norm, tolerance = problem.A, problem.right, problem.norm, problem.tolerance
    least = least_change(right.dtype, norm)
    reducible = not solve.residual <= least
    if not np.isfinite(solve.residual) or (solve.status == BREAKDOWN and reducible):
        raise SolverError(indefinite(solve, A, least))
    x = backend_of(A.space).placed(solve.x.copy())
    left = right - A.apply(x)
    residual = problem.sums.norm(left)
    if solve.status == CONVERGED and not residual <= max(norm, tolerance):
        # a guess with a large residual leaves round-off of that size
        start = problem.sums.norm(right - A.apply(problem.guess))
        if not residual <= least_change(right.dtype, start):
            raise SolverError(
                "the recursion has converged, but |b - A x| is larger than |b|: "
                + (singular_cause(A, right, tolerance) or f"the operator is singular; {_ADVICE}")
            )
    converged = solve.status == CONVERGED and residual <= 10.0 * tolerance
    fields = problem.sums.of_fields(left, right)
    how = solve.merged, residuals, fields
    return x, Info(converged, solve.iterations, residual, tolerance, *how)


def _run(solve: Solve, tolerance: float, limit: int, watch: Watch, view: NDArray[Any]) -> None:
    """Iterate to the end, in bursts of compiled iterations.

    Between bursts Python can act on a keyboard interrupt. Compiled code cannot.
    """
    burst = 1 if watch.each else solve.every or _FIRST_BURST
    show = watch.shows
    solve.advance(tolerance, limit, 0)
    watch.tell(0, solve.residual, lambda: view)
    most = MOST_GROWTH * solve.residual
    while solve.status == 0 and solve.iterations < limit and solve.residual <= most:
        begin = perf_counter()
        solve.advance(tolerance, limit, burst, show=show)
        if not watch.each and solve.every is None:
            pace = _BURST_SECONDS / max(perf_counter() - begin, 1e-9)
            burst = max(1, int(burst * min(pace, 4.0)))
        if solve.status != BREAKDOWN:
            watch.tell(solve.iterations, solve.residual, lambda: view)
