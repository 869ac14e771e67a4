"""Velocity with a given momentum between walls, which let no momentum go."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

import femops
from femops.errors import HydroError
from femops.fields.norms import exact_sum
from femops.geometry.boundary import face_digits, nodes_inwards
from femops.hydro.lagrangian import Lagrangian
from femops.hydro.remap.neighbours import Elements
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
