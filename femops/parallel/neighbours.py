"""Elements of other ranks that a rank needs, behind faces and around its own.

A face between the elements of two ranks belongs to one of them: to the rank whose element has the
larger number in the global mesh. This rank needs the other element too, as a *ghost element*.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.numbering import entity_offsets
from femops.parallel.mesh import DistributedMesh
from femops.parallel.numbering import shared_entities, shared_vertices
from femops_kernels.exclusive import Derived
from femops_meshes.mesh import Mesh
from femops_meshes.partitioning.parts import entity_rows, leaf_mesh
from femops_meshes.topology.topology import Topology

Ints = NDArray[np.int64]


@final
class Neighbours:
    """A rank's elements and its ghost elements. `neighbours` makes it, collectively.

    `numbers` (n,): number in the global mesh of each element: this rank's elements, then the ghost
    elements.
    """

    def __init__(self, mesh: DistributedMesh) -> None:
        part, self._comm = mesh.part, mesh.comm
        self.send = _lent(mesh)
        own = part.mesh
        self.numbers = self.with_ghosts(part.elements)
        arrays: dict[str, Any] = {
            "coordinates": self.with_ghosts(own.coordinates),
            "element_attributes": self.with_ghosts(own.element_attributes),
            "boundary_attributes": np.empty(0, dtype=np.int32),
            "file_elements": np.arange(len(self.numbers)),
        }
        if part.leaves is not None:
            rows = self.with_ghosts(entity_rows(own.topology, slice(None), part.numbers))
            none = np.empty((0, 2), dtype=np.int64)
            self.mesh = leaf_mesh(rows, none, arrays, ({}, {}), own.continuous)[0]
        else:
            vertices = self.with_ghosts(part.vertices[own.elements])
            used, corners = np.unique(vertices, return_inverse=True)
            corners = corners.reshape(vertices.shape).astype(np.int64)
            none = own.boundary[:0]
            self.mesh = Mesh(elements=corners, boundary=none, num_vertices=len(used), **arrays)
        self.joined = bool(mesh.comm.max(int((self.mesh.topology.faces[:, 1] >= 0).any())))

    def with_ghosts(self, values: NDArray[Any]) -> NDArray[Any]:
        """Append the ghost elements' rows to a table (ne, ...) of this rank's elements. Collective.

        Ghost elements are ordered by rank, then by element.
        """
        lent = {rank: values[elements] for rank, elements in self.send.items() if len(elements)}
        return np.concatenate([values, *self._comm.exchange(lent).values()])


def _lent(mesh: DistributedMesh) -> dict[int, Ints]:
    """Elements of this rank, by other ranks that own one of their faces. See `Neighbours.send`."""
    part, topology = mesh.part, mesh.mesh.topology
    kind = mesh.dim - 1
    shared = shared_entities(part, [kind], mesh.comm)
    first = entity_offsets(topology)[kind]
    at = {rank: _behind(topology, faces - first) for rank, faces in shared.items()}
    numbers = {
        rank: np.where(elements >= 0, part.elements[elements], -1) * 2 + small
        for rank, (elements, small) in at.items()
    }
    theirs = mesh.comm.exchange(numbers)
    found = {}
    for rank, (elements, small) in at.items():
        other, pieces = theirs[rank][:, np.newaxis] >> 1, theirs[rank][:, np.newaxis] & 1
        joined = (small[..., np.newaxis] & pieces) == 0  # two pieces of a face do not meet
        larger = other > numbers[rank][..., np.newaxis] >> 1
        needed = (joined & larger).any(axis=2) & (elements >= 0)
        found[rank] = np.unique(elements[needed])
    return found


def _behind(topology: Topology, faces: Ints) -> tuple[Ints, Ints]:
    """Elements (n, k) behind faces, -1 for no more, and 1 (n, k) if they have but a piece of it."""
    dim = topology.dim
    codes = list(topology.cell.face_codes)
    numbers, own = topology.carrying[0][:, codes], topology.entity[:, codes]
    place = np.full(topology.num_entities[dim - 1], -1, dtype=np.int64)
    place[faces] = np.arange(len(faces))
    element, column = np.nonzero(place[numbers] >= 0)
    row = place[numbers[element, column]]
    order = np.argsort(row, kind="stable")
    element, column, row = element[order], column[order], row[order]
    k = np.arange(len(row)) - np.searchsorted(row, row)
    most = 1 if topology.carriers is None else 2 ** (dim - 1)
    found, small = np.full((len(faces), most), -1), np.zeros((len(faces), most), dtype=np.int64)
    found[row, k] = element
    small[row, k] = numbers[element, column] != own[element, column]
    return found, small


@final
class Surroundings:
    """A rank's elements, those that touch them, and those that touch these, at vertices.

    `surroundings` makes it, collectively.

    `own` (ne,): places of this rank's elements. `mesh`: the elements by ascending numbers in the
    global mesh. It has no boundary.
    """

    def __init__(self, mesh: DistributedMesh) -> None:
        part, own, self._comm = mesh.part, mesh.mesh, mesh.comm
        corners = part.vertices[own.elements]
        near = np.unique(corners)
        for _ in range(2):
            shared = shared_vertices(near, part.num_vertices, mesh.comm)
            touch = {rank: np.isin(corners, near[at]).any(axis=1) for rank, at in shared.items()}
            self._send = {rank: np.flatnonzero(some) for rank, some in touch.items() if some.any()}
            lent = {rank: corners[elements] for rank, elements in self._send.items()}
            arrived = [each.reshape(-1) for each in mesh.comm.exchange(lent).values()]
            near = np.unique(np.concatenate([near, *arrived]))
        order = self._all(part.elements)
        self._order = np.argsort(order)
        self.own = np.searchsorted(order[self._order], part.elements)
        used, places = np.unique(self.rows(corners), return_inverse=True)
        self.mesh = Mesh(
            elements=places.reshape(-1, corners.shape[1]).astype(np.int64),
            coordinates=self.rows(own.coordinates),
            element_attributes=self.rows(own.element_attributes),
            boundary=own.boundary[:0],
            boundary_attributes=np.empty(0, dtype=np.int32),
            num_vertices=len(used),
            file_elements=np.arange(len(order)),
        )
        # cached_property keeps its value here
        self.mesh.__dict__["continuous"] = not mesh.comm.max(int(not own.continuous))

    def rows(self, table: NDArray[Any]) -> NDArray[Any]:
        """Rows (n, ...) of the elements, from those (ne, ...) of each rank's own. Collective."""
        return np.asarray(self._all(table)[self._order])

    def _all(self, table: NDArray[Any]) -> NDArray[Any]:
        lent = {rank: table[elements] for rank, elements in self._send.items()}
        return np.concatenate([table, *self._comm.exchange(lent).values()])


_known = Derived[DistributedMesh, Neighbours]()
_around = Derived[DistributedMesh, Surroundings]()


def surroundings(mesh: DistributedMesh) -> Surroundings:
    """Return a rank's elements and those around. Collective at the first call for a mesh."""
    return _around.get(mesh, lambda: Surroundings(mesh))


def neighbours(mesh: DistributedMesh) -> Neighbours:
    """Return a rank's elements and its ghost elements. Collective at the first call for a mesh."""
    return _known.get(mesh, lambda: Neighbours(mesh))
