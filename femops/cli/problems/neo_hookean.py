"""Compressible neo-Hookean elasticity."""

from __future__ import annotations

from typing import Any, final

import numpy as np

import femops
from femops.cli.problems.base import Vector
from femops.cli.problems.elasticity import Solid
from femops.cli.problems.krylov import solution
from femops.cli.problems.manufactured import AnyMesh, Floats
from femops.errors import SolverError
from femops.solvers.inner_products import Sums

_GUESS = 1e-6  # relative residual of the linear problem that the first guess solves


@final
class NeoHookean(Solid):
    r"""Neo-Hookean solid, solved by Newton's method from the solution of the linearised problem.

    The load is :math:`\int_\Omega P(F) : \nabla v\, dx` with the exact displacement's stress.
    """

    title = "neo-Hookean problem"
    size_of_gradient = 0.2  # det F stays positive

    def __init__(self, mesh: AnyMesh, order: int, level: str, lam: float, mu: float) -> None:
        super().__init__(mesh, order, level, lam, mu)
        V = self.space
        self.form = femops.neo_hookean(V, lam, mu).constrained(V.boundary_dofs())
        self.operator = self.form.jacobian(V.zeros()).at_level(level)
        self.linear_iterations = 0

    def stress(self, x: Floats) -> Floats:
        """First Piola-Kirchhoff stress (dim, dim, n) of the exact displacement at x (dim, n)."""
        gradient = np.moveaxis(self.field.gradient(x), -1, 0)
        deformation = np.eye(gradient.shape[-1]) + gradient
        turned = np.linalg.inv(deformation).swapaxes(-1, -2)
        log = np.log(np.linalg.det(deformation))[:, np.newaxis, np.newaxis]
        stress = self.mu * (deformation - turned) + self.lam * log * turned
        return np.moveaxis(stress, 0, -1)

    def prepare(self) -> None:
        """Compile residual, Jacobian and iteration."""
        self.form.residual(self.space.zeros())
        super().prepare()

    def right_hand_side(self) -> Vector:
        """Load vector (size,), zero at constrained dofs."""
        b = femops.load(self.space, flux=self.stress)
        b[self.form.constrained_dofs] = 0.0
        return b

    def solve(self, b: Vector, rtol: float) -> tuple[Vector, int]:
        """Solve. Return the solution (size,) and the number of Newton steps."""
        exact = self.space.interpolate(self.field.exact)
        A = self.operator
        guess, first = solution(femops.cg, A, A.rhs(b, exact), _GUESS, M=self.M)
        on_boundary = self.form.constrained_dofs
        guess[on_boundary] = exact[on_boundary]
        goal = rtol * Sums(self.space).norm(b)
        options: dict[str, Any] = {"level": self.level, "progress": self.progress, "warn": False}
        options["preconditioner"] = self.preconditioner
        u, info = femops.newton(self.form, guess, b, rtol=0.0, atol=goal, **options)
        if info.residuals[-1] > goal:  # round-off kept the residual above the goal
            raise SolverError(
                f"Newton's method came from a residual of {info.residuals[0]:.1e} to "
                f"{info.residuals[-1]:.1e}: {info.reason}; ask for less (--rtol 1e-6), or refine"
            )
        self.linear_iterations = first + info.linear_iterations
        return u, info.iterations

    def more(self) -> dict[str, Any]:
        """Number of iterations of the linear problems."""
        return {"linear_iterations": self.linear_iterations}
