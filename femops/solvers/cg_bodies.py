"""Bodies of conjugate gradients: iterations on one right-hand side, which `cg.Driver` runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple, final

import numpy as np

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.execution.host import backend_of
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import MOST_GROWTH, LinearProblem, Vector, natural_norm
from femops.solvers.multigrid import Multigrid
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Watch, read_only
from femops_kernels.compiled import BREAKDOWN, CONVERGED, Directions, Solve, SolveGroup

_DIVERGES = (
    "the multigrid cycle is found not to be positive after {} iterations, so it diverges on a "
    "level: M.report() tells which; use {}femops.jacobi(A)"
)
M_NOT_POSITIVE = (
    "after {} iterations M is found not to be positive definite, and cg needs that: make it of a "
    "positive definite operator, or use femops.gmres, which takes any M"
)
_NOT_POSITIVE = "after {} iterations the operator is found not to be positive definite: {}"
_ADVICE = "are boundary conditions missing{}? femops.minres takes indefinite operators"
ADVICE = _ADVICE.format(", or is a coefficient negative")
_SOLVABLE = "Round-off ends it: give a first guess nearer to one or none, another M, or hold a dof."
# Times the machine's precision and |b|: residuals below this are round-off.
_ROUND_OFF = 1e4
_FIRST_BURST = 16  # iterations
_BURST_SECONDS = 0.1


class End(NamedTuple):
    """Iterate with which a body has ended, and its report."""

    x: Vector  # (size,)
    iterations: int
    residual: float  # norm of the recursion's residual
    reached: bool  # whether the recursion has come to the tolerance
    merged: bool = False


class Body(ABC):
    """Iterations of conjugate gradients with one operator and preconditioner."""

    @abstractmethod
    def run(self, problem: LinearProblem, goal: float, watch: Watch) -> End:
        """Iterate until the recursion's residual is at most ``goal``. Collective."""


@final
class CompiledLoop(Body):
    """Operator, Jacobi's preconditioner or none, and updates of vectors in one compiled loop."""

    solve: Solve | None = None  # None until the first right-hand side

    def __init__(
        self,
        A: Operator,
        M: Jacobi | None,
        sums: Sums,
        *,
        merged: bool | None,
        natural: bool,
        burst: int | None,
    ) -> None:
        self._A, self._sums, self._natural, self._inverse = A, sums, natural, None
        self._burst = burst  # iterations of a burst; None for the number that takes 0.1 s
        if M is not None:
            self._inverse = A.space.memory.xp.ascontiguousarray(M.inverse, dtype=A.dtype)
        possible = sums.all(A.compiled.mergeable(A.space.size, many=sums.many))
        if merged and not possible:
            raise SolverError(
                f"merged = True, but {A!r} is not one sweep over all elements, or its mesh is "
                "reproducible, or ranks have a GPU each: leave merged out"
            )
        self._merge = possible if merged is None else merged

    def begin(self, problem: LinearProblem) -> Solve:
        """Begin the compiled solve of a problem. Collective."""
        right, guess = problem.right, None if problem.from_zero else problem.guess
        if self.solve is None:
            given = right, guess, self._inverse, self._merge, self._sums
            self.solve = self._A.compiled.conjugate_gradients(*given, self._natural)
        else:
            self.solve.restart(right, guess)
        return self.solve

    def run(self, problem: LinearProblem, goal: float, watch: Watch) -> End:
        """See `Body.run`. Between bursts of iterations Python can act on a keyboard interrupt."""
        solve, limit, space = self.begin(problem), problem.limit, self._A.space
        burst = 1 if watch.each else solve.every or self._burst or _FIRST_BURST
        timed = not (watch.each or solve.every or self._burst)
        # without a guess the first residual is b, whose norm is known
        known = problem.from_zero and limit and watch.idle and not self._natural
        steps, most = (burst, MOST_GROWTH * problem.norm) if known else (0, math.inf)
        while True:
            begin = perf_counter()
            solve.advance(goal, limit, steps, show=watch.shows)
            # residuals of a reused loop are not bounded after a first guess, which may be close
            if not steps and (problem.from_zero or self._burst is None):
                most = MOST_GROWTH * solve.residual
            if not steps or solve.status != BREAKDOWN:
                watch.tell(solve.iterations, solve.residual, lambda: read_only(space, solve.x))
            if solve.status or solve.iterations >= limit or not solve.residual <= most:
                return self.end(problem)
            if steps and timed:
                pace = _BURST_SECONDS / max(perf_counter() - begin, 1e-9)
                # ranks that end a burst at different iterations would wait for each other
                burst = space.comm.max(max(1, int(burst * min(pace, 4.0))))
            steps = burst

    @property
    def begun(self) -> Solve:
        """The compiled solve, which has begun."""
        assert self.solve is not None
        return self.solve

    def end(self, problem: LinearProblem) -> End:
        """Return how the solve ended. Raise if A is not positive definite. Collective."""
        solve, A = self.begun, self._A
        if not math.isfinite(solve.residual) or solve.status == BREAKDOWN:
            b = problem.right
            size = natural_norm(problem.M, b, self._sums) if self._natural else problem.norm
            least = least_change(A, size)
            if not solve.residual <= least:
                raise SolverError(self._indefinite(solve, least))
        x, reached = backend_of(A.space).placed(solve.x.copy()), solve.status == CONVERGED
        return End(x, solve.iterations, solve.residual, reached, solve.merged)

    def _indefinite(self, solve: Solve, least: float) -> str:
        """Return the message for an operator that is not positive definite. Collective."""
        A = self._A
        r = solve.right - A.apply(solve.x)
        energy = abs(self._sums.dot(r, A.apply(r)))  # not a number after overflow
        if not (math.isfinite(solve.residual) and energy < float(np.finfo(A.dtype).max)):
            return (
                "squares of the residual overflow, or its energy does: give a first guess nearer "
                "to the solution or none, or make A in float64, or scale it"
            )
        return (
            f"after {solve.iterations} iterations the operator (or preconditioner) is found not to "
            f"be positive definite: {_singular(A, solve.right, least) or ADVICE}"
        )


