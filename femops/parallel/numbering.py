"""Entities that ranks share, and the numbering of the dofs of a distributed mesh.

The lowest rank that touches a vertex, edge or face owns the entity and its dofs. A rank numbers its
owned dofs first, by the rules of `femops.numbering`. Then come its *ghosts*, the other dofs that it
touches. They are sorted by owner, then by the owner's number. The global number of a dof is its
number on its owner plus the number of dofs of all lower ranks. So if each part has consecutive
elements of the global mesh, the global numbers are the numbers of the undivided mesh.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.numbering import Dofs, Entities, entity_offsets, l2_numbering
from femops.parallel.comm import Array, Communicator
from femops_meshes.mesh import Mesh
from femops_meshes.partitioning.parts import Part

Ints = NDArray[np.int64]


def shared_vertices(vertices: Ints, count: int, comm: Communicator) -> dict[int, Ints]:
    """Places, for each other rank, of the vertices that it gives too. Collective.

    Shapes: `vertices` (n,), ascending numbers in a mesh of `count` vertices.
    """
    length = -(-count // comm.size)
    told = comm.exchange(_grouped(vertices // length, vertices))
    answers = comm.exchange(_who_else(told))
    none = np.empty((0, 2), dtype=np.int64)
    pairs = np.concatenate([none, *(answer.reshape(-1, 2) for answer in answers.values())])
    by_rank = _grouped(pairs[:, 1], pairs[:, 0])
    return {rank: np.searchsorted(vertices, found) for rank, found in by_rank.items()}


def shared_entities(
    part: Part, entities: Entities, kinds: Sequence[int], comm: Communicator
) -> dict[int, Ints]:
    """Entities of this rank, given as a list, that other ranks touch too. Collective.

    If several parts of a mesh have an entity, it is that of the first one.
    """
    known = shared_vertices(part.vertices, part.num_vertices, comm)
    between = np.zeros(len(part.vertices) + 1, dtype=bool)
    between[-1] = True  # index -1 stands for no vertex
    touched = between.copy()
    for vertices in known.values():
        touched[vertices] = True
    found, corners = _entities_between(part, entities, kinds, touched)
    names, mine = np.append(part.vertices, -1), {}
    for rank, vertices in known.items():
        between[vertices] = True
        mine[rank] = np.flatnonzero(between[corners].all(axis=1))
        between[vertices] = False
    named = {rank: names[corners[places]] for rank, places in mine.items()}
    theirs = comm.exchange(named)
    return {rank: found[mine[rank][_common(rows, theirs[rank])]] for rank, rows in named.items()}


def _who_else(told: dict[int, Ints]) -> dict[int, Array]:
    """Other ranks at each vertex: {rank: (n, 2) vertices of the rank, and another rank there}.

    ``told`` has the vertices that each rank touches. Rows ascend by vertex.
    """
    none = np.empty(0, dtype=np.int64)
    ranks = np.repeat([*told], [len(vertices) for vertices in told.values()]).astype(np.int64)
    vertices = np.concatenate([none, *told.values()])
    order = np.argsort(vertices, kind="stable")
    vertices, ranks = vertices[order], ranks[order]
    _, first, run, length = np.unique(
        vertices, return_index=True, return_inverse=True, return_counts=True
    )
    # each entry with all of its run
    entry = np.repeat(np.arange(len(run)), length[run])
    place = np.arange(len(entry)) - np.repeat(np.cumsum(length[run]) - length[run], length[run])
    other = first[run[entry]] + place
    entry, other = entry[entry != other], other[entry != other]
    return _grouped(ranks[entry], np.stack([vertices[entry], ranks[other]], axis=1))


def _entities_between(
    part: Part, entities: Entities, kinds: Sequence[int], touched: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the entities with only ``touched`` vertices, and their vertices (n, width).

    A row of vertices has numbers in the part, ascending, then -1.
    """
    meshes = [one.mesh for one in part.parts]
    most = max(len(mesh.cell.entities[c][1]) for mesh in meshes for c in mesh.cell.codes(kinds[-1]))
    numbers, rows = [], []
    for mesh, first in zip(meshes, entities.offsets, strict=False):
        for number, corners in _of_kinds(mesh, kinds, touched):
            numbers.append(first + number)
            missing = [(0, 0), (0, most - corners.shape[1])]
            rows.append(np.pad(corners, missing, constant_values=-1))
    number, corners = np.concatenate(numbers), np.concatenate(rows)
    alone = ~np.isin(number, entities.same[:, 0])
    return number[alone], corners[alone]


