"""Faces and entities that the parts of a mesh of several shapes share."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import outward_corners

Ints = NDArray[np.int64]


def faces_of_one(part: Mesh) -> Ints:
    """Numbers of the faces of one element."""
    faces = part.topology.faces
    return np.flatnonzero((faces[:, 0] >= 0) & (faces[:, 1] < 0))


def sides_of(part: Mesh, faces: Ints) -> Ints:
    """Element and code (n, 2) of faces of one element."""
    topology = part.topology
    return np.stack([topology.faces[faces, 0], topology.face_codes[faces, 0]], axis=1)


def sorted_corners(rows: Ints) -> Ints:
    """Sorted vertices (n, 4) of faces, of which some may have less: -1 first."""
    return np.sort(np.pad(rows, [(0, 0), (0, 4 - rows.shape[1])], constant_values=-1), axis=1)


def corner_keys(parts: Sequence[Mesh], sides: Sequence[Ints]) -> Ints:
    """Sorted vertices (n, 4) of faces (k, 2), elements and codes, of each part."""
    rows = [
        outward_corners(part.elements, own, part.cell)
        for part, own in zip(parts, sides, strict=True)
    ]
    return np.concatenate([sorted_corners(each) for each in rows])


def equal_rows(rows: Ints) -> tuple[Ints, Ints]:
    """Places (k,) of the first and of the second of two equal rows (n, 4)."""
    order = np.lexsort(rows.T)
    same = (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
    return order[:-1][same], order[1:][same]


def faces_between(parts: Sequence[Mesh]) -> Iterator[tuple[int, int, Ints, Ints]]:
    """Two parts, and elements and codes (n, 2) of the faces between them, in both."""
    sides = [sides_of(part, faces_of_one(part)) for part in parts]
    owner = np.repeat(np.arange(len(parts)), [len(each) for each in sides])
    first, second = equal_rows(corner_keys(parts, sides))
    every = np.concatenate(sides)
    for i, j in combinations(range(len(parts)), 2):
        some = np.flatnonzero((owner[first] == i) & (owner[second] == j))
        if len(some):
            yield i, j, every[first[some]], every[second[some]]


def inner_faces(parts: Sequence[Mesh]) -> tuple[Ints, Ints]:
    """Elements, counted over all parts, and codes (n, 2) on both sides of all inner faces."""
    starts = np.cumsum([0, *(part.num_elements for part in parts)])
    elements, codes = list[Ints](), list[Ints]()
    for first, part in zip(starts, parts, strict=False):
        two = (part.topology.faces >= 0).all(axis=1)
        elements.append(first + part.topology.faces[two])
        codes.append(part.topology.face_codes[two].astype(np.int64))
    for i, j, one, other in faces_between(parts) if len(parts) > 1 else ():
        elements.append(np.stack([starts[i] + one[:, 0], starts[j] + other[:, 0]], axis=1))
        codes.append(np.stack([one[:, 1], other[:, 1]], axis=1))
    return np.concatenate(elements), np.concatenate(codes)


def numbered_entities(parts: Sequence[Mesh], kind: int) -> list[Ints]:
    """Numbers (n,) over all parts of the entities of a dimension of each part."""
    if kind == 0 or len(parts) == 1:
        return [np.arange(part.topology.num_entities[kind]) for part in parts]
    found, count = list[Ints](), 0
    for part, rows in zip(parts, shared_entities(parts, kind), strict=True):
        number = np.full(part.topology.num_entities[kind], -1)
        for j in np.unique(rows[:, 1]).tolist():
            mine, _, theirs = rows[rows[:, 1] == j].T
            number[mine] = found[j][theirs]
        new = np.flatnonzero(number < 0)
        number[new] = count + np.arange(len(new))
        found.append(number)
        count += len(new)
    return found


def shared_entities(parts: Sequence[Mesh], kind: int) -> list[Ints]:
    """Numbers (k,) of the entities of each part that earlier parts have, with those there.

    Rows (k, 3): entity of the part, earlier part, its entity. Of several earlier parts it is the
    first. Entities that parts share lie in faces of one element.
    """
    numbers, rows, owner = [], [], []
    for k, part in enumerate(parts):
        for entity, corners in _outer_entities(part, kind):
            numbers.append(entity)
            rows.append(sorted_corners(corners))
            owner.append(np.full(len(entity), k))
    number, key, of = np.concatenate(numbers), np.concatenate(rows), np.concatenate(owner)
    order = np.lexsort((of, *key.T))
    number, key, of = number[order], key[order], of[order]
    new = np.ones(len(key), dtype=np.bool_)
    new[1:] = (key[1:] != key[:-1]).any(axis=1)
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    found = []
    for k in range(len(parts)):
        mine = np.flatnonzero((of == k) & (of[first] < k))
        found.append(np.stack([number[mine], of[first[mine]], number[first[mine]]], axis=1))
    return found


def _outer_entities(part: Mesh, kind: int) -> Iterator[tuple[Ints, Ints]]:
    """Distinct entities of a dimension in faces of one element, with their vertices, by shape."""
    topology, cell = part.topology, part.cell
    marked = np.zeros(topology.num_entities[kind], dtype=np.bool_)
    sides = sides_of(part, faces_of_one(part))
    for code in cell.face_codes:
        inside = {*cell.entities[code][1]}
        codes = [c for c in cell.codes(kind) if {*cell.entities[c][1]} <= inside]
        marked[topology.entity[sides[sides[:, 1] == code, 0]][:, codes]] = True
    for codes in cell.alike(kind):
        entity = topology.entity[:, codes].ravel()
        places = np.flatnonzero(marked[entity])
        some, at = np.unique(entity[places], return_index=True)
        corners = part.elements[:, [cell.entities[c][1] for c in codes]]
        yield some, corners.reshape(len(entity), corners.shape[-1])[places[at]]
