"""Numbering of the dofs of an H1 space, in the order in which elements touch the dofs.

The kernels rely on this numbering. Go through the elements in ascending order. In each element go
through the entities: vertices, edges, faces, interior, and within one dimension by ascending
ternary code. The dofs of a new entity get the next consecutive numbers, in the element's order.
Hence a contiguous range of elements touches first a contiguous range of dofs. An element finds its
dofs in at most 3**dim runs. The runs are ascending if neighbours have the same orientation.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cpu.in_order import in_order
from femops_kernels.exclusive import Derived
from femops_meshes.mesh import Mesh
from femops_meshes.shared_faces import shared_entities
from femops_meshes.topology.entities import Cell
from femops_meshes.topology.topology import Topology, entity_permutation

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]
Flips = NDArray[np.bool_] | None
"""Where an element's dof is minus the dof; None for nowhere."""

_TOGETHER = 2**17  # dofs of elements that are numbered at once
_SPARSE = 200  # entries of a table of flags for each number, up to which the table is faster


def ternary_codes(dim: int) -> list[tuple[int, tuple[int, ...]]]:
    """All (code, digits) of an element's entities, by dimension, then by code.

    Digit d (x first) is 0 at the low end of direction d, 1 inside, and 2 at the high end. The code
    is the sum of ``digit * 3**d``.
    """
    digits = [tuple(reversed(t)) for t in itertools.product(range(3), repeat=dim)]
    coded = list(enumerate(digits))
    return sorted(coded, key=lambda item: (item[1].count(1), item[0]))


@cache
def local_nodes(digits: tuple[int, ...], p: int, closed: bool = False) -> Ints:
    """Local indices (n,) of the nodes of one entity, lexicographic in the entity.

    With ``closed``, nodes on the entity's own boundary are included.
    """
    inside = np.arange(p + 1) if closed else np.arange(1, p)
    nodes = np.zeros(1, dtype=np.int64)
    for d, digit in enumerate(digits):
        line = inside if digit == 1 else np.array([0 if digit == 0 else p])
        nodes = np.add.outer(line * (p + 1) ** d, nodes).ravel()
    nodes.flags.writeable = False
    return nodes


def by_dimension(cell: Cell) -> list[tuple[int, int]]:
    """Code and dimension of all entities of a cell, by dimension, then by code."""
    kinds = [(code, kind) for code, (kind, _) in enumerate(cell.entities)]
    return sorted(kinds, key=lambda item: item[::-1])


def touch_order(cell: Cell, p: int) -> Ints:
    """Local nodes (n,) of an element, in the order in which it numbers the dofs of an H1 space."""
    return np.concatenate([cell.lattice(code, p) for code, _ in by_dimension(cell)])


@final
@dataclass(frozen=True, eq=False)
class Dofs:
    """Dofs of the elements of a mesh, or of a part of a mesh of several shapes."""

    indices: Ints  # (ne, nodes): dof at each local node
    flipped: Flips = None
    first: int | None = None  # of a part: first of the dofs that no earlier part has


@final
class Entities:
    """Vertices, edges, faces and cells of the parts of a mesh, in one list.

    They are listed part by part, in each as `entity_offsets` tells. `offsets` (parts + 1,): first
    entity of each part, and their number. `places`: range of each part's entities. `same` (n, 2):
    entities of a part that earlier parts have, and the first such entity.
    """

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self.topologies = [mesh.topology for mesh in meshes]
        within = [entity_offsets(topology) for topology in self.topologies]
        self.offsets = np.cumsum([0, *(each[-1] for each in within)])
        self.places = [slice(*ends) for ends in itertools.pairwise(self.offsets.tolist())]
        pairs = [np.zeros((0, 2), dtype=np.int64)]
        for kind in range(meshes[0].dim) if len(meshes) > 1 else ():
            first = self.offsets[:-1] + [each[kind] for each in within]
            for k, rows in enumerate(shared_entities(meshes, kind)):
                pairs.append(np.stack([first[k] + rows[:, 0], first[rows[:, 1]] + rows[:, 2]], 1))
        self.same = np.concatenate(pairs)

    def inside(self, p: int) -> Ints:
        """Number (n,) of the nodes of degree p inside each entity."""
        every = [topology.inside(k, p) for topology in self.topologies for k in topology.kinds]
        return np.concatenate(every)

    def first_touch(
        self, p: int, nonowned: NDArray[np.bool_] | None = None
    ) -> tuple[Ints, Codes, Ints]:
        """Assign dofs to the entities part by part; see the function `first_touch`.

        Shapes: `nonowned`, `starts`, `seen` (n,), `cuts` (parts + 1,).
        """
        skipped = np.zeros(self.offsets[-1], dtype=np.bool_) if nonowned is None else nonowned
        alone = nonowned is None and len(self.topologies) == 1
        skipped[self.same[:, 0]] = True
        starts, seen, cuts = list[Ints](), list[Codes](), [0]
        for topology, mine in zip(self.topologies, self.places, strict=True):
            first, turned, count = first_touch(topology, p, None if alone else skipped[mine])
            starts.append(cuts[-1] + first)
            seen.append(turned)
            cuts.append(cuts[-1] + count)
        return np.concatenate(starts), np.concatenate(seen), np.array(cuts)

    def dofs(
        self, p: int, starts: Ints, seen: Codes, cuts: Ints, parity: Ints | None = None
    ) -> list[Dofs]:
        """Dofs of the elements of each part, if each entity has consecutive dofs.

        Shapes: `starts`, `seen` (n,), `cuts` (parts + 1,), see `first_touch`.
        """
        later, earlier = self.same.T
        starts[later], seen[later] = starts[earlier], seen[earlier]
        found = []
        for k, (topology, mine) in enumerate(zip(self.topologies, self.places, strict=True)):
            each = node_dofs(topology, p, starts[mine], seen[mine], parity)
            found.append(Dofs(*each, int(cuts[k]) if len(self.topologies) > 1 else None))
        return found


