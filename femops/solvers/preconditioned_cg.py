"""Conjugate gradients with any preconditioner. With multigrid, kernels update the vectors."""

from __future__ import annotations

import math

from femops.errors import SolverError
from femops.operators.execution.choice import backend_of
from femops.solvers.linear_problem import MOST_GROWTH, Info, LinearProblem, Vector
from femops.solvers.multigrid import Multigrid
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Watch
from femops_kernels.vector_updates import Directions

_DIVERGES = (
    "the multigrid cycle is found not to be positive after {} iterations, so it diverges on a "
    "level: M.report() tells which; use {}femops.jacobi(A)"
)

M_NOT_POSITIVE = (
    "after {} iterations M is found not to be positive definite, and cg needs that: make it of a "
    "positive definite operator, or use femops.gmres, which takes any M"
)
_NOT_POSITIVE = "after {} iterations the operator is found not to be positive definite: {}"
_ADVICE = "are boundary conditions missing? femops.minres takes indefinite operators"


def solve(
    problem: LinearProblem, watch: Watch, goal: float, *, natural: bool = False
) -> tuple[Vector, Info]:
    """Solve A x = b by flexible conjugate gradients (Notay, 2000). Collective.

    A multigrid cycle in float32 is symmetric only up to round-off. The same holds for many other
    preconditioners. The formula of Polak and Ribiere keeps the directions conjugate nevertheless.
    """
    A, M, sums, right = problem.A, problem.M, problem.sums, problem.right
    # no page of zeros is in memory until it is written
    begin = A.space.memory.xp.zeros(right.shape, right.dtype)
    x = backend_of(A.space).placed(begin if problem.from_zero else problem.guess.copy())
    if isinstance(M, Multigrid) and not natural:
        if M.right.dtype.itemsize > A.dtype.itemsize:
            raise SolverError(
                f"M works in {M.right.dtype}, A in {A.dtype}: make it of A, as femops.multigrid(A)"
            )
        count, size, spare = M.alone(lambda: _iterate(problem, M, watch, goal, x))
    else:
        count, size, spare = _iterate_any(problem, watch, goal, x, natural)
    difference = A.apply(x, spare)
    difference -= problem.right
    residual = sums.norm(difference)
    if natural:
        residual = size
    converged = size <= problem.tolerance and residual <= 10.0 * problem.tolerance
    fields = sums.of_fields(difference, right)
    reports = False, tuple(watch.norms), fields
    return x, Info(converged, count, residual, problem.tolerance, *reports)


def _iterate_any(
    problem: LinearProblem, watch: Watch, goal: float, x: Vector, natural: bool
) -> tuple[int, float, Vector]:
    """Improve x with any preconditioner. Return the same values as `_iterate`."""
    A, sums, view = problem.A, problem.sums, x.view()
    A.space.memory.protect(view)
    r = problem.right.copy() if problem.from_zero else problem.right - A.apply(x)
    precondition, xp = problem.preconditioner(), A.space.memory.xp
    p, product = xp.zeros_like(x), xp.zeros_like(x)
    count, rho, alpha, most = 0, 0.0, 0.0, math.inf
    while True:
        norm = size = sums.norm(r)
        most = most if count else MOST_GROWTH * norm
        if norm and (natural or (norm > goal and count < problem.limit)):
            z = precondition(r / norm)  # norm 1 is in range of every library
            own, change = norm * sums.dot(r, z), norm * sums.dot(product, z)
            if not 0.0 < own < math.inf:
                raise SolverError(M_NOT_POSITIVE.format(count))
            size = math.sqrt(own) if natural else norm
        watch.tell(count, size, lambda: view)
        if not size > goal or count == problem.limit or norm > most:
            return count, size, product
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


def not_positive(problem: LinearProblem, count: int) -> SolverError:
    """Return the error for an operator that is not positive definite. Collective."""
    cause = singular_cause(problem.A, problem.right, problem.tolerance)
    return SolverError(_NOT_POSITIVE.format(count, cause or _ADVICE))


def _diverging(problem: LinearProblem, M: Multigrid, count: int) -> SolverError:
    """Return the error for a cycle that is not positive. Collective.

    On a singular operator a cycle yields zero for the rest of a load that has no solution.
    """
    cause = singular_cause(problem.A, problem.right, problem.tolerance)
    if cause:
        return SolverError(_NOT_POSITIVE.format(count, cause))
    higher = f"a higher degree, as {M.higher}, or " if M.higher else ""
    return SolverError(_DIVERGES.format(count, higher))


def _iterate(
    problem: LinearProblem, M: Multigrid, watch: Watch, goal: float, x: Vector
) -> tuple[int, float, Vector]:
    """Improve x. Return the iterations, the norm of the recursion's residual, and spare memory."""
    A, sums, view = problem.A, problem.sums, x.view()
    A.space.memory.protect(view)
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
    return count, norm, product


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
