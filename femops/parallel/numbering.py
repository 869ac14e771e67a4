"""Numbering of the dofs of a distributed mesh.

The lowest rank that touches a vertex, edge or face owns the entity and its dofs. A rank numbers its
owned dofs first, by the rules of `femops.numbering`. Then come its *ghosts*, the other dofs that it
touches. They are sorted by owner, then by the owner's number. The global number of a dof is its
number on its owner plus the number of dofs of all lower ranks. So if each part has consecutive
elements of the global mesh, the global numbers are the numbers of the undivided mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.numbering import Flips, entity_offsets, first_touch, node_dofs
from femops.parallel.comm import Communicator
from femops.parallel.sharing import shared_entities
from femops_meshes.partitioning.parts import Part
from femops_meshes.topology.topology import Topology

Codes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False, repr=False)
class RankNumbering:
    """Dofs that a rank touches. `h1_rank_numbering` and `l2_rank_numbering` make it."""

    rank: int  # the rank
    # shape (ne, (p + 1)**dim) int64: dof at each local node (lexicographic, x fastest) of the
    # elements, by its number on the rank. Owned dofs come first, then ghosts.
    indices: Ints
    # shape (size + 1,) int64: rank r owns the global dofs offsets[r] to offsets[r + 1] - 1
    offsets: Ints
    ghosts: Ints  # shape (nghosts,) int64: global number of each ghost, ascending
    flipped: Flips = None

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for array in (self.indices, self.offsets, self.ghosts):
            array.setflags(write=False)

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
    topology = part.mesh.topology
    kinds = range(part.mesh.dim) if p > 1 else [0]  # entities with nodes inside
    shared = shared_entities(part, kinds, comm)
    owner = np.full(entity_offsets(topology)[-1], part.rank, dtype=np.int64)
    for rank, entities in shared.items():
        owner[entities] = np.minimum(owner[entities], rank)
    starts, seen, owned = first_touch(topology, p, owner < part.rank)
    theirs = _as_owners_have_them(shared, owner, starts, seen, comm)
    offsets = _offsets(owned, comm)
    ghosts = _add_ghosts(topology, p, theirs, offsets, (starts, seen), owned)
    indices, flipped = node_dofs(topology, p, starts, seen, parity)
    return RankNumbering(part.rank, indices, offsets, ghosts, flipped)


def l2_rank_numbering(part: Part, p: int, comm: Communicator) -> RankNumbering:
    """Number the dofs of an L2 space of degree p on the rank's part. Collective.

    Ranks share no dofs.
    """
    _check_parts(part, p, 0, comm)
    shape = part.mesh.num_elements, (p + 1) ** part.mesh.dim
    indices = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape)
    return RankNumbering(
        part.rank, indices, _offsets(indices.size, comm), np.empty(0, dtype=np.int64)
    )


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
    topology: Topology,
    p: int,
    theirs: Ints,
    offsets: Ints,
    numbers: tuple[Ints, Codes],
    owned: int,
) -> Ints:
    """Number the ghosts after the owned dofs. Return their global numbers."""
    entities, owner, first, order = theirs
    kinds = np.searchsorted(entity_offsets(topology), entities, side="right") - 1
    sizes = (p - 1) ** kinds
    local = np.cumsum(sizes) - sizes
    starts, seen = numbers
    starts[entities], seen[entities] = owned + local, order
    shift = offsets[owner] + first - local
    return np.asarray(np.repeat(shift, sizes) + np.arange(sizes.sum()))
