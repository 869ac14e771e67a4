"""Runs of problems of advection, on a fixed mesh or under a mesh that moves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.fields.norms import exact_sum
from femops.hydro.problems import POSITIVE
from femops.hydro.remap.flow import Flow, Motion, Transport, displaced, field_values
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import AnyMesh, Elements, Lattice, Neighbours
from femops.hydro.remap.problems import AdvectionProblem, Box
from femops.hydro.remap.schemes import scheme
from femops.hydro.remap.tables import Tables
from femops.parallel import DistributedMesh, check
from femops.solvers.runge_kutta import runge_kutta
from femops.spaces.base import GridFunction
from femops.spaces.h1_l2 import L2
from femops_common.arguments import Degree, checked
from femops_meshes.mesh import Mesh, check_conforming, check_cubes

Floats = NDArray[np.float64]

_END = 1e-8  # part of a step by which a run may end early


@final
@dataclass(frozen=True)
class Advected:
    """A function after a run.

    Attributes
    ----------
    coefficients : (size,) float64
        Bernstein coefficients, in the order of `Advection.space`.
    nodes : (ne, ng, dim) float64
        Nodes of the mesh where it has moved to.
    mass, mass_before : float
        Integral of the function at the end and at the beginning.
    minimum, maximum : float
        Smallest and largest coefficient.
    steps : int
    """

    coefficients: Floats
    nodes: Floats
    mass: float
    mass_before: float
    minimum: float
    maximum: float
    steps: int


@final
@checked(HydroError)
class Advection:
    """Advection of a discontinuous function, in steps that keep its mass and its bounds.

    The function is a sum of Bernstein polynomials, whose coefficients bound it. Steps are those of
    the strong stability preserving Runge-Kutta method of order 3.

    If the problem moves the mesh, its nodes follow the velocity until ``t_final``. That gives their
    displacement. Then the mesh moves along this displacement in a pseudo-time from 0 to 1, in steps
    of ``dt``, and the function is remapped.

    Parameters
    ----------
    problem : AdvectionProblem
    mesh : Mesh or DistributedMesh
        On many ranks all calls are collective.
    order : int
        Degree p of the function, >= 1.
    t_final, dt : float
        End of the run, and length of a step. The last step is shorter if it must be.
    ho : {0, 1, 3}
        Method of high order: none, Jacobi's iteration, or exact inverses of element masses.
    lo : {0, 1, 2, 3, 4}
        Method of low order: none, discrete upwind, preconditioned discrete upwind, residual
        distribution, residual distribution in subcells.
    fct : {0, 2}
        Limiter: none, or clip and scale.
    mesh_order : int
        Degree of the mesh during the run.

    Attributes
    ----------
    space : L2
        Space of the function at the beginning.

    Raises
    ------
    HydroError
        The problem does not exist in the dimension of the mesh, a method does not exist, methods
        cannot be combined, the mesh is locally refined, or it tangles.
    SpaceError
        The mesh has no faces between elements.
    """

    def __init__(
        self,
        problem: AdvectionProblem,
        mesh: AnyMesh,
        order: Degree,
        t_final: Annotated[float, POSITIVE],
        dt: Annotated[float, POSITIVE],
        *,
        ho: int = 1,
        lo: int = 4,
        fct: int = 2,
        mesh_order: Degree = 2,
    ) -> None:
        if mesh.dim not in problem.dims:
            dims = " and ".join(map(str, problem.dims))
            raise HydroError(
                f"problem {problem.number} exists in dimension {dims}, the mesh has {mesh.dim}"
            )
        check_cubes(mesh, "the remap", HydroError)
        check_conforming(mesh, "the remap has no locally refined meshes yet", HydroError)
        self.problem, self._dt = problem, float(dt)
        self._mesh = _with_part(mesh, lambda part: part.curved(mesh_order))
        self._elements = Elements.of(self._mesh)
        self._comm, self._box = self._elements.comm, _box(Elements.of(mesh))
        self._tables = Tables(mesh_order, order, mesh.dim)
        self._scheme = scheme(self._mesh, self._tables, ho, lo, fct)
        self._flow = self._motion(float(t_final)) if problem.moves_mesh else self._transport()
        self._t_final = 1.0 if problem.moves_mesh else float(t_final)
        self._matrices = Matrices(self._tables, self._flow, 0.0, self._elements)
        self.space = L2(self._mesh, order, family="bernstein")

    def run(self, watch: Callable[[float, Floats], Any] | None = None) -> Advected:
        """Run to the end.

        Parameters
        ----------
        watch : callable, optional
            ``watch(t, u)`` is called after each step, with the coefficients (size,) of the space.

        Raises
        ------
        HydroError
            A step makes new extremes: the message has the longest that does not. The mesh tangles.
        SolverError
            The function is no longer finite.
        """
        u = self.initial()
        before = self._mass(0.0, u)
        full = int(self._t_final / self._dt + _END)
        ends = [full * self._dt] * bool(full)
        if self._t_final - full * self._dt > _END * self._dt:
            ends.append(self._t_final)
        start = 0.0
        for end in ends:
            u, start = self._steps(u, start, end, watch), end
        steps = full + len(ends) - bool(full)
        minimum = -self._comm.max(-float(u.min(initial=np.inf)))
        maximum = self._comm.max(float(u.max(initial=-np.inf)))
        masses = self._mass(start, u), before
        return Advected(u, self._flow.nodes(start), *masses, minimum, maximum, steps)

    def function(self, found: Advected) -> GridFunction:
        """Return the function of a run on the mesh as it has moved.

        Raises
        ------
        MeshGeometryError
            An element of that mesh is inverted.
        """
        nodes, moved = np.ascontiguousarray(found.nodes.reshape(-1, self._mesh.dim).T), self._mesh
        if self._flow.moves:
            moved = _with_part(moved, lambda part: part.mapped(lambda _: nodes))
        space = L2(moved, self._tables.order, family="bernstein")
        return GridFunction(space, found.coefficients)

    def initial(self) -> Floats:
        """Coefficients (size,) of the initial function: its values at equidistant points."""
        x = np.matmul(self._tables.lattice, self._elements.part.coordinates)
        return self.problem.initial(self._box, x.reshape(-1, x.shape[-1]).T)

    def _steps(self, u: Floats, start: float, end: float, watch: Any) -> Floats:
        """Steps of equal length from start to end."""
        dt = min(self._dt, end - start)

        def rate(t: float, u: Floats) -> Floats:
            matrices = self._at(t)
            return self._scheme.rate(matrices, u.reshape(matrices.lumped.shape), dt).reshape(-1)

        options: dict[str, Any] = {"start": start, "callback": watch, "comm": self._comm}
        return np.asarray(runge_kutta(rate, u, end, dt, method="ssp3", **options))

    def _at(self, t: float) -> Matrices:
        if not self._flow.moves:
            return self._matrices
        return Matrices(self._tables, self._flow, t, self._elements)

    def _mass(self, t: float, u: Floats) -> float:
        lumped = self._at(t).lumped
        return exact_sum((lumped * u.reshape(lumped.shape)).sum(axis=1), self._comm)

    def _velocity(self, x: Floats) -> Floats:
        return self.problem.velocity(self._box, x)

    def _transport(self) -> Flow:
        return Transport(self._elements.part.coordinates, self._tables.lattice, self._velocity)

    def _motion(self, t_final: float) -> Flow:
        """Motion to where the velocity carries the nodes.

        As in Remhos, the corners of subcells move with the velocity itself, and not with the
        displacement. They stay at the boundary.
        """
        nodes, order = self._elements.part.coordinates, self._tables.order
        displacement = displaced(nodes, self._velocity, t_final, self._dt) - nodes
        speed = field_values(self._velocity, np.matmul(self._tables.lattice, nodes))
        outer = Neighbours(self._mesh, order).boundary_marks()
        speed[Lattice(self._mesh, order).spread(outer)] = 0.0
        return Motion(nodes, displacement, self._tables.lattice, speed)


def _with_part(mesh: AnyMesh, change: Callable[[Mesh], Mesh]) -> AnyMesh:
    """Return a mesh with the coordinates that a change gives to a rank's elements. Collective."""
    if isinstance(mesh, Mesh):
        return change(mesh)
    with check(mesh.comm):
        part = replace(mesh.part, mesh=change(mesh.mesh))
    with warnings.catch_warnings():  # the first mesh warned of ranks without elements
        warnings.simplefilter("ignore")
        return DistributedMesh.of(mesh.comm, part, mesh.element_groups)


def _box(elements: Elements) -> Box:
    """Bounding box of the elements of all ranks. Collective."""
    lower, upper = elements.part.bounding_box()
    return Box(-elements.comm.max(-lower), elements.comm.max(upper))
