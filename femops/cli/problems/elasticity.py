"""Linear elasticity."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, final

import numpy as np

import femops
from femops.cli.problems.base import Problem, Vector
from femops.cli.problems.manufactured import AnyMesh, Field, Floats


class Solid(Problem, ABC):
    """Elastic solid. The exact displacement is a product of waves in each component."""

    least_dim = 2
    size_of_gradient: ClassVar[float] = 1.0  # bound on its entries for the exact displacement

    def __init__(self, mesh: AnyMesh, order: int, level: str, lam: float, mu: float) -> None:
        super().__init__(mesh, order, level)
        self.lam, self.mu = lam, mu
        self.space = femops.H1(mesh, order, ncomp=mesh.dim)
        self.field = Field.vector(self.waves, self.size_of_gradient / float(self.waves.wave.max()))
        self.field.check_periodic(self.space)

    def parameters(self) -> dict[str, float]:
        """Lame's parameters."""
        return {"lam": self.lam, "mu": self.mu}


@final
class Elasticity(Solid):
    """Linear elasticity, solved by conjugate gradients. The exact stress gives the load."""

    title = "elasticity problem"

    def __init__(self, mesh: AnyMesh, order: int, level: str, lam: float, mu: float) -> None:
        super().__init__(mesh, order, level, lam, mu)
        A, ends = femops.elasticity(self.space, lam, mu, level=level), self.space.boundary_dofs()
        self.operator = A.constrained(ends)

    def stress(self, x: Floats) -> Floats:
        """Stress (dim, dim, n) of the exact solution at x (dim, n)."""
        gradient = self.field.gradient(x)
        identity = np.eye(len(gradient))[..., np.newaxis]
        spherical = self.lam * np.trace(gradient) * identity
        return np.asarray(spherical + self.mu * (gradient + gradient.swapaxes(0, 1)))

    def right_hand_side(self) -> Vector:
        """Load and boundary values, (size,)."""
        V = self.space
        return self.operator.rhs(femops.load(V, flux=self.stress), V.interpolate(self.field.exact))