def h1_numbering(
    meshes: Sequence[Mesh], p: int, parity: Ints | None = None
) -> tuple[list[Dofs], int]:
    """Dofs of the parts of an H1 space of degree p, and their number.

    For ``parity`` see `femops.element.Element`.
    """
    entities = Entities(meshes)
    starts, seen, cuts = entities.first_touch(p)
    return entities.dofs(p, starts, seen, cuts, parity), int(cuts[-1])


def l2_numbering(meshes: Sequence[Mesh], p: int) -> tuple[list[Dofs], int]:
    """Dofs of the parts of an L2 space of degree p, and their number."""
    shapes = [(mesh.num_elements, mesh.cell.size(p)) for mesh in meshes]
    ends, found = np.cumsum([a * b for a, b in shapes]).tolist(), list[Dofs]()
    for shape, end in zip(shapes, ends, strict=True):
        first = end - shape[0] * shape[1]
        indices = np.arange(first, end, dtype=np.int64).reshape(shape)
        found.append(Dofs(indices, first=first if len(meshes) > 1 else None))
    return found, ends[-1]


def entity_offsets(topology: Topology) -> Ints:
    """Start (dim + 2,) of each dimension in one list of all entities, and the end of the list.

    Vertices come first, then edges, faces and cells.
    """
    return np.concatenate(([0], np.cumsum(topology.num_entities)))


def first_touch(
    topology: Topology, p: int, nonowned: NDArray[np.bool_] | None = None
) -> tuple[Ints, Codes, int]:
    """Assign dofs to the entities by first touch.

    Shapes: `nonowned` (n,), `starts` (n,), `seen` (n,).
    """
    met, code, orientation = _touched.get(topology, lambda: _touch(topology))
    if nonowned is not None:
        owned = ~nonowned[met]
        met, code, orientation = met[owned], code[owned], orientation[owned]
    cell = topology.cell
    sizes = np.array([cell.inside(k, p) for k in range(len(cell.entities))])[code]
    starts = np.zeros(sum(topology.num_entities), dtype=np.int64)
    ends = np.cumsum(sizes)
    starts[met] = ends - sizes
    seen = np.zeros(len(starts), dtype=np.uint8)
    seen[met] = orientation
    return starts, seen, int(ends[-1]) if len(ends) else 0


# The order in which elements touch entities does not depend on the degree of a space.
_touched = Derived[Topology, tuple[NDArray[Any], Codes, Codes]]()


def _touch(topology: Topology) -> tuple[NDArray[Any], Codes, Codes]:
    """Entities in the order in which elements touch them.

    Shapes: `met`, `code`, `orientation` (n,).
    """
    codes = by_dimension(topology.cell)
    columns = np.array([code for code, _ in codes], dtype=np.uint8)
    kinds = np.array([kind for _, kind in codes], dtype=np.uint8)
    offsets = entity_offsets(topology)
    kept = np.int32 if offsets[-1] < 2**31 else np.int64
    entity, orientation = topology.carrying
    entities = (entity[:, columns] + offsets[kinds]).astype(kept).ravel()
    first = first_positions(entities, int(offsets[-1]))
    at = np.flatnonzero(first[entities] == np.arange(entities.size))
    return entities[at], columns[at % len(codes)], orientation[:, columns].reshape(-1)[at]


