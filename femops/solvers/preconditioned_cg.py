"""Conjugate gradients with a preconditioner that is an iteration of its own."""

from __future__ import annotations

import math

from femops.errors import SolverError
from femops.operators.execution.choice import backend_of
from femops.solvers.linear_problem import Info, LinearProblem, Vector
from femops.solvers.multigrid import Multigrid
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Watch
from femops_kernels.relaxation import Directions

_DIVERGES = (
    "the multigrid cycle is found not to be positive after {} iterations, so it diverges on a "
    "level: M.report() tells which; use {}femops.jacobi(A)"
)

_NOT_POSITIVE = "after {} iterations the operator is found not to be positive definite: {}"
_ADVICE = "are boundary conditions missing? femops.minres takes indefinite operators"


def solve(problem: LinearProblem, M: Multigrid, watch: Watch, goal: float) -> tuple[Vector, Info]:
    """Solve A x = b by the flexible method (Notay, 2000). Collective.

    A cycle in float32 is symmetric to its round-off only; the factor of Polak and Ribiere keeps
    directions conjugate nevertheless.

    Parameters
    ----------
    problem : LinearProblem
    M : Multigrid
    watch : Watch
    goal : float
        Norm of the residual at which the recursion ends; the tolerance, if that can be had.

    Raises
    ------
    SolverError
        A or M is found not to be positive, M has more digits than A, or a callback uses M.
    """
    A, sums = problem.A, problem.sums
    if M.right.dtype.itemsize > A.dtype.itemsize:
        raise SolverError(
            f"M works in {M.right.dtype}, A in {A.dtype}: make it of A, as femops.multigrid(A)"
        )
    x = backend_of(A.space).placed(problem.guess.copy())
    with M.alone():
        count, norm, spare = _iterate(problem, M, watch, goal, x)
    difference = A.apply(x, spare)
    difference -= problem.right
    residual = sums.norm(difference)
    converged = norm <= problem.tolerance and residual <= 10.0 * problem.tolerance
    info = Info(converged, count, residual, problem.tolerance, residuals=tuple(watch.norms))
    return x, info


def _iterate(
    problem: LinearProblem, M: Multigrid, watch: Watch, goal: float, x: Vector
) -> tuple[int, float, Vector]:
    """Improve x; iterations, the norm of the residual as the recursion has it, a spare vector."""
    A, sums, view = problem.A, problem.sums, x.view()
    A.space.memory.protect(view)
    r = problem.right.copy() if problem.from_zero else problem.right - A.apply(x)
    xp, updates = A.space.memory.xp, backend_of(A.space).updates
    p = xp.zeros_like(x)
    product = xp.zeros_like(x)
    vectors = x, r, p, product, M.right
    directions = updates.directions(sums.edges, sums, r.dtype, M.right.dtype)
    plain = updates.directions(sums.edges, sums, r.dtype, r.dtype)
    scale = math.sqrt(plain.inner(r, r))
    norm = directions.move(vectors, 0.0, 1.0 / scale if scale else 0.0) ** 0.5
    if problem.from_zero and norm > goal:
        norm = _start(problem, M, vectors, directions, norm)
    count, rho, alpha = 0, 0.0, 0.0
    watch.tell(0, norm, lambda: view)
    while norm > goal and count < problem.limit:
        z = M.cycle()
        change, own = directions.inners(product, r, z)
        beta = -alpha * scale * change / rho if count else 0.0
        rho = scale * own
        if not 0.0 < rho < math.inf:
            higher = f"a higher degree, as {M.higher}, or " if M.higher else ""
            raise SolverError(_DIVERGES.format(count, higher))
        directions.turn(p, z, beta, scale)
        A.apply(p, product)
        curvature = plain.inner(p, product)
        if not curvature > 0.0:
            cause = singular_cause(A, problem.right, problem.tolerance)
            raise SolverError(_NOT_POSITIVE.format(count, cause or _ADVICE))
        # the next residual is scaled by what this one is: of that size, and known already
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
    """Let x be what full multigrid finds, if the residual is smaller; its norm.

    Parameters
    ----------
    problem, M
        See `solve`; `M.right` is the right-hand side divided by its norm.
    vectors : (x, r, p, product, right)
    directions : Directions
    before : float
        Norm of the right-hand side.
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
