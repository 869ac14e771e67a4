"""Elements of other ranks that a rank needs, behind faces and around its own.

A face between the elements of two ranks belongs to one of them: to the rank whose element has the
larger number in the global mesh. This rank needs the other element too, as a *ghost element*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.numbering import Entities, entity_offsets
from femops.parallel.mesh import DistributedMesh
from femops.parallel.numbering import shared_entities, shared_vertices
from femops_kernels.exclusive import Derived
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import joined_parts
from femops_meshes.partitioning.parts import entity_rows, leaf_mesh
from femops_meshes.topology.topology import Topology

Ints = NDArray[np.int64]


@final
class Neighbours:
    """A rank's elements of one shape and its ghost elements. `neighbours` makes it, collectively.

    `send`: elements of this rank that other ranks need. `numbers` (n,): number in the global mesh
    of each element: this rank's elements, then the ghost elements. `mesh`: the elements. Those of
    all shapes have common vertex numbers. `joined`: True if a rank has faces between them.
    """

    mesh: Mesh
    joined: bool

    def __init__(self, mesh: DistributedMesh, send: dict[int, Ints]) -> None:
        self._comm, self.send = mesh.comm, send
        self.numbers = self.with_ghosts(mesh.part.elements)

    def with_ghosts(self, values: NDArray[Any]) -> NDArray[Any]:
        """Append the ghost elements' rows to a table (ne, ...) of this rank's elements. Collective.

        Ghost elements are ordered by rank, then by element.
        """
        lent = {rank: values[elements] for rank, elements in self.send.items() if len(elements)}
        return np.concatenate([values, *self._comm.exchange(lent).values()])


def _made(mesh: DistributedMesh) -> list[Neighbours]:
    """The elements of each shape; see `Neighbours`."""
    found = [Neighbours(each, send) for each, send in zip(mesh.parts, _lent(mesh), strict=True)]
    meshes = _with_ghosts(mesh, found)
    inner = [int((each.topology.faces[:, 1] >= 0).any()) for each in meshes]
    joined = mesh.comm.max(np.array(inner)).tolist()
    for near, each, any_rank in zip(found, meshes, joined, strict=True):
        near.mesh, near.joined = each, bool(any_rank)
    return found


def _with_ghosts(mesh: DistributedMesh, found: list[Neighbours]) -> Sequence[Mesh]:
    """Meshes of this rank's elements of each shape and its ghost elements."""
    arrays, corners = list[dict[str, Any]](), list[Ints]()
    for part, near in zip(mesh.part.parts, found, strict=True):
        own = part.mesh
        corners.append(near.with_ghosts(part.vertices[own.elements]))
        arrays.append(
            {
                "coordinates": near.with_ghosts(own.coordinates),
                "element_attributes": near.with_ghosts(own.element_attributes),
                "boundary_attributes": np.empty(0, dtype=np.int32),
                "file_elements": np.arange(len(near.numbers)),
            }
        )
    part = mesh.part
    if part.leaves is not None:
        rows = found[0].with_ghosts(entity_rows(part.mesh.topology, slice(None), part.numbers))
        none = np.empty((0, 2), dtype=np.int64)
        return [leaf_mesh(rows, none, arrays[0], ({}, {}), part.mesh.continuous)[0]]
    used = np.unique(np.concatenate([rows.reshape(-1) for rows in corners]))
    made = [
        Mesh(
            elements=np.searchsorted(used, rows).astype(np.int64),
            boundary=each.mesh.boundary[:0],
            num_vertices=len(used),
            **given,
        )
        for each, rows, given in zip(part.parts, corners, arrays, strict=True)
    ]
    return made if mesh.mesh is part.parts[0].mesh else joined_parts(made).parts


def _lent(mesh: DistributedMesh) -> list[dict[int, Ints]]:
    """Elements of each shape, by other ranks that own one of their faces; see `Neighbours.send`."""
    parts, kind = mesh.part.parts, mesh.dim - 1
    entities = Entities([part.mesh for part in parts])
    shared = shared_entities(mesh.part, entities, [kind], mesh.comm)
    numbers, small = dict[int, Ints](), dict[int, Ints]()
    at: list[dict[int, Ints]] = [{} for _ in parts]
    for rank, faces in shared.items():
        for k, (part, mine) in enumerate(zip(parts, entities.places, strict=True)):
            some = np.flatnonzero((faces >= mine.start) & (faces < mine.stop))
            topology = part.mesh.topology
            first = mine.start + entity_offsets(topology)[kind]
            elements, pieces = _behind(topology, faces[some] - first)
            shape = len(faces), elements.shape[1]
            numbers.setdefault(rank, np.full(shape, -1))
            small.setdefault(rank, np.zeros(shape, dtype=np.int64))
            at[k][rank] = np.full(shape, -1)
            at[k][rank][some], small[rank][some] = elements, pieces
            numbers[rank][some] = np.where(elements >= 0, part.elements[elements], -1)
    theirs = mesh.comm.exchange({rank: numbers[rank] * 2 + small[rank] for rank in shared})
    found: list[dict[int, Ints]] = [{} for _ in parts]
    for rank, own in numbers.items():
        other, pieces = theirs[rank][:, np.newaxis] >> 1, theirs[rank][:, np.newaxis] & 1
        joined = (small[rank][..., np.newaxis] & pieces) == 0  # two pieces of a face do not meet
        needed = (joined & (other > own[..., np.newaxis])).any(axis=2)
        for send, behind in zip(found, at, strict=True):
            elements = behind[rank]
            send[rank] = np.unique(elements[needed & (elements >= 0)])
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


_known = Derived[DistributedMesh, list[Neighbours]]()
_around = Derived[DistributedMesh, Surroundings]()


def surroundings(mesh: DistributedMesh) -> Surroundings:
    """Return a rank's elements and those around. Collective at the first call for a mesh."""
    return _around.get(mesh, lambda: Surroundings(mesh))


def neighbours(mesh: DistributedMesh) -> Neighbours:
    """Return a rank's elements of one shape and its ghost elements.

    Collective at the first call for a mesh.
    """
    whole = mesh.whole
    return _known.get(whole, lambda: _made(whole))[whole.parts.index(mesh)]
