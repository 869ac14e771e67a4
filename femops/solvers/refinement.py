"""Iterative refinement: conjugate gradients in float32, residuals and solution in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.execution.choice import backend_of
from femops.solvers.linear_problem import Info, LinearProblem
from femops.solvers.multigrid.precision import SINGLE, in_single
from femops.solvers.watch import Progress

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
    info = Info(norm <= tolerance, spent, norm, tolerance, is_merged, tuple(told) * history)
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