def node_dofs(
    topology: Topology, p: int, starts: Ints, seen: Codes, parity: Ints | None = None
) -> tuple[Ints, Flips]:
    """Dof (ne, nodes) of every local node, and flips, if each entity has consecutive dofs.

    Shapes: `starts`, `seen` (n,).
    """
    cell, offsets = topology.cell, entity_offsets(topology)
    carrying = topology.carrying
    indices = np.empty((len(topology.entity), cell.size(p)), dtype=np.int64)
    turned = [code for code, (k, _) in enumerate(cell.entities) if 0 < k < cell.dim]
    relative = {
        code: _relative_permutations(cell.turns(code, p), cell.entities[code][0], p - 1, parity)
        for code in turned
        if not cell.simplex or seen.any()  # simplices turn none, but other parts do
    }
    flipped = None if parity is None else np.zeros(indices.shape, dtype=np.bool_)
    parts = [(code, kind, cell.lattice(code, p)) for code, kind in by_dimension(cell)]
    parts = [part for part in parts if len(part[2])]
    step = max(1, _TOGETHER // indices.shape[1])

    def fill(begin: int) -> None:
        some = slice(begin, begin + step)  # the rows stay in cache
        entity, orientation = (each[some] for each in carrying)
        for code, kind, nodes in parts:
            entities = entity[:, code] + offsets[kind]
            inside = np.arange(nodes.size)
            if code in relative:
                places, minus = relative[code]
                turn = seen[entities], orientation[:, code]
                inside = places[turn]
                if flipped is not None:
                    flipped[some, nodes] = minus[turn]
            indices[some, nodes] = starts[entities, None] + inside

    deque(in_order(fill, range(0, len(indices), step)), maxlen=0)
    return indices, flipped


def first_positions(numbers: NDArray[Any], count: int) -> Ints:
    """Position (count,) of the first occurrence of 0 .. count - 1 in the flat array `numbers`."""
    first = np.empty(count, dtype=np.int64)
    # Of repeated indices the last assigned wins, so assigning backwards keeps the first.
    first[numbers[::-1]] = np.arange(numbers.size - 1, -1, -1)
    return first


def _relative_permutations(
    turns: Ints, kind: int, n: int, parity: Ints | None
) -> tuple[Ints, NDArray[np.bool_]]:
    """Permutations of an edge's (kind 1) or face's (2) functions from one orientation to another.

    Entry [i, o] has the place in orientation i of each function in orientation o, and whether it is
    minus that function. For ``turns`` see `Cell.turns`.
    """
    if parity is None:
        places = np.argsort(turns, axis=1)[:, turns]
        return places, np.zeros(places.shape, dtype=np.bool_)
    codes = range(2 ** (2 * kind - 1))
    # without the bits of reversed directions, which reverse no functions
    rows = np.array([entity_permutation(o & ~3, n, kind) for o in codes], dtype=np.int64)
    odd = parity < 0
    second = [np.logical_and(odd, o & 2) for o in codes] if kind == 2 else [np.zeros(1, bool)] * 2
    lines = [(b, np.logical_and(odd, o & 1)) for o, b in enumerate(second)]
    minus = np.array([np.logical_xor.outer(*each).ravel() for each in lines])
    places = np.argsort(rows, axis=1)[:, rows]
    return places, minus ^ np.take_along_axis(minus[:, np.newaxis], places, axis=2)


def boundary_nodes(faces: Ints, cell: Cell, p: int, indices: Ints) -> Ints:
    """Ascending dofs (k,) on faces (nf, 2), which are elements and codes."""
    found = [
        indices[faces[faces[:, 1] == code, 0][:, None], cell.closed_lattice(code, p)]
        for code in cell.face_codes
    ]
    return distinct(np.concatenate([dofs.ravel() for dofs in found]))


def distinct(numbers: Ints) -> Ints:
    """Return the distinct numbers among non-negative ``numbers`` (n,), ascending.

    The result is that of `numpy.unique`, which takes about ten times as long for many numbers.
    """
    span = int(numbers.max(initial=-1)) + 1
    if span > _SPARSE * len(numbers):
        return np.unique(numbers)
    present = np.zeros(span, dtype=bool)
    present[numbers] = True
    return np.flatnonzero(present)
