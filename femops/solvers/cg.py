"""Conjugate gradients: `cg`, blocks of vectors, and the driver that also `CGSolver` uses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.operators.integrals.coefficients import float_type
from femops.solvers.any_preconditioner import AnyOrNamed
from femops.solvers.call import Call, Column, Found, many
from femops.solvers.cg_bodies import (
    ADVICE,
    M_NOT_POSITIVE,
    Body,
    ByProducts,
    CompiledLoop,
    End,
    WithCycles,
    group_of,
    least_change,
    not_positive,
)
from femops.solvers.complex_systems import RealSystem
from femops.solvers.convergence import warn_of_setup
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import Info, LinearProblem, Vector, enlarged, natural_norm
from femops.solvers.multigrid import Multigrid
from femops.solvers.multigrid.precision import SINGLE, in_single
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.restarts import Seen, solve_in_rounds
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Callback, Progress, Watch
from femops_common.arguments import Count, Fraction, NotNegative, checked

_INNER = 1e-4  # reduction of the residual by a solve in float32, measured
_PROGRESS = 0.5  # a solve that leaves this part of the residual is the last
_MOST_COLUMNS = 16  # columns of a block, whose small products grow with the square
_BURST = 64  # iterations of a reused solver between two looks for an interrupt
_STARTS = 4  # of the recursion for a block of columns
_REFINED = "Leave inner_dtype out if float32 does not resolve A, or give a larger maxiter."
_IDLE = Watch(False, None, None)


@checked(SolverError)
def cg(
    A: Operator | ComplexOperator,
    b: NDArray[Any],
    x0: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-5,
    atol: NotNegative = 0.0,
    maxiter: Count | None = None,
    M: AnyOrNamed = None,
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
    M : Preconditioner, LinearOperator, matrix or name, optional
        Symmetric positive definite preconditioner, an approximate inverse of A. Any object with a
        shape and a product with vectors will do, as for SciPy's solvers. `femops.jacobi` runs in
        the compiled loop, and `femops.multigrid` in its own kernels; with any other M each
        iteration goes through Python. On several ranks M must be made by femops, or be a
        LinearOperator whose product maps the rank's entries of a vector to the rank's entries of
        the result. A name stands for what is made of A: "auto" (`femops.preconditioner`),
        "multigrid", "direct" or "jacobi".
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

    def solve(_: RealSystem, problem: LinearProblem, watch: Watch) -> tuple[NDArray[Any], Info]:
        if inner_dtype is None:
            return Driver(problem.A, problem.M, problem.sums, merged=merged).solve(problem, watch)
        if float_type(inner_dtype) != SINGLE or callback is not None:
            raise SolverError("inner_dtype is float32 or left out, without a callback")
        return _refined(problem, merged, progress, history=history)

    limits, reports = (rtol, atol, maxiter), (history, progress, callback)
    advice = "" if inner_dtype is None else _REFINED
    call = Call("cg", A, M, limits, reports, warn, solve, {"merged": merged}, advice)
    if not many(b):
        return call.one(b, x0)
    if merged or callback is not None or inner_dtype is not None:
        raise SolverError("b has many columns: leave out callback, merged and inner_dtype")
    system = RealSystem.of("cg", A, b, x0, call.M)
    if warn:
        warn_of_setup(A, call.M)
    call = replace(call, A=system.A, M=system.M, others={})
    alone = system.A.space.any_width or isinstance(system.M, Multigrid)
    several = () if alone else (_MOST_COLUMNS, _block)
    X, info = call.columns(system.b, system.x0, *several)
    return system.solution(X), info


def _block(call: Call, columns: Sequence[Column]) -> Found:
    """Solve for some columns at once. Collective."""
    systems = [RealSystem(call.A, b, x0, call.M) for b, x0 in columns]
    problems = [call.problem(system) for system in systems]
    return solve_block(problems, call.watch(problems[0], systems[0]))


@final
class Driver:
    """Conjugate gradients with one operator and preconditioner, for checked problems.

    It scales problems, runs the body, and reports. Solves of a ``reused`` driver are short: it does
    not time its bursts of iterations. ``natural`` as in `CGSolver`.
    """

    def __init__(
        self,
        A: Operator,
        M: Preconditioner | None,
        sums: Sums,
        *,
        merged: bool | None = None,
        natural: bool = False,
        reused: bool = False,
    ) -> None:
        self.A, self.sums, self._natural = A, sums, natural
        self.body: Body
        if isinstance(M, Jacobi | None):
            burst = _BURST if reused else None
            self.body = CompiledLoop(A, M, sums, merged=merged, natural=natural, burst=burst)
        elif merged:
            raise SolverError(
                "merged = True, but M is not femops.jacobi(A), the only one that the operator's "
                "sweep applies: leave merged out"
            )
        else:
            cycles = isinstance(M, Multigrid) and not natural
            self.body = WithCycles(M) if cycles else ByProducts(natural)
        self.loop = self.body if isinstance(self.body, CompiledLoop) else None
        # smaller norms would underflow when the recursion squares them
        self.least = math.sqrt(np.finfo(A.dtype).tiny)

    def solve(self, given: LinearProblem, watch: Watch) -> tuple[Vector, Info]:
        """Solve a problem. Collective."""
        problem = given.in_range()
        watch.exponent = problem.exponent
        end = self.body.run(problem, self.goal(problem), watch)
        return self.report(problem, end, tuple(watch.norms))

    def goal(self, problem: LinearProblem) -> float:
        """Norm of the residual at which the recursion ends."""
        return max(problem.tolerance, self.least)

    def report(
        self,
        problem: LinearProblem,
        end: End,
        norms: tuple[float, ...] = (),
        *,
        trusted: bool = False,
    ) -> tuple[Vector, Info]:
        """Return the solution and its report, both before the problem was scaled. Collective.

        The residual of a ``trusted`` operator, known to be positive definite, is the recursion's.
        """
        A, x, residual, fields = self.A, end.x, end.residual, dict[str, tuple[float, float]]()
        tolerance = self.goal(problem) if trusted else problem.tolerance
        if not trusted:
            left = A.apply(x)
            left -= problem.right
            fields = self.sums.of_fields(left, problem.right)
            size = residual = self.sums.norm(left)
            if self._natural:
                residual = natural_norm(problem.M, left, self.sums)
            if end.reached and self.loop is not None:
                self._check_against(size, problem)
        converged = end.reached and residual <= 10.0 * tolerance
        how = end.merged, norms, fields
        info = Info(converged, end.iterations, residual, tolerance, *how)
        if not problem.exponent:
            return x, info
        allowed = max(tolerance, least_change(A, problem.norm))
        return enlarged(A, x, problem.exponent, allowed), info.scaled(problem.exponent)

    def _check_against(self, residual: float, problem: LinearProblem) -> None:
        """Raise if a recursion has converged in error, as |b - A x| shows. Collective."""
        if residual <= max(problem.norm, 0.0 if self._natural else problem.tolerance):
            return
        # a guess with a large residual leaves round-off of that size
        start = self.sums.norm(problem.right - self.A.apply(problem.guess))
        if not residual <= least_change(self.A, start):
            cause = singular_cause(self.A, problem.right, problem.tolerance)
            raise SolverError(
                "the recursion has converged, but |b - A x| is larger than |b|: "
                + (cause or f"the operator is singular; {ADVICE}")
            )


def solve_all(
    drivers: Sequence[Driver], given: Sequence[LinearProblem], rtol: float
) -> list[tuple[Vector, Info]]:
    """Solve a problem with each driver. Threads run compiled loops at once. Collective."""
    pairs = [(driver, one.in_range()) for driver, one in zip(drivers, given, strict=True)]
    looped = [(driver, driver.loop, problem) for driver, problem in pairs if driver.loop]
    group, limit = group_of([loop for _, loop, _ in looped]), given[0].limit
    if group is not None and all(problem.from_zero for *_, problem in looped):
        rights = [problem.right for *_, problem in looped]
        group.restart(rights, rtol, [driver.least for driver, *_ in looped])
        group.advance(limit)
    elif group is not None:
        for _, loop, problem in looped:
            loop.begin(problem)
        group.advance(limit, [driver.goal(problem) for driver, _, problem in looped])
    found = []
    for driver, problem in pairs:
        if group is not None and driver.loop is not None:
            end = driver.loop.end(problem)
        else:
            end = driver.body.run(problem, driver.goal(problem), _IDLE)
        found.append(driver.report(problem, end))
    return found


def solve_block(problems: Sequence[LinearProblem], watch: Watch) -> Found:
    """Solve problems of one operator by `Block`. Collective.

    If the recursion ends while a residual of X is still too large, the recursion restarts from X.
    """
    exponents = [math.frexp(problem.norm)[1] for problem in problems]
    block = Block([p.scaled(e) for p, e in zip(problems, exponents, strict=True)])
    norms, count, ended = block.begin(), 0, False
    for _ in range(_STARTS):
        before = norms
        count, ended = block.run(count, watch)
        norms = block.begin()
        done = (norms <= 10.0 * block.goals) | ~(norms < 0.5 * before)
        if done.all() or count >= problems[0].limit:
            break
    far = block.farthest(norms)
    converged = bool((norms <= (10.0 if ended else 1.0) * block.goals).all())
    reports = False, tuple(watch.norms), block.of_fields(far)
    info = Info(converged, count, float(norms[far]), float(block.goals[far]), *reports)
    X = block.X
    for j, (problem, exponent) in enumerate(zip(problems, exponents, strict=True)):
        X[:, j] = enlarged(problem.A, X[:, j], exponent, float(block.goals[j]))
        problem.held.put_into(X[:, j])
    return X, info.scaled(exponents[far]), far


def _refined(
    problem: LinearProblem, merged: bool | None, progress: Progress | None, *, history: bool
) -> tuple[Vector, Info]:
    """Solve A x = b by solves of A d = b - A x in float32. Collective.

    Each solve reduces the residual by up to 1e-4. The residual of the sum is computed in float64.
    So a solve costs one product in float64, and its iterations move half as many bytes.

    Notes
    -----
    C. Moler, "Iterative refinement in floating point", Journal of the ACM 14 (1967).
    """
    A, tolerance, spent, norms, is_merged = problem.A, problem.tolerance, 0, list[float](), False
    if isinstance(problem.M, Multigrid) and problem.M.precision != SINGLE:
        raise SolverError(
            f"inner_dtype is float32, and M works in {problem.M.precision} ({problem.M.reason}): "
            "leave inner_dtype out"
        )
    short = _rounded(A)

    def one_round(residual: Vector, norm: float, steps: int, _: Seen | None) -> tuple[Vector, int]:
        nonlocal spent, is_merged
        norms.append(norm)
        options: dict[str, Any] = {"merged": merged, "maxiter": steps, "warn": False}
        options["rtol"] = max(_INNER, 0.5 * tolerance / norm)
        if progress is not None:
            options["progress"] = lambda count, rest: progress(spent + count, norm * rest)
        try:
            d, info = cg(short, (residual / norm).astype(SINGLE), M=problem.M, **options)
        except SolverError as error:
            raise SolverError(
                f"in float32: {error}. If A is positive definite, float32 does not resolve it: "
                "leave inner_dtype out"
            ) from error
        spent, is_merged = spent + info.iterations, info.merged
        return norm * d.astype(A.dtype), info.iterations

    x, info = solve_in_rounds(problem, one_round, _IDLE, progress=_PROGRESS)
    if not norms or info.residual < norms[-1]:
        norms.append(info.residual)
    return x, replace(info, merged=is_merged, residuals=tuple(norms) * history)


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


Array = NDArray[Any]
Small = NDArray[Any]  # small matrices of float64

_ROWS = 1024  # rows that stay in the caches while they are worked on
_DEPENDENT = 1e-12  # eigenvalue, beside the largest, of a direction that others contain
_NEGATIVE = 1e-5  # the same, below zero, that is more than the round-off of float32
_DIVERGED = 1e8


@final
class Block:
    """Block conjugate gradients (O'Leary, 1980) for many problems, whose vectors are columns.

    The residual is a basis Q, orthonormal in the inner product of M, times a small matrix C (BCGrQ;
    Dubrulle, 2001). So right-hand sides may be linearly dependent, or converge at different times.

    `goals`, `reach` (nvec,): tolerances, and norms at which the recursion ends: not far below
    round-off. `X` (size, nvec): solutions.
    """

    def __init__(self, problems: Sequence[LinearProblem]) -> None:
        self._problems, self.first = problems, problems[0]
        self.goals = np.array([p.tolerance for p in problems])
        self.reach = np.maximum(self.goals, 1e-3 * float(np.finfo(self.first.right.dtype).eps))
        self._xp, self._memory = self.first.A.space.memory.xp, self.first.A.space.memory
        self._B = self._xp.stack(tuple(p.right for p in problems), axis=1)
        self.X = self._xp.stack(tuple(p.guess for p in problems), axis=1)
        M = self.first.M
        self._inverse = M.inverse[:, np.newaxis] if isinstance(M, Jacobi) else None
        self._Q = self._P = self._B
        self._C, self._ratio = np.zeros((0, 0)), np.zeros(len(problems))

    def begin(self) -> Small:
        """Set the basis to the residuals of the solutions, and return their norms. Collective."""
        self._Q, self._C = self._B - self.first.A @ self.X, np.eye(self.X.shape[1])
        self._ratio = np.zeros(len(self.goals))
        return self._norms()

    def run(self, count: int, watch: Watch) -> tuple[int, bool]:
        """Iterate, after `begin`. Return the iterations so far, and whether the recursion ended.

        Collective.
        """
        self.orthonormalize(count)
        first = self.norms().max()
        while True:
            norms = self.norms()
            if not norms.max() <= _DIVERGED * first:
                raise self._not_positive(norms, count)
            watch.tell(count, float(norms.max()), lambda: self.X)
            ended = bool((norms <= self.reach).all())
            if ended or count >= self.first.limit:
                return count, ended
            self.advance(count)
            count += 1

    def farthest(self, norms: Small) -> int:
        """Number of the column whose norm is farthest from its tolerance."""
        return int(np.argmax(norms / (self.goals + np.finfo(float).tiny)))

    def _not_positive(self, norms: Small, count: int) -> SolverError:
        return not_positive(self._problems[self.farthest(norms)], count)

    def of_fields(self, j: int) -> dict[str, tuple[float, float]]:
        """Norms of a column's residuals and right-hand sides, after `begin`. Collective."""
        return self.first.sums.of_fields(self._Q[:, j], self._B[:, j])

    def norms(self) -> Small:
        """Norms of the residuals of the recursion, estimated while they are not small. Collective.

        The recursion gives the norms in the inner product of M. Euclidean norms are computed only
        where they may be below `reach`. The ratio of the two norms is kept for later estimates.
        """
        known = np.sqrt((self._C**2).sum(axis=0))
        estimate = self._ratio * known
        if (estimate <= 2.0 * self.reach).all():
            estimate = self._norms()
            self._ratio = estimate / np.where(known > 0.0, known, 1.0)
        return np.asarray(estimate)

    def _norms(self) -> Small:
        """Euclidean norms of the residuals of the recursion. Collective."""
        squares = self._inner(self._Q, lambda rows: self._Q[rows])
        squares = np.einsum("ij,ik,kj->j", self._C, squares, self._C)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def advance(self, count: int) -> None:
        """Do one iteration. Collective."""
        P, Q, X = self._P, self._Q, self.X
        W = self.first.A @ P
        curvature = self._inner(P, lambda rows: W[rows])
        if not np.linalg.eigvalsh(_scaled(curvature)[0]).min(initial=1.0) > 0.0:
            raise self._not_positive(self.norms(), count)
        step = np.linalg.inv(0.5 * (curvature + curvature.T))
        change, step = self._put(step @ self._C), self._put(step)
        for rows in self._rows():
            X[rows] += P[rows] @ change
            Q[rows] -= W[rows] @ step
        self.orthonormalize(count, P)

    def orthonormalize(self, count: int, P: Array | None = None) -> None:
        """Make the basis orthonormal, and update the directions by the new basis. Collective."""
        Q, M, inverse = self._Q, self.first.M, self._inverse
        MQ = Q if M is None or inverse is not None else M @ Q

        def preconditioned(Q: Array, MQ: Array, rows: slice) -> Array:
            return MQ if inverse is None else inverse[rows] * Q

        gram = self._inner(Q, lambda rows: preconditioned(Q[rows], MQ[rows], rows))
        turn, back = _factors(gram, count)
        self._C = back @ self._C
        there, kept = self._put(turn), self._put(back.T)
        fewer = len(back) < Q.shape[1]
        made = [
            self._xp.empty((len(Q), len(back)), Q.dtype) for _ in range(2) if fewer or P is None
        ]
        self._Q, self._P = made if made else (Q, P)
        for rows in self._rows():
            own = Q[rows] @ there
            turned = preconditioned(own, own if MQ is Q else MQ[rows] @ there, rows)
            self._P[rows] = turned if P is None else turned + P[rows] @ kept
            self._Q[rows] = own

    def _rows(self) -> Iterator[slice]:
        """Yield blocks of rows. On a device one block has all rows."""
        n = len(self.X)
        each = _ROWS if self._memory.device is None else max(n, 1)
        return (slice(begin, min(begin + each, n)) for begin in range(0, n, each))

    def _put(self, small: Small) -> Array:
        """Copy a small matrix into the memory and type of the vectors."""
        found: Array = self._memory.put(np.ascontiguousarray(small, dtype=self._B.dtype))
        return found

    def _inner(self, left: Array, right: Any) -> Small:
        """Inner products of the columns of two arrays, read by blocks of rows. Collective.

        They are formed in float64: eigenvalues near `_DEPENDENT` are round-off in float32.
        """
        k = left.shape[1]
        total = self._xp.zeros((k, k))  # in float64
        for rows in self._rows():
            total += left[rows].astype(float, copy=False).T @ right(rows)
        return np.asarray(self.first.A.space.comm.sum(self._memory.get(total).reshape(-1))).reshape(
            k, k
        )


def _scaled(gram: Small) -> tuple[Small, Small]:
    """Divide a Gram matrix by the norms of its columns. Return it, and the norms (1 for zero)."""
    norms = np.sqrt(np.maximum(np.diag(gram), 0.0))
    norms[norms == 0.0] = 1.0
    return 0.5 * (gram + gram.T) / np.outer(norms, norms), norms


def _factors(gram: Small, count: int) -> tuple[Small, Small]:
    """Matrices T, Z with Q = (Q T) Z and Q T orthonormal, from inner products of columns of Q.

    Linearly dependent directions are left out.
    """
    if not np.isfinite(gram).all():
        raise SolverError(M_NOT_POSITIVE.format(count))
    unit, norms = _scaled(gram)
    values, vectors = np.linalg.eigh(unit)
    if values[0] < -_NEGATIVE * values[-1] or np.diag(gram).min() < 0.0:
        raise SolverError(M_NOT_POSITIVE.format(count))
    kept = values > _DEPENDENT * values[-1]
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    sizes = norms * (np.diag(gram) > 0.0)  # columns of zeros stay so
    return vectors / roots / norms[:, np.newaxis], roots[:, np.newaxis] * vectors.T * sizes