def _of_kinds(
    mesh: Mesh, kinds: Sequence[int], touched: NDArray[np.bool_]
) -> Iterator[tuple[Ints, Ints]]:
    """Entities with only ``touched`` vertices, and these, ascending, by number of vertices."""
    topology, cell = mesh.topology, mesh.cell
    entity, offsets = topology.carrying[0], entity_offsets(topology)
    vertices = entity[:, cell.codes(0)]
    near = np.flatnonzero((touched[mesh.elements] | touched[vertices]).any(axis=1))
    own, entity = topology.entity[near], entity[near]
    elements, vertices = mesh.elements[near], vertices[near]
    for kind, codes in [(k, codes) for k in kinds for codes in cell.alike(k)]:
        places = [cell.entities[code][1] for code in codes]
        larger = (own[:, codes] != entity[:, codes]) | (kind == 0)
        corners = np.where(larger[..., np.newaxis], vertices[:, places], elements[:, places])
        inside = touched[corners].all(axis=-1)
        number, first = np.unique(entity[:, codes][inside], return_index=True)
        yield offsets[kind] + number, np.sort(corners[inside][first], axis=1)


def _common(mine: Ints, theirs: Array) -> Ints:
    """Indices of the rows of ``mine`` (n, width) that are also in ``theirs``, by ascending row."""
    both = np.concatenate([mine, theirs.reshape(-1, mine.shape[1])])
    _, first, count = np.unique(both, axis=0, return_index=True, return_counts=True)
    return np.asarray(first[count == 2])


def _grouped(keys: Ints, rows: Ints) -> dict[int, Array]:
    """Group rows by their keys: {key: rows}, by ascending key. Rows keep their order."""
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    cuts = itertools.pairwise([*first.tolist(), len(keys)])
    return {int(key): rows[order[a:b]] for key, (a, b) in zip(found, cuts, strict=True)}


Codes = NDArray[np.uint8]


@final
@dataclass(frozen=True, eq=False, repr=False)
class RankNumbering:
    """Dofs that a rank touches. `h1_rank_numbering` and `l2_rank_numbering` make it."""

    rank: int  # the rank
    # of each part of the mesh: the dofs of the elements, by their numbers on the rank. Owned dofs
    # come first, then ghosts.
    dofs: Sequence[Dofs]
    # shape (size + 1,) int64: rank r owns the global dofs offsets[r] to offsets[r + 1] - 1
    offsets: Ints
    ghosts: Ints  # shape (nghosts,) int64: global number of each ghost, ascending

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for array in (self.offsets, self.ghosts, *(each.indices for each in self.dofs)):
            array.setflags(write=False)

    @property
    def indices(self) -> Ints:
        """Dof (ne, nodes) at each local node of the elements of a mesh of one shape."""
        (only,) = self.dofs
        return only.indices

    @property
    def owned(self) -> int:
        """Number of dofs that the rank owns. Their numbers are 0 to owned - 1."""
        return int(self.offsets[self.rank + 1] - self.offsets[self.rank])

    @property
    def ndofs(self) -> int:
        """Number of dofs that the rank touches."""
        return self.owned + len(self.ghosts)

    @property
    def whole(self) -> Ints:
        """Global number (ndofs,) of each dof that the rank touches."""
        return np.concatenate([self.offsets[self.rank] + np.arange(self.owned), self.ghosts])

    def __repr__(self) -> str:
        return (
            f"RankNumbering(rank {self.rank} owns {self.owned} of {self.offsets[-1]} dofs, "
            f"{len(self.ghosts)} ghosts)"
        )