def group_of(loops: Sequence[CompiledLoop | None]) -> SolveGroup | None:
    """Group of the solves of all loops. None unless all have begun and can run at once."""
    solves = [loop.solve for loop in loops if loop is not None and loop.solve is not None]
    return solves[0].group(solves[1:]) if 0 < len(solves) == len(loops) else None


def least_change(A: Operator, norm: float) -> float:
    """Bound of the round-off in a product with A whose result has the norm ``norm``."""
    return float(_ROUND_OFF * np.finfo(A.dtype).eps * norm)


class _Flexible(Body):
    """Flexible conjugate gradients (Notay, 2000).

    A multigrid cycle in float32 is symmetric only up to round-off. The same holds for many other
    preconditioners. The formula of Polak and Ribiere keeps the directions conjugate nevertheless.
    """

    def run(self, problem: LinearProblem, goal: float, watch: Watch) -> End:
        A, right = problem.A, problem.right
        # no page of zeros is in memory until it is written
        begin = A.space.memory.xp.zeros(right.shape, right.dtype)
        x = backend_of(A.space).placed(begin if problem.from_zero else problem.guess.copy())
        count, size = self._iterate(problem, goal, watch, x)
        return End(x, count, size, size <= problem.tolerance)

    @abstractmethod
    def _iterate(
        self, problem: LinearProblem, goal: float, watch: Watch, x: Vector
    ) -> tuple[int, float]:
        """Improve x. Return the iterations, and the norm of the last residual. Collective."""


@final
class ByProducts(_Flexible):
    """Iterations in Python, with any preconditioner's products; ``natural`` as in `CGSolver`."""

    def __init__(self, natural: bool) -> None:
        self._natural = natural

    def _iterate(
        self, problem: LinearProblem, goal: float, watch: Watch, x: Vector
    ) -> tuple[int, float]:
        A, sums, view = problem.A, problem.sums, read_only(problem.A.space, x)
        r = problem.right.copy() if problem.from_zero else problem.right - A.apply(x)
        precondition, xp = problem.preconditioner(), A.space.memory.xp
        p, product = xp.zeros_like(x), xp.zeros_like(x)
        count, rho, alpha, most = 0, 0.0, 0.0, math.inf
        while True:
            norm = size = sums.norm(r)
            most = most if count else MOST_GROWTH * norm
            if norm and (self._natural or (norm > goal and count < problem.limit)):
                z = precondition(r / norm)  # norm 1 is in range of every library
                own, change = norm * sums.dot(r, z), norm * sums.dot(product, z)
                if not 0.0 < own < math.inf:
                    raise SolverError(M_NOT_POSITIVE.format(count))
                size = math.sqrt(own) if self._natural else norm
            watch.tell(count, size, lambda: view)
            if not size > goal or count == problem.limit or norm > most:
                return count, size
            p *= -alpha * change / rho if count else 0.0
            p += norm * z
            rho = own
            A.apply(p, product)
            curvature = sums.dot(p, product)
            if not curvature > 0.0:
                raise not_positive(problem, count)
            alpha = rho / curvature
            x += alpha * p
            r -= alpha * product
            count += 1


