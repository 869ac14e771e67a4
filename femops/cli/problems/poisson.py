"""Poisson's equation, -div grad u = f."""

from __future__ import annotations

from typing import final

import numpy as np

import femops
from femops.cli.problems.base import Problem, Vector
from femops.cli.problems.krylov import total
from femops.cli.problems.manufactured import AnyMesh, Field


@final
class Poisson(Problem):
    """Poisson problem, solved by conjugate gradients. Without a boundary the mean is zero."""

    title = "Poisson problem"
    needs_boundary = False

    def __init__(self, mesh: AnyMesh, order: int, level: str) -> None:
        super().__init__(mesh, order, level)
        self.space = V = femops.H1(mesh, order)
        self.field = Field.scalar(self.waves)
        self.field.check_periodic(V)
        self.operator = femops.diffusion(V, level=level)
        if not self.closed:
            self.operator = self.operator.constrained(V.boundary_dofs())

    def right_hand_side(self) -> Vector:
        """Load and boundary values, (size,)."""
        b = femops.load(self.space, self.field.minus_laplacian)
        if self.closed:
            # A takes constants to zero: a solution exists only if b is orthogonal to them
            return np.asarray(b - total(self.space, b) / self.space.global_size)
        return self.operator.rhs(b, self.space.interpolate(self.field.exact))

    def solve(self, b: Vector, rtol: float) -> tuple[Vector, int]:
        """Solve. Return the solution (size,) and the number of iterations."""
        u, iterations = super().solve(b, rtol)
        if self.closed:
            u -= femops.integrate(self.space, u) / femops.integrate(self.space, 1.0)
        return u, iterations
