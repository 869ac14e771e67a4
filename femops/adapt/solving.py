"""Linear solves of the loop and of adjoint equations, with the preconditioner that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from femops.errors import FemopsError, SolverError
from femops.operators import Operator
from femops.solvers.jacobi import jacobi
from femops.solvers.linear_problem import Info
from femops.solvers.multigrid import multigrid
from femops.solvers.newton_steps import Linear, NewtonSteps
from femops.spaces.product import Product

Vector = NDArray[np.float64]
Preconditioning = Literal["auto", "jacobi", "multigrid", "direct"] | Callable[[Operator], Any]


def multigrid_or_jacobi(A: Operator) -> Any:
    """Multigrid if the operator has it, else the diagonal."""
    if A.symmetric and not isinstance(A.space, Product) and A.space.continuous:
        try:
            return multigrid(A)
        except FemopsError:  # not positive, or a form without levels
            pass
    return jacobi(A)


def preconditioning(given: Preconditioning) -> Any:
    """The preconditioner's name or function as `femops.newton` takes it."""
    return multigrid_or_jacobi if given == "auto" else given


def solved(
    A: Operator, b: Vector, linear: Linear, given: Preconditioning, rtol: float
) -> tuple[Vector, Info | None]:
    """Solution of A x = b and the solver's report, or none of a user's function. Raise if not."""
    how: Any = "jacobi" if callable(linear) else preconditioning(given)
    steps = NewtonSteps(linear, how, history=False)
    x, failure = steps.solve(A, b, rtol)
    info = steps.infos[-1] if steps.infos else None
    if info is not None and not info.converged:
        failure = f"the residual is {info.residual:.3g} after {info.iterations} iterations"
    if failure:
        raise SolverError(
            f"{A!r} is not solved, {failure}: give linear=, a function (A, b, rtol) -> x, or "
            "preconditioner="
        )
    return x, info
