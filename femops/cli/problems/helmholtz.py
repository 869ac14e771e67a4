"""The Helmholtz equation, -div grad u - k^2 u = f."""

from __future__ import annotations

from typing import final

import numpy as np

import femops
from femops.cli.problems.base import Problem, Vector
from femops.cli.problems.krylov import solution
from femops.cli.problems.manufactured import AnyMesh, Field, Floats, bounding_box

ACROSS = 8.0
"""Default wave number times the longest side: no resonance of a box, disc or ball."""


@final
class Helmholtz(Problem):
    """Helmholtz problem, solved by MINRES with a preconditioner for -div grad u + k^2 u."""

    title = "Helmholtz problem"
    needs_boundary = False

    def __init__(self, mesh: AnyMesh, order: int, level: str, k: float | None = None) -> None:
        super().__init__(mesh, order, level)
        lower, upper = bounding_box(mesh)
        self.k = ACROSS / float((upper - lower).max()) if k is None else k
        self.space = V = femops.H1(mesh, order)
        self.field = Field.scalar(self.waves)
        self.field.check_periodic(V)
        self.operator = femops.helmholtz(V, self.k, level=level).constrained(V.boundary_dofs())

    def prepare(self) -> None:
        """Make the preconditioner, and compile the product with the operator."""
        definite = femops.diffusion(self.space) + femops.mass(self.space, self.k**2)
        constrained = definite.constrained(self.operator.constrained_dofs)
        self.M = self.preconditioned(constrained, "float64")
        self.operator.apply(self.space.zeros())

    def source(self, x: Floats) -> Floats:
        """Source -div grad u - k^2 u of the exact solution: (dim, n) -> (n,)."""
        return np.asarray(self.field.minus_laplacian(x) - self.k**2 * self.field.exact(x))

    def right_hand_side(self) -> Vector:
        """Load and boundary values, (size,)."""
        V = self.space
        return self.operator.rhs(femops.load(V, self.source), V.interpolate(self.field.exact))

    def solve(self, b: Vector, rtol: float) -> tuple[Vector, int]:
        """Solve. Return the solution (size,) and the number of iterations."""
        return solution(femops.minres, self.operator, b, rtol, M=self.M, progress=self.progress)

    def parameters(self) -> dict[str, float]:
        """The wave number."""
        return {"k": self.k}
