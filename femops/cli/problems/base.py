"""Base of the problems of ``femops solve``: from a mesh to a solution and its errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.cli.problems.krylov import solution
from femops.cli.problems.manufactured import AnyMesh, Field, Waves
from femops.errors import MissingExtraError, SpaceError
from femops.geometry.boundary import has_outer
from femops.solvers.watch import Progress

Vector = NDArray[np.float64]


class Problem(ABC):
    """Problem with a known solution, discretised on a mesh. Each solve makes a new object.

    Constructors of subclasses make spaces and operators but do not compile. All methods are
    collective if ranks share the mesh.
    """

    title: ClassVar[str]
    least_dim: ClassVar[int] = 1
    least_order: ClassVar[int] = 1
    needs_boundary: ClassVar[bool] = True

    space: femops.H1  # space of the solution
    field: Field  # exact solution
    # operator on the space, or on all fields, with its essential conditions
    operator: femops.Operator
    M: Any  # preconditioner of the operator, available after `prepare`
    progress: Progress | None = None  # called with the iterations, see `femops.cg`
    preconditioner: str = "multigrid"  # "multigrid" or "jacobi"
    asked = False  # whether the user named the preconditioner

    def __init__(self, mesh: AnyMesh, order: int, level: str) -> None:
        if mesh.dim < self.least_dim:
            raise SpaceError(
                f"the {self.title} needs {self.least_dim} dimensions or more, this mesh has "
                f"{mesh.dim}: take another, or solve poisson or helmholtz on it"
            )
        if order < self.least_order:
            raise SpaceError(
                f"the {self.title} needs order {self.least_order} or more, got {order}: "
                f"give --order {self.least_order}"
            )
        self.closed = not has_outer(mesh)
        if self.needs_boundary and self.closed:
            raise SpaceError(
                f"the {self.title} needs values on a boundary, this mesh has none: take another, "
                "or solve poisson or helmholtz on it"
            )
        self.level = level
        self.waves = Waves.on(mesh)

    def prepare(self) -> None:
        """Compile the kernels of the iteration, or read them from the cache."""
        self.M = self.preconditioned(self.operator)
        femops.cg(self.operator, self.space.zeros(), maxiter=0, M=self.M)

    @abstractmethod
    def right_hand_side(self) -> Vector:
        """Right-hand side (size,): load and boundary values."""

    def solve(self, b: Vector, rtol: float) -> tuple[Vector, int]:
        """Solve for a right-hand side (size,). Return a vector of `space`, and the iterations."""
        return solution(femops.cg, self.operator, b, rtol, M=self.M, progress=self.progress)

    def preconditioned(self, A: femops.Operator, dtype: str | None = None) -> Any:
        """Make the preconditioner of a positive definite operator, and compile its kernels.

        If multigrid lacks a package, Jacobi replaces it, unless the user requested multigrid.
        ``dtype`` is the type of multigrid's cycles. MINRES, unlike `femops.cg`, does not correct
        the round-off of float32.
        """
        if self.preconditioner == "multigrid":
            try:
                M = femops.multigrid(A, dtype=dtype)
            except MissingExtraError:
                if self.asked:
                    raise
                self.preconditioner = "jacobi"
            else:
                M.apply(A.space.interpolate(1.0 if A.space.ncomp == 1 else [1.0] * A.space.ncomp))
                return M
        return femops.jacobi(A)

    @property
    def size(self) -> int:
        """Number of unknowns on all ranks."""
        return self.space.global_size

    def parameters(self) -> dict[str, float]:
        """Parameters of the problem, by name."""
        return {}

    def fields(self, u: Vector) -> dict[str, Any]:
        """Fields to write to files, by name. u (space.size,) is the solution."""
        return {"u": u}

    def more(self) -> dict[str, Any]:
        """Further facts after the solve: errors of other fields, numbers of iterations."""
        return {}


@final
@dataclass(frozen=True)
class Result:
    """Solved problem."""

    problem: Problem
    u: Vector
    iterations: int
    # l2_error and h1_error: norms of u minus the exact solution
    l2_error: float
    h1_error: float
    # wall time from the mesh to u: spaces, operators (with compilation), loads and iteration
    seconds: float
    # compile_seconds and solve_seconds: parts of ``seconds``: the kernels (compiled, or read from
    # the cache), and the iteration
    compile_seconds: float
    solve_seconds: float

    def facts(self) -> dict[str, Any]:
        """Facts to report, by name."""
        return {
            "dofs": self.problem.size,
            "level": self.problem.level,
            "preconditioner": self.problem.preconditioner,
            **self.problem.parameters(),
            "iterations": self.iterations,
            "l2_error": self.l2_error,
            "h1_error": self.h1_error,
            **self.problem.more(),
            "seconds": self.seconds,
        }


def solve(
    make: Callable[[AnyMesh, int, str], Problem],
    mesh: AnyMesh,
    order: int,
    rtol: float,
    level: str = "partial",
    progress: Progress | None = None,
    preconditioner: str | None = None,
) -> Result:
    """Solve a problem with the exact solution's values on the full boundary.

    Collective if ranks share the mesh.
    """
    begin = perf_counter()
    problem = make(mesh, order, level)
    problem.progress, problem.asked = progress, preconditioner is not None
    problem.preconditioner = preconditioner or problem.preconditioner
    built = perf_counter()
    problem.prepare()
    ready = perf_counter()
    b = problem.right_hand_side()
    loaded = perf_counter()
    u, iterations = problem.solve(b, rtol)
    end = perf_counter()
    space, field = problem.space, problem.field
    l2 = femops.l2_error(space, u, field.exact)
    h1 = femops.h1_error(space, u, field.exact, field.gradient)
    return Result(problem, u, iterations, l2, h1, end - begin, ready - built, end - loaded)
