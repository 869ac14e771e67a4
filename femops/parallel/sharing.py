"""Vertices, edges and faces of a distributed mesh that several ranks touch.

A vertex is identified by its global number, an edge or a face by the numbers of its vertices. In a
locally refined mesh the entities are those that carry dofs. So ranks that have but pieces of a
larger edge or face find each other by its vertices.

The vertex numbers are cut into one range per rank. All ranks that touch a vertex send its number to
the rank of its range. That rank tells each sender the other ranks at the vertex. Then ranks that
share vertices compare the entities between these vertices.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from femops.numbering import entity_offsets
from femops.parallel.comm import Array, Communicator
from femops_meshes.partitioning.parts import Part
from femops_meshes.topology.topology import entity_codes, entity_corners

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


def shared_entities(part: Part, kinds: Sequence[int], comm: Communicator) -> dict[int, Ints]:
    """Entities of this part that other ranks touch too. Collective."""
    known = shared_vertices(part.vertices, part.num_vertices, comm)
    between = np.zeros(len(part.vertices) + 1, dtype=bool)
    between[-1] = True  # index -1 stands for no vertex
    touched = between.copy()
    for vertices in known.values():
        touched[vertices] = True
    entities, corners = _entities_between(part, kinds, touched)
    names, mine = np.append(part.vertices, -1), {}
    for rank, vertices in known.items():
        between[vertices] = True
        mine[rank] = np.flatnonzero(between[corners].all(axis=1))
        between[vertices] = False
    named = {rank: names[corners[places]] for rank, places in mine.items()}
    theirs = comm.exchange(named)
    return {rank: entities[mine[rank][_common(rows, theirs[rank])]] for rank, rows in named.items()}


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
    part: Part, kinds: Sequence[int], touched: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the entities with only ``touched`` vertices, and their vertices (n, width).

    Entities are numbered as in `entity_offsets`. A row of vertices has numbers in the part,
    ascending, then -1.
    """
    mesh, topology = part.mesh, part.mesh.topology
    entity = topology.carrying[0]
    vertices = entity[:, entity_codes(mesh.dim, 0)]
    near = np.flatnonzero((touched[mesh.elements] | touched[vertices]).any(axis=1))
    own, entity = topology.entity[near], entity[near]
    elements, vertices = mesh.elements[near], vertices[near]
    offsets, width = entity_offsets(topology), 2 ** max(kinds)
    numbers, rows = [], []
    for kind in kinds:
        codes = list(entity_codes(mesh.dim, kind))
        places = [entity_corners(mesh.dim, code) for code in codes]
        larger = (own[:, codes] != entity[:, codes]) | (kind == 0)
        corners = np.where(larger[..., np.newaxis], vertices[:, places], elements[:, places])
        inside = touched[corners].all(axis=-1)
        number, first = np.unique(entity[:, codes][inside], return_index=True)
        ascending = np.sort(corners[inside][first], axis=1)
        numbers.append(offsets[kind] + number)
        missing = [(0, 0), (0, width - 2**kind)]
        rows.append(np.pad(ascending, missing, constant_values=-1))
    return np.concatenate(numbers), np.concatenate(rows)


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
