"""Linear solves that raise an error if they do not converge."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

import femops
from femops.errors import SolverError
from femops.solvers.inner_products import Sums
from femops.spaces.base import Space

Vector = NDArray[np.float64]


def solution(
    solver: Callable[..., Any],
    A: femops.Operator,
    b: Vector,
    rtol: float,
    **options: Any,
) -> tuple[Vector, int]:
    """Run a solver of `femops` for b (size,). Return the solution (size,) and the iterations."""
    u, info = solver(A, b, rtol=rtol, warn=False, **options)
    if not info.converged:
        reached = info.residual / Sums(A.space).norm(b)
        raise SolverError(
            f"no convergence to a relative residual of {rtol:g} in {info.iterations} iterations, "
            f"only to {reached:.1e}: {_advice(reached)}"
        )
    return u, info.iterations


def _advice(reached: float) -> str:
    """Advice for a solve that ends with the relative residual ``reached``."""
    if not reached < 0.01:
        return "look at the mesh, or refine it"
    return f"ask for less (--rtol {10.0 ** ceil(log10(2.0 * reached)):g}) or look at the mesh"


def total(space: Space, vector: Vector) -> float:
    """Sum of all entries of a vector (size,). Collective if ranks share the mesh."""
    return Sums(space).dot(vector, np.ones_like(vector))
