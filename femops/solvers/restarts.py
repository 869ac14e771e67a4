"""Solve loop of GMRES and MINRES: rounds, each of which starts from the residual b - A x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from femops.operators.execution.host import backend_of
from femops.solvers.linear_problem import Info, LinearProblem, Vector
from femops.solvers.watch import Watch, read_only

Seen = Callable[[float, Callable[[], Vector]], Any]
"""Called after each iteration with the residual's norm, and a function for the update so far."""
Round = Callable[[Vector, float, int, Seen | None], tuple[Vector, int]]
"""Takes a residual, its norm, the maximum number of iterations, and a callback for each iteration.
Returns the update of x, and the number of iterations."""


def solve_in_rounds(
    problem: LinearProblem,
    one_round: Round,
    watch: Watch,
    *,
    progress: float = 1.0,
) -> tuple[Vector, Info]:
    """Solve A x = b, round by round. Collective."""
    A, sums, goal = problem.A, problem.sums, problem.tolerance
    x, residual, spent = problem.guess.copy(), problem.right, 0
    if A.space.comm.max(int(bool(x.any()))):
        residual = residual - A.apply(x)
    norm, before, told = sums.norm(residual), np.inf, 0

    def seen(norm: float, update: Callable[[], Vector]) -> None:
        nonlocal told
        told += 1
        watch.tell(told, norm, lambda: read_only(A.space, x + update()))

    watch.tell(told, norm, lambda: read_only(A.space, x))
    while goal < norm < progress * before and spent < problem.limit:
        update, count = one_round(
            residual, norm, problem.limit - spent, None if watch.idle else seen
        )
        candidate = x + update
        residual, spent, before = problem.right - A.apply(candidate), spent + count, norm
        reached = sums.norm(residual)
        if not reached <= norm:  # round-off, where A is singular and there is no solution
            residual = problem.right - A.apply(x)
            break
        x, norm = candidate, reached
    fields = sums.of_fields(residual, problem.right)
    info = Info(norm <= goal, spent, norm, goal, residuals=tuple(watch.norms), fields=fields)
    return backend_of(A.space).placed(x), info