def h1_rank_numbering(
    part: Part, p: int, comm: Communicator, parity: Ints | None = None
) -> RankNumbering:
    """Number the dofs of an H1 space of degree p on the rank's part. Collective."""
    _check_parts(part, p, 1, comm)
    entities = Entities([one.mesh for one in part.parts])
    kinds = range(part.mesh.dim) if p > 1 else [0]  # entities with nodes inside
    shared = shared_entities(part, entities, kinds, comm)
    owner = np.full(entities.offsets[-1], part.rank, dtype=np.int64)
    for rank, some in shared.items():
        owner[some] = np.minimum(owner[some], rank)
    starts, seen, cuts = entities.first_touch(p, owner < part.rank)
    theirs = _as_owners_have_them(shared, owner, starts, seen, comm)
    offsets = _offsets(int(cuts[-1]), comm)
    ghosts = _add_ghosts(entities.inside(p), theirs, offsets, (starts, seen), int(cuts[-1]))
    dofs = entities.dofs(p, starts, seen, cuts, parity)
    return RankNumbering(part.rank, dofs, offsets, ghosts)


def l2_rank_numbering(part: Part, p: int, comm: Communicator) -> RankNumbering:
    """Number the dofs of an L2 space of degree p on the rank's part. Collective.

    Ranks share no dofs.
    """
    _check_parts(part, p, 0, comm)
    dofs, count = l2_numbering([one.mesh for one in part.parts], p)
    return RankNumbering(part.rank, dofs, _offsets(count, comm), np.empty(0, dtype=np.int64))


def _check_parts(part: Part, p: int, least: int, comm: Communicator) -> None:
    """Check the parts and the degree on all ranks. Either all ranks raise or none. Collective."""
    row = [part.rank, part.size, p, part.mesh.dim, part.num_elements, part.num_vertices]
    table = comm.gather_all(np.array([*row, len(part.elements)], dtype=np.int64))
    wrong = np.flatnonzero((table[:, 0] != np.arange(comm.size)) | (table[:, 1] != comm.size))
    if len(wrong):
        rank, (number, size) = int(wrong[0]), table[wrong[0], :2]
        raise SpaceError(
            f"rank {rank} of {comm.size} has part {number} of {size}: give each rank the part of "
            "its own number, of a partition into as many parts as ranks"
        )
    names = ("order", "dimension of the mesh", "elements of the mesh", "vertices of the mesh")
    for name, column in zip(names, table[:, 2:6].T, strict=True):
        differing = np.flatnonzero(column != column[0])
        if len(differing):
            raise SpaceError(
                f"{name}: {column[0]} on rank 0, {column[differing[0]]} on rank {differing[0]}: "
                "give all ranks the same order, and parts of the same mesh"
            )
    if p < least:
        raise SpaceError(f"order is {p}, it must be at least {least}")
    if table[:, 6].sum() != part.num_elements:
        raise SpaceError(
            f"the ranks' parts have {table[:, 6].sum()} elements together, the mesh has "
            f"{part.num_elements}: make all parts by one partition"
        )


def _as_owners_have_them(
    shared: dict[int, Ints], owner: Ints, starts: Ints, seen: Codes, comm: Communicator
) -> Ints:
    """Get the numbers of entities that other ranks own from their owners. Collective.

    Each column of the result (4, n) has an entity, its owner, and its ``starts`` and ``seen`` on
    the owner. Columns are sorted by owner, then by start.
    """
    offers = {}
    for rank, entities in shared.items():
        mine = entities[owner[entities] == comm.rank]
        if len(mine):
            offers[rank] = np.stack([starts[mine], seen[mine]])
    columns = [np.empty((4, 0), dtype=np.int64)]
    for rank, offer in comm.exchange(offers).items():
        entities = shared[rank][owner[shared[rank]] == rank]
        first, order = offer.reshape(2, -1)
        columns.append(np.stack([entities, np.full_like(entities, rank), first, order]))
    found = np.concatenate(columns, axis=1)
    return found[:, np.lexsort((found[2], found[1]))]


def _offsets(owned: int, comm: Communicator) -> Ints:
    counts = comm.gather_all(np.array([owned], dtype=np.int64))
    return np.concatenate(([0], np.cumsum(counts)))


def _add_ghosts(
    inside: Ints, theirs: Ints, offsets: Ints, numbers: tuple[Ints, Codes], owned: int
) -> Ints:
    """Number the ghosts after the owned dofs. Return their global numbers.

    ``inside`` (n,): number of dofs inside each entity.
    """
    entities, owner, first, order = theirs
    sizes = inside[entities]
    local = np.cumsum(sizes) - sizes
    starts, seen = numbers
    starts[entities], seen[entities] = owned + local, order
    shift = offsets[owner] + first - local
    return np.asarray(np.repeat(shift, sizes) + np.arange(sizes.sum()))
