"""Solves for many right-hand sides, the columns of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from femops.errors import SolverError, VectorError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.parallel.collective_checks import check, check_same
from femops.solvers.complex_systems import RealSystem, pairs_of
from femops.solvers.convergence import warn_of
from femops.solvers.linear_problem import Info, LinearProblem, Solver

Column = tuple[Any, Any]
"""Right-hand side (size,), and first guess (size,) or None."""
Found = tuple[NDArray[Any], Info, int]
"""Solutions (size,) or (size, k), their report, and the number of the column it belongs to."""
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


def joined(A: Operator | ComplexOperator, found: Sequence[Found]) -> tuple[NDArray[Any], Info, int]:
    """Join solutions to X (size, nvec), with the report and number of the worst column."""
    worst = max(
        found, key=lambda f: (not f[1].converged, f[1].residual / (f[1].tolerance or _TINY))
    )
    parts = tuple(x if x.ndim == 2 else x[:, None] for x, *_ in found)
    X = A.space.memory.xp.concatenate(parts, axis=1)
    return X, replace(worst[1], iterations=max(info.iterations for _, info, _ in found)), worst[2]


def one_by_one(
    name: Solver,
    solve: Callable[..., tuple[NDArray[Any], Info]],
    A: Operator | ComplexOperator,
    B: Any,
    X0: Any,
    options: dict[str, Any],
    *,
    callback: Any,
    warn: bool,
    **others: Any,
) -> tuple[NDArray[Any], Info]:
    """Solve for the columns of B one after the other, and warn of the worst. Collective.

    ``options`` are those of `LinearProblem.checked`, ``others`` further ones of the solver.
    """
    if callback is not None:
        raise SolverError("b has many columns: leave out callback")
    check_same(A.space.comm, f"a solve by {name}", {"warn": warn}, error=SolverError)
    columns = columns_of(A, B, X0, f"a solve by {name}")
    found = [
        (*solve(A, b, x0, **options, **others, warn=False), j) for j, (b, x0) in enumerate(columns)
    ]
    X, info, worst = joined(A, found)
    if warn:
        warn_of_column(name, A, columns[worst], options, *found[worst][:2])
    return X, info


def warn_of_column(
    name: Solver,
    A: Operator | ComplexOperator,
    column: Column,
    options: dict[str, Any],
    x: NDArray[Any],
    info: Info,
) -> None:
    """Warn if the solve for a column, or for a field of it, has not converged. Collective."""
    if info.converged and not info.fields:
        return
    M, limits = options["M"], {k: v for k, v in options.items() if k != "M"}
    system = RealSystem.of(name, A, *column, M)
    given = system.A, system.b, system.x0, system.M
    reals = x if system.whole is None else pairs_of(system.whole, x, "x")
    warn_of(name, LinearProblem.checked(name, *given, **limits), M, reals, info)
