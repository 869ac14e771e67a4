"""Stokes flow, -div grad u + grad p = f, div u = 0."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.cli.problems.base import Problem, Vector
from femops.cli.problems.krylov import solution, total
from femops.cli.problems.manufactured import AnyMesh, Field, Floats
from femops.errors import SpaceError
from femops.parallel.mesh import DistributedMesh, ranks_of
from femops_meshes import Mesh


@final
class Stokes(Problem):
    """Stokes problem with Taylor-Hood elements, solved by GMRES on both fields at once.

    Pressures have one degree less than velocities, and the same mean as the exact pressure. The
    preconditioner is block triangular: multigrid or Jacobi of the pressure's mass, then of the
    velocity's diffusion.
    """

    title = "Stokes problem"
    least_dim = 2
    least_order = 2

    def __init__(self, mesh: AnyMesh, order: int, level: str) -> None:
        super().__init__(mesh, order, level)
        _check_stable(mesh)
        self.space = V = femops.H1(mesh, order, ncomp=mesh.dim)
        self.pressures = Q = femops.H1(mesh, order - 1)
        self.field = Field.solenoidal(self.waves)
        self.pressure = Field.scalar(self.waves, shift=2.0)
        self.field.check_periodic(V)
        self.both = W = femops.Product(u=V, p=Q)
        self.operator = femops.form(_stokes, W, level=level).constrained(
            W.positions(u=V.boundary_dofs())
        )
        self.p = Q.zeros()

    def force(self, x: Floats) -> Floats:
        """Force -div grad u + grad p of the exact fields: (dim, n) -> (dim, n)."""
        return np.asarray(self.field.minus_laplacian(x) + self.pressure.gradient(x))

    def right_hand_side(self) -> Vector:
        """Right-hand side (size,): load and boundary values, after removal of the net flux.

        Interpolated boundary values have a small net flux. With a net flux there is no solution.
        """
        W, Q = self.both, self.pressures
        load = W.join(u=femops.load(self.space, self.force))
        b = self.operator.rhs(load, W.interpolate(u=self.field.exact))
        g, ones = W.split(b)[1], femops.load(Q, 1.0)
        g -= ones * (total(Q, g) / total(Q, ones))
        return b

    def prepare(self) -> None:
        """Make the preconditioner, and compile the product with the operator."""
        definite = femops.diffusion(self.space).constrained(self.space.boundary_dofs())
        self.velocities = self.preconditioned(definite)
        self.masses = -self.preconditioned(femops.mass(self.pressures))
        self.operator.apply(self.both.zeros())

    def solve(self, b: Vector, rtol: float) -> tuple[Vector, int]:
        """Solve. Return the velocity (size,) and the iterations. Store the pressure in ``p``."""
        A, Q = self.operator, self.pressures
        M = femops.block_triangular(A, p=self.masses, u=self.velocities)
        z, iterations = solution(femops.gmres, A, b, rtol, M=M, progress=self.progress)
        u, p = self.both.split(z)
        exact = femops.integrate(Q, self.pressure.exact, self.space.order + 3)
        self.p = p - (femops.integrate(Q, p) - exact) / femops.integrate(Q, 1.0)
        return u, iterations

    @property
    def size(self) -> int:
        """Number of unknowns of velocity and pressure, on all ranks."""
        return self.space.global_size + self.pressures.global_size

    def fields(self, u: Vector) -> dict[str, Any]:
        """Velocity and pressure as fields, by name."""
        return {"u": u, "p": femops.GridFunction(self.pressures, self.p)}

    def more(self) -> dict[str, Any]:
        """L2 error of the pressure."""
        return {"pressure_error": femops.l2_error(self.pressures, self.p, self.pressure.exact)}


def _stokes(u: Any, p: Any) -> dict[str, Any]:
    """Integrand of the Stokes form. q tests -div u, so that the form is symmetric."""
    return {"u": {"grad": u.grad - p * np.eye(len(u.grad))}, "p": {"value": -u.div}}


def _check_stable(mesh: AnyMesh) -> None:
    """Raise if divergences do not span all pressures, so that the system is singular. Collective.

    If an element has boundary at both ends of a direction, its velocities are x (1 - x) times
    polynomials of degree k - 2 in this direction. One pressure of degree k - 1 is orthogonal to
    them. With two such directions, the product of two such pressures is orthogonal to all
    divergences. Then the system is singular, or nearly so if elements are curved. Simplices have
    no such directions.
    """
    own = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    count = sum(int((_constrained_directions(part) > 1).sum()) for part in own.parts)
    count = ranks_of(mesh).sum(count)
    if count:
        raise SpaceError(
            f"the mesh is too coarse for the Stokes problem: {count} elements have boundary on "
            "both sides of two directions, which leaves too few free velocities to determine "
            "the pressure; refine it (--refine 1)"
        )


def _constrained_directions(mesh: Mesh) -> NDArray[np.int64]:
    """Number (ne,) of directions in which an element has boundary at both ends."""
    if not mesh.cell.cube:
        return np.zeros(mesh.num_elements, dtype=np.int64)
    topology, middle, steps = mesh.topology, 3**mesh.dim // 2, 3 ** np.arange(mesh.dim)
    element, code = topology.boundary_faces.T
    outside = np.isin(np.arange(len(topology.faces)), topology.entity[element, code])
    low, high = (outside[topology.entity[:, middle + sign * steps]] for sign in (-1, 1))
    return np.asarray((low & high).sum(axis=1))
