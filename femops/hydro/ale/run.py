"""Runs whose mesh is relaxed, and whose fields are remapped, every few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.basis import Basis1D
from femops.element import Element, tensor_element
from femops.errors import HydroError
from femops.fields.norms import exact_sum
from femops.geometry.boundary import face_digits, nodes_inwards
from femops.hydro.ale.relaxation import Relaxation, quality
from femops.hydro.lagrangian import Fluid, Lagrangian
from femops.hydro.problems import POSITIVE
from femops.hydro.remap.conservative import ConservativeRemap
from femops.hydro.remap.neighbours import Elements, Lattice
from femops.hydro.remap.tables import tensor
from femops.hydro.simulation import Simulation
from femops.parallel import Communicator
from femops_common.arguments import Count, checked, real_numbers, whole_numbers
from femops_meshes.coordinates.mapping import geometry_degree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUND_OFF = 1e-15
_MOST_ITERATIONS = 100


@final
class WallMomentum:
    """Solves for velocities whose total momentum is that of given integrals.

    A velocity is zero across walls, so the equations of the basis functions there are not solved,
    and the momentum in them would be lost. It goes to the nodes that come next inwards.
    """

    def __init__(self, equations: Lagrangian) -> None:
        self._equations = equations
        self._walls, inner = _pairs(equations)
        starts = _starts(equations.V)
        owner = np.searchsorted(starts, inner, side="right") - 1
        self._send = {int(rank): np.flatnonzero(owner == rank) for rank in np.unique(owner)}
        self._inner = equations.comm.exchange(
            {rank: inner[mine] - starts[rank] for rank, mine in self._send.items()}
        )

    def velocity(self, momentum: Floats) -> Floats:
        """Velocity (V.size,) with the integrals (V.size,) of its momentum against the basis.

        Collective.
        """
        equations, walls = self._equations, self._walls
        scale = exact_sum(np.abs(momentum), equations.comm)
        moved = np.zeros(len(walls))
        for _ in range(_MOST_ITERATIONS):
            right = momentum.copy()
            sent = {rank: moved[mine] for rank, mine in self._send.items()}
            for rank, arrived in equations.comm.exchange(sent).items():
                np.add.at(right, self._inner[rank], arrived)
            velocity = equations.velocity_of(right)
            before, moved = moved, momentum[walls] - equations.momentum_of(velocity)[walls]
            if exact_sum(np.abs(moved - before), equations.comm) <= _ROUND_OFF * scale:
                return velocity
        raise HydroError("the momentum at walls has not converged: take a finer mesh")


def check_flat(equations: Lagrangian) -> None:
    """Raise if a wall is bent or oblique, so that nodes that slide along it leave it. Collective.

    The position across a wall may differ by round-off of the size of the element.
    """
    part, dim = equations.part, equations.V.dim
    n, digits = geometry_degree(part.coordinates.shape[1], dim) + 1, dict(face_digits(dim))
    bent = 0
    for (element, code), attribute in zip(
        part.topology.boundary_faces, part.boundary_attributes, strict=True
    ):
        nodes = part.coordinates[element]
        across = nodes[nodes_inwards(digits[int(code)], n)[: n ** (dim - 1)], attribute - 1]
        bent += int(np.ptp(across) > 1e-10 * np.ptp(nodes))
    count = int(equations.comm.sum(bent))
    if count:
        raise HydroError(
            f"{count} face(s) of walls are bent or oblique, or have the attribute of another wall: "
            "the mesh cannot slide along them, so remap on boxes only (--ale 0)"
        )


def _pairs(equations: Lagrangian) -> tuple[Ints, Ints]:
    """Wall components that have a free neighbour inwards, and these neighbours. Collective.

    Shapes: `walls` (n,), `inner` (n,).
    """
    V, comm = equations.V, equations.comm
    starts, rows = _starts(V), _rows(equations)
    owner = np.searchsorted(starts, rows[:, 0], side="right") - 1
    told = {int(rank): rows[owner == rank] for rank in np.unique(owner)}
    rows = np.concatenate([rows[:0], *comm.exchange(told).values()])
    rows = rows[np.argsort(rows[:, 1], kind="stable")]  # the last of several neighbours stays
    found = np.zeros((V.size, 2), dtype=np.int64)
    found[rows[:, 0] - starts[comm.rank]] = rows[:, 2:]
    inner, free = found[equations.walls].T
    return equations.walls[free > 0], inner[free > 0]


def _starts(V: femops.H1) -> Ints:
    """Position (size + 1,) in the vector of all ranks at which the vector of each rank begins."""
    offsets = np.array([0, V.ndofs]) if V.numbering is None else V.numbering.offsets
    return np.asarray(offsets * V.ncomp)


def _rows(equations: Lagrangian) -> Ints:
    """Wall components on the boundary faces of this rank's elements. Collective.

    Each row has the position of a wall component, the number of the element, the position of the
    component that is next inwards, and 1 if it is free, else 0. Positions are in the vector of all
    ranks.
    """
    V, elements = equations.V, Elements.of(equations.mesh)
    free = V.zeros()
    free[:] = 1.0
    free[equations.walls] = 0.0
    free_nodes = V.l_vec(free).reshape(-1, V.ncomp)
    whole = np.arange(V.ndofs) if V.numbering is None else V.numbering.whole
    numbers, free_nodes = V.restriction.entries(whole), V.restriction.entries(free_nodes)
    digits, rows = dict(face_digits(V.dim)), [np.empty((0, 4), dtype=np.int64)]
    for (element, code), attribute in zip(
        elements.part.topology.boundary_faces, elements.part.boundary_attributes, strict=True
    ):
        layers = nodes_inwards(digits[int(code)], V.p1d).reshape(V.p1d, -1)
        outer, inner = numbers[element, layers[:2]] * V.ncomp + attribute - 1
        number = np.full(len(outer), elements.numbers[element])
        columns = outer, number, inner, free_nodes[element, layers[1], attribute - 1]
        rows.append(np.column_stack(columns).astype(np.int64))
    return np.concatenate(rows)


_UP = 1  # the direction against which gravity acts


@final
@dataclass(frozen=True)
class PointFields:
    """Fields of a gas at the quadrature points of the moved mesh, (ne, nq) or (ne, nq, dim)."""

    volume: Floats  # (ne, nq): volume that belongs to a point: weight times Jacobian determinant
    # density, energy, kinetic and inverse are (ne, nq). Energies are by volume. The inverse is
    # 1 / (gamma - 1).
    density: Floats
    energy: Floats
    kinetic: Floats
    inverse: Floats
    momentum: Floats  # (ne, nq, dim): momentum by volume
    potential: Floats  # (ne, nq): potential energy by mass

    @staticmethod
    def of(equations: Lagrangian, state: Floats) -> PointFields:
        """Evaluate the fields of a state."""
        parts, points = equations.parts(state), equations.quadrature.points
        V, E = equations.V, equations.E
        velocity = V.element.values(points, nodal(V, parts["velocity"]))
        energy = E.element.values(points, nodal(E, parts["energy"]))[..., 0]
        position = nodal(V, parts["position"])
        volume = volumes(equations, position)
        density = _initial_density(equations) * _initial_volumes(equations) / volume
        return PointFields(
            volume,
            density,
            density * energy,
            0.5 * density * (velocity * velocity).sum(axis=-1),
            np.broadcast_to(1.0 / (_gamma(equations) - 1.0), volume.shape),
            density[..., np.newaxis] * velocity,
            potential(equations, position),
        )

    def totals(self, comm: Communicator) -> dict[str, Any]:
        """Mass, momentum (dim,) and energies on all ranks. Collective."""

        def total(field: Floats) -> float:
            return exact_sum((self.volume * field).sum(axis=1), comm)

        return {
            "mass": total(self.density),
            "momentum": [total(component) for component in np.moveaxis(self.momentum, -1, 0)],
            "internal": total(self.energy),
            "kinetic": total(self.kinetic),
            "potential": total(self.density * self.potential),
        }


def transferred(
    equations: Lagrangian, state: Floats, position: Floats
) -> tuple[Lagrangian, Floats, int]:
    """Carry the fields of a state to other positions of the nodes.

    Shapes: `state` (size,), `position` (V.size,), `state` (size,).
    """
    V, old = equations.V, PointFields.of(equations, state)
    nodes = nodal(V, equations.parts(state)["position"])
    displacement = nodal(V, position) - nodes
    scalars = np.stack([old.density, old.energy, old.kinetic, old.inverse])
    vectors = np.moveaxis(old.momentum, -1, 0)
    low = _Carrier(equations, nodes, displacement, max(equations.order_thermo, 1))
    high = _Carrier(equations, nodes, displacement, equations.order)
    gravity = equations.problem.gravity
    of_mass = (old.volume * old.density * old.potential).sum(axis=1)[np.newaxis]
    moments = of_mass / gravity if gravity else of_mass[:0]
    volume = volumes(equations, nodes + displacement)
    scalars, moments = low.carried(scalars, moments, old.volume, volume, tight=True)
    vectors, _ = high.carried(vectors, of_mass[:0], old.volume, volume, tight=False)
    density, energy, kinetic, inverse = scalars
    momentum, height = np.moveaxis(vectors, 0, -1), potential(equations, nodes + displacement)
    new = PointFields(volume, density, energy, kinetic, inverse, momentum, height)
    after = equations.with_fluid(_fluid(equations, new))
    released = gravity * moments.sum(axis=0) - (volume * density * height).sum(axis=1)
    steps = max(low.num_steps, high.num_steps)
    return after, _state(after, new, position, released), steps


@final
class _Carrier:
    """Makes functions of one order from values at points, and remaps them."""

    def __init__(
        self, equations: Lagrangian, nodes: Floats, displacement: Floats, order: int
    ) -> None:
        mesh = equations.mesh
        self._remap = ConservativeRemap(mesh, nodes, displacement, order)
        self._lattice = Lattice(mesh, order)
        at = Basis1D("bernstein", order).interpolation(equations.quadrature.points)
        self._shapes = tensor([at] * mesh.dim)
        self.num_steps = self._remap.num_steps

    def carried(
        self, values: Floats, moments: Floats, volume: Floats, after: Floats, *, tight: bool
    ) -> tuple[Floats, Floats]:
        """Values (nf, ne, nq) at the points after the remap of values before it.

        The points have volumes (ne, nq) before and after the remap. The moments (nm, ne) are those
        of the first functions with the height, see `ConservativeRemap.run`.

        Before the remap the functions are limited. With ``tight`` their coefficients keep the
        bounds of the values in the elements that meet at a node. So the result keeps them too.
        Else only their values at the points do, which leaves extremes of smooth functions alone.
        """
        start = self._remap.start
        right = by_row(volume * values, self._shapes)
        fields = np.matmul(start.inverse_mass, right[..., np.newaxis])[..., 0]
        integrals = right.sum(axis=-1)
        triples = zip(fields, integrals, values, strict=True)
        limited = [self._limited(u, start.lumped, whole, of, tight) for u, whole, of in triples]
        found, integrals, moments = self._remap.run(np.stack(limited), moments, _UP)
        values = by_row(found, self._shapes.T)
        # the points of low orders of the energy are too few for the volume of bent elements in 3-D
        missing = integrals - (after * values).sum(axis=-1)
        return values + (missing / after.sum(axis=-1))[..., np.newaxis], moments

    def _limited(
        self, u: Floats, lumped: Floats, integral: Floats, values: Floats, tight: bool
    ) -> Floats:
        """Shrink coefficients (ne, n) towards their mean in each element until bounds are kept.

        The inverse mass has the error of its condition number. So the mean comes from the integral
        (ne,).
        """
        volume = lumped.sum(axis=1, keepdims=True)
        away = u - (lumped * u).sum(axis=1, keepdims=True) / volume
        mean, (least, largest) = integral[:, np.newaxis] / volume, self._lattice.bounds(values)
        if tight:
            share = share_within(away, least, largest, mean)
        else:
            around = least.min(axis=1, keepdims=True), largest.max(axis=1, keepdims=True)
            share = share_within(by_row(away, self._shapes.T), *around, mean)
        return np.asarray(mean + share * away)


def share_within(away: Floats, least: Floats, largest: Floats, mean: Floats) -> Floats:
    """Largest share (ne, 1) of deviations (ne, n) from means (ne, 1) that keeps bounds."""
    room = np.where(away > 0.0, largest - mean, least - mean)
    share = np.ones_like(away)
    np.divide(room, away, out=share, where=away != 0.0)
    return np.asarray(np.clip(share.min(axis=1, keepdims=True), 0.0, 1.0))


def by_row(rows: Floats, matrix: Floats) -> Floats:
    """Products (..., m) of rows (..., n) with a matrix (n, m).

    Each row is multiplied by itself. So its product has the same bits, however many rows there are.
    """
    return np.asarray(np.matmul(rows[..., np.newaxis, :], matrix)[..., 0, :])


def nodal(space: femops.Space, vector: Floats) -> Floats:
    """Values (ne, n, ncomp) of a vector at the nodes of the elements."""
    gathered = space.restriction.gather(space.l_vec(vector))
    return np.asarray(gathered.reshape(*gathered.shape[:2], space.ncomp))


def volumes(equations: Lagrangian, nodes: Floats) -> Floats:
    """Volumes (ne, nq) of the points of a mesh with nodes (ne, n, dim)."""
    return _volumes(equations, equations.V.element, nodes)


def _volumes(equations: Lagrangian, element: Element, nodes: Floats) -> Floats:
    rule = equations.quadrature
    J = np.stack(element.slopes(rule.points, nodes), axis=-1)
    return np.asarray(rule.tensor_weights(J.shape[-1]) * np.linalg.det(J))


def potential(equations: Lagrangian, nodes: Floats) -> Floats:
    """Potential energy by mass (ne, nq) at the points of a mesh with nodes (ne, n, dim)."""
    V, gravity = equations.V, equations.problem.gravity
    if not gravity:
        return np.zeros((len(nodes), 1))
    heights = V.element.values(equations.quadrature.points, nodes)[..., _UP]
    return np.asarray(gravity * heights)


def _initial_volumes(equations: Lagrangian) -> Floats:
    """Volumes (ne, nq) of the initial mesh, which may be of a higher degree than positions."""
    mesh = equations.part
    element = tensor_element(Basis1D("gll", mesh.order), mesh.dim)
    return _volumes(equations, element, mesh.coordinates)


def _initial_density(equations: Lagrangian) -> Floats:
    """Density (ne, nq) that the mass matrices have, in the coordinates of the initial mesh."""
    if equations.fluid is not None:
        return _values(equations, equations.fluid.density)
    density, at = equations.problem.density, equations.at_points
    if not callable(density):
        return np.full((equations.part.num_elements, 1), float(density))
    return at.interpolate(density).reshape(equations.part.num_elements, -1)


def _gamma(equations: Lagrangian) -> Floats:
    """Adiabatic index (ne, nq)."""
    gamma = equations.gamma
    if isinstance(gamma, femops.GridFunction):
        return _values(equations, gamma)
    return np.full((equations.part.num_elements, 1), float(gamma))


def _values(equations: Lagrangian, function: femops.GridFunction) -> Floats:
    space = function.space
    values = nodal(space, function.vector)
    found = space.element.values(equations.quadrature.points, values)
    return np.asarray(found[..., 0])


def _fluid(equations: Lagrangian, fields: PointFields) -> Fluid:
    """Fluid of fields in the coordinates of the initial mesh."""
    at = equations.at_points
    density = fields.density * fields.volume / _initial_volumes(equations)
    gamma = 1.0 + 1.0 / fields.inverse
    return Fluid(
        femops.GridFunction(at, density.reshape(-1)),
        femops.GridFunction(at, gamma.reshape(-1)),
    )


def _state(
    equations: Lagrangian, fields: PointFields, position: Floats, released: Floats
) -> Floats:
    """State with the momentum and the energy of fields, and the released energy (ne,) as heat."""
    V, E, rule = equations.V, equations.E, equations.quadrature
    at = tensor([V.basis.interpolation(rule.points)] * V.dim)
    momentum = np.matmul(at.T, fields.volume[..., np.newaxis] * fields.momentum)
    velocity = WallMomentum(equations).velocity(V.sum_elements(momentum))
    at = tensor([E.basis.interpolation(rule.points)] * E.dim)
    integrals = by_row(fields.volume * fields.energy, at)
    specific = equations.energy_of(integrals.reshape(-1)).reshape(integrals.shape)
    mass = fields.volume * fields.density
    specific = _positive(specific, at, mass)
    v = V.element.values(rule.points, nodal(V, velocity))
    kept = (0.5 * mass * (v * v).sum(axis=-1)).sum(axis=1)
    lost = (fields.volume * fields.kinetic).sum(axis=1) - kept + released
    least = np.minimum(specific.min(axis=1), by_row(specific, at.T).min(axis=1))
    of_elements = mass.sum(axis=1)
    heat = _heat(lost, np.maximum(least, 0.0) * of_elements, equations.comm) / of_elements
    specific += heat[:, np.newaxis]
    state = equations.on_host.join(
        position=position, velocity=velocity, energy=specific.reshape(-1)
    )
    return np.asarray(equations.space.memory.put(state))


def _positive(energy: Floats, at: Floats, mass: Floats) -> Floats:
    """Shrink energies (ne, n) towards their mean by mass until none at nodes is negative."""
    values = by_row(energy, at.T)
    mean = (mass * values).sum(axis=1, keepdims=True) / mass.sum(axis=1, keepdims=True)
    least = np.minimum(energy.min(axis=1, keepdims=True), values.min(axis=1, keepdims=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(least < 0.0, mean / (mean - least), 1.0)
    return np.asarray(mean + np.clip(share, 0.0, 1.0) * (energy - mean))


def _heat(lost: Floats, room: Floats, comm: Communicator) -> Floats:
    """Internal energy (ne,) that replaces the other energies (ne,) which elements have lost.

    Elements that have won other energy are cooled by at most their ``room`` (ne,). The missing
    energy is taken from the gains of the elements on all ranks, then from their room. Collective.
    """
    change = np.maximum(lost, -room)
    missing = exact_sum(change - lost, comm)
    for floor in (np.minimum(change, 0.0), -room):
        spare = change - floor
        available = exact_sum(spare, comm)
        if missing <= available:
            return change - spare * (missing / available if missing else 0.0)
        change, missing = floor, missing - available
    raise HydroError(
        f"the remap needs {missing:.3g} more internal energy than the gas has: remap less often"
    )


@final
@checked(HydroError)
class ArbitraryLagrangianEulerian:
    """Lagrangian steps, and after some of them a relaxation of the mesh and a remap.

    Parameters
    ----------
    run : Simulation
        Run on the host. All its ranks take part. Its equations and its state change at a remap.
        Its ``options`` get the options of the remaps.
    every : int
        Number of steps between remaps.
    length : float
        Length over which a relaxation smooths, in sizes of an element, 1e-6 to 1e6. The larger
        it is, the nearer the mesh stays to the initial mesh.
    least : float
        Quality of the mesh below which it is relaxed at once, see `quality`.

    Attributes
    ----------
    remaps : list of dict
        For each remap ``step``, ``t``, ``pseudo_steps``, ``quality`` before and after, and
        ``before`` and ``after``: mass, momentum, internal, kinetic and potential energy.

    Raises
    ------
    HydroError
        The run is on a device, or a wall of its initial mesh is bent or oblique.
    """

    def __init__(
        self,
        run: Simulation,
        every: Annotated[int, whole_numbers(1)] = 20,
        *,
        length: Annotated[float, real_numbers(1e-6, 1e6)] = 1.0,
        least: Annotated[float, POSITIVE] = 0.1,
    ) -> None:
        equations = run.equations
        if equations.space.device is not None:
            raise HydroError("remaps work on the host only: give --ale 0, or leave out the device")
        check_flat(equations)
        self.run, self._every, self._least = run, every, least
        self._relaxation = Relaxation(equations, length)
        own = {"ale": every, "ale_length": length, "ale_quality": least}
        run.options = run.options | own  # a copy of the run keeps its own
        self.remaps: list[dict[str, Any]] = []

    def advance(
        self,
        t_final: float,
        max_steps: Count | None = None,
        watch: Callable[[Simulation], Any] | None = None,
    ) -> None:
        """Run until a time, or until the total number of steps is ``max_steps``.

        Parameters
        ----------
        t_final : float
        max_steps : int, optional
        watch : callable, optional
            Called after each step, and after the remap that follows the step.

        Raises
        ------
        HydroError
            See `Simulation.run`. The relaxation or the remap fails. The state of ``run`` is the
            last good one.
        """
        run = self.run
        while run.t < t_final and (max_steps is None or run.steps < max_steps):
            run.run(t_final, run.steps + 1)
            if run.t < t_final and self._due():
                self.remap()
            if watch is not None:
                watch(run)

    def _due(self) -> bool:
        """True if a remap follows the last step."""
        if self.run.steps % self._every == 0:
            return True
        equations = self.run.equations
        position = equations.parts(self.run.state)["position"]
        return quality(equations.V, position) < self._least

    def remap(self) -> None:
        """Relax the mesh, and remap the fields."""
        run, equations = self.run, self.run.equations
        before = equations.parts(run.state)["position"]
        position = self._relaxation.relaxed(before)
        after, state, steps = transferred(equations, run.state, position)
        self.remaps.append(
            {
                "step": run.steps,
                "t": run.t,
                "pseudo_steps": steps,
                "quality": [quality(equations.V, x) for x in (before, position)],
                "before": PointFields.of(equations, run.state).totals(equations.comm),
                "after": PointFields.of(after, state).totals(equations.comm),
            }
        )
        run.continue_with(after, state)
