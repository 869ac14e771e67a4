"""A user's call of a linear solver, for one right-hand side or for the columns of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, final

from numpy.typing import NDArray

from femops.errors import SolverError, VectorError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.parallel.comm import check, check_same
from femops.solvers.any_preconditioner import named
from femops.solvers.complex_systems import RealSystem, pairs_of
from femops.solvers.convergence import warn_of, warn_of_setup
from femops.solvers.linear_problem import Info, LinearProblem, Solver
from femops.solvers.watch import Callback, Progress, Watch

Column = tuple[Any, Any]
"""Right-hand side (size,), and first guess (size,) or None."""
Found = tuple[NDArray[Any], Info, int]
"""Solutions (size,) or (size, k), their report, and the number of the column it belongs to."""
Method = Callable[[RealSystem, LinearProblem, Watch], tuple[NDArray[Any], Info]]
"""Solves a checked problem (of the real system). Collective."""
_TINY = 1e-300  # replaces tolerances of zero


def many(b: Any) -> bool:
    """True if a user's b has columns."""
    return getattr(b, "ndim", 1) == 2 and not callable(b)  # as operators are


def columns_of(A: Operator | ComplexOperator, B: Any, X0: Any, about: str) -> list[Column]:
    """Return the columns of B (size, nvec) with their first guesses. Collective."""
    with check(A.space.comm):
        B, count = A.space.memory.factor(B, "b"), B.shape[1]
        if not count or (X0 is not None and X0.shape != B.shape):
            given = "no columns" if X0 is None or not count else f"{B.shape}, x0 {X0.shape}"
            raise VectorError(f"b has {given}: give a column, and one of x0, for each problem")
    check_same(A.space.comm, about, {"number of columns": count}, error=SolverError)
    return [(B[:, j], None if X0 is None else X0[:, j]) for j in range(count)]


def joined(
    A: Operator | ComplexOperator, found: Sequence[Found]
) -> tuple[NDArray[Any], Info, Found]:
    """Return all solutions as X (size, nvec), a report for all of them, and the worst one."""
    worst = max(
        found, key=lambda f: (not f[1].converged, f[1].residual / (f[1].tolerance or _TINY))
    )
    parts = tuple(x if x.ndim == 2 else x[:, None] for x, *_ in found)
    X = A.space.memory.xp.concatenate(parts, axis=1)
    return X, replace(worst[1], iterations=max(info.iterations for _, info, _ in found)), worst


@final
@dataclass(frozen=True)
class Call:
    """A user's call of a linear solver: all but right-hand sides and first guesses."""

    solver: Solver
    A: Operator | ComplexOperator
    M: Any
    limits: tuple[float, float, int | None]  # rtol, atol and maxiter
    reports: tuple[bool, Progress | None, Callback | None]  # history, progress and callback
    warn: bool
    method: Method
    others: dict[str, Any] = field(default_factory=dict)  # the same on all ranks
    advice: str = ""  # for solves that have not converged; by default `cause_of` gives it

    def __post_init__(self) -> None:
        """Make a preconditioner that the user named. Collective."""
        own = named(self.M, self.A, positive=self.solver != "gmres")
        object.__setattr__(self, "M", own)

    def solve(self, b: Any, x0: Any) -> tuple[NDArray[Any], Info]:
        """Solve for b, or for its columns one after the other. Collective."""
        return self.columns(b, x0) if many(b) else self.one(b, x0)

    def one(self, b: Any, x0: Any) -> tuple[NDArray[Any], Info]:
        """Solve for one right-hand side. Collective."""
        system = RealSystem.of(self.solver, self.A, b, x0, self.M, self.reports[2])
        if self.warn:
            warn_of_setup(self.A, self.M)
        problem = self.problem(system)
        x, info = self.method(system, problem, self.watch(problem, system))
        if self.warn:
            warn_of(self.solver, problem, self.M, x, info, self.advice)
        return system.solution(problem.held.put_into(x)), info

    def problem(self, system: RealSystem) -> LinearProblem:
        """Check a real system. Collective."""
        watched = self.reports[1:] != (None, None)
        given = system.A, system.b, system.x0, system.M, *self.limits, watched
        return LinearProblem.checked(self.solver, *given, **self.others, warn=self.warn)

    def watch(self, problem: LinearProblem, system: RealSystem) -> Watch:
        """Check the functions that the user gave. Collective."""
        history, progress, _ = self.reports
        shown, space = problem.shown(system.callback), problem.A.space
        return Watch(history, progress, shown, space.comm, arrays=space.memory.xp)

    def columns(
        self,
        B: Any,
        X0: Any,
        most: int = 1,
        together: Callable[[Call, Sequence[Column]], Found] | None = None,
    ) -> tuple[NDArray[Any], Info]:
        """Solve for the columns of B, in groups of up to ``most`` columns. Collective.

        ``together`` solves a group. It returns the number, in the group, of the column to which its
        report belongs.
        """
        if self.reports[2] is not None:
            raise SolverError("b has many columns: leave out callback")
        A, quiet, about = self.A, replace(self, warn=False), f"a solve by {self.solver}"
        check_same(A.space.comm, about, {"warn": self.warn}, error=SolverError)
        columns = columns_of(A, B, X0, about)
        parts = -(-len(columns) // most)  # of equal size: a part of one column would waste time
        edges = [k * len(columns) // parts for k in range(parts + 1)]
        found = list[Found]()
        for first, last in pairwise(edges):
            some = columns[first:last]
            x, info, number = together(quiet, some) if together else (*quiet.one(*some[0]), 0)
            found.append((x, info, first + number))
        X, info, worst = joined(A, found)
        if self.warn and not (info.converged and not info.fields):
            _, own, number = worst
            system = RealSystem.of(self.solver, A, *columns[number], self.M)
            x = X[:, number] if system.whole is None else pairs_of(system.whole, X[:, number], "x")
            # checked again: the problems of all columns would take as much memory as B
            warn_of(self.solver, quiet.problem(system), self.M, x, own)
        return X, info