@final
class WithCycles(_Flexible):
    """Iterations in kernels of their own, with multigrid cycles."""

    def __init__(self, M: Multigrid) -> None:
        self._M = M

    def run(self, problem: LinearProblem, goal: float, watch: Watch) -> End:
        kind, M = problem.A.dtype, self._M
        if M.right.dtype.itemsize > kind.itemsize:
            raise SolverError(
                f"M works in {M.right.dtype}, A in {kind}: make it of A, as femops.multigrid(A)"
            )
        run = super().run
        return M.alone(lambda: run(problem, goal, watch))

    def _iterate(
        self, problem: LinearProblem, goal: float, watch: Watch, x: Vector
    ) -> tuple[int, float]:
        A, M, sums, view = problem.A, self._M, problem.sums, read_only(problem.A.space, x)
        r = problem.right.copy() if problem.from_zero else problem.right - A.apply(x)
        xp, updates = A.space.memory.xp, backend_of(A.space).updates
        p, product = xp.zeros(x.shape, x.dtype), xp.zeros(x.shape, x.dtype)
        vectors = x, r, p, product, M.right
        directions = updates.directions(sums.edges, sums, r.dtype, M.right.dtype)
        plain = updates.directions(sums.edges, sums, r.dtype, r.dtype)
        scale = math.sqrt(plain.inner(r, r))
        norm = directions.move(vectors, 0.0, 1.0 / scale if scale else 0.0) ** 0.5
        if problem.from_zero and norm > goal:
            norm = _start(problem, M, vectors, directions, norm)
        count, rho, alpha, most = 0, 0.0, 0.0, MOST_GROWTH * norm
        watch.tell(0, norm, lambda: view)
        while goal < norm <= most and count < problem.limit:
            z = M.cycle()
            change, own = directions.inners(product, r, z)
            beta = -alpha * scale * change / rho if count else 0.0
            rho = scale * own
            if not 0.0 < rho < math.inf:
                raise _diverging(problem, M, count)
            directions.turn(p, z, beta, scale)
            A.apply(p, product)
            curvature = plain.inner(p, product)
            if not curvature > 0.0:
                raise not_positive(problem, count)
            # M gets the next residual divided by the norm of this one, which is known already
            alpha, scale = rho / curvature, norm
            norm = directions.move(vectors, alpha, 1.0 / scale) ** 0.5
            count += 1
            watch.tell(count, norm, lambda: view)
        return count, norm


def _start(
    problem: LinearProblem,
    M: Multigrid,
    vectors: tuple[Vector, ...],
    directions: Directions,
    before: float,
) -> float:
    """Set x to the result of full multigrid if this reduces the residual. Return its norm.

    Shapes: `vectors` (x, r, p, product, right).
    """
    x, r, _, product, _ = vectors  # no direction yet: p is zero
    found = M.full_cycle()
    if found is None:
        return before
    directions.turn(x, found, 0.0, before)
    problem.A.apply(x, product)
    norm = math.sqrt(directions.move(vectors, 1.0, 1.0 / before))
    if norm < before:
        return norm
    x[:] = product[:] = 0.0
    r[:] = problem.right
    return math.sqrt(directions.move(vectors, 0.0, 1.0 / before))


def _singular(A: Operator, b: Vector, tolerance: float) -> str:
    return singular_cause(A, b, tolerance, advice=_SOLVABLE)


def not_positive(problem: LinearProblem, count: int) -> SolverError:
    """Return the error for an operator that is not positive definite. Collective."""
    cause = _singular(problem.A, problem.right, problem.tolerance)
    return SolverError(_NOT_POSITIVE.format(count, cause or _ADVICE.format("")))


def _diverging(problem: LinearProblem, M: Multigrid, count: int) -> SolverError:
    """Return the error for a cycle that is not positive. Collective.

    On a singular operator a cycle yields zero for the rest of a load that has no solution.
    """
    cause = _singular(problem.A, problem.right, problem.tolerance)
    if cause:
        return SolverError(_NOT_POSITIVE.format(count, cause))
    higher = f"a higher degree, as {M.higher}, or " if M.higher else ""
    return SolverError(_DIVERGES.format(count, higher))
