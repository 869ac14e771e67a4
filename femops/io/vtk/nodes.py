"""Lagrange cells of VTK: their types, and the order of their nodes."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from femops.errors import GeometryError
from femops_meshes.coordinates import simplices
from femops_meshes.topology.entities import PRISM, Cell

CELL_TYPES = {
    "segment": 68,
    "triangle": 69,
    "quadrilateral": 70,
    "tetrahedron": 71,
    "hexahedron": 72,
    "prism": 73,
}
"""VTK_LAGRANGE_CURVE, _TRIANGLE, _QUADRILATERAL, _TETRAHEDRON, _HEXAHEDRON and _WEDGE."""

# Where an entity lies in each direction: at the low end, in the interior, at the high end.
_L, _I, _H = 0, 1, 2
_SQUARE_CORNERS = [(_L, _L), (_H, _L), (_H, _H), (_L, _H)]
_SQUARE_EDGES = [(_I, _L), (_H, _I), (_I, _H), (_L, _I)]
_ENTITIES: dict[int, list[tuple[int, ...]]] = {
    1: [(_L,), (_H,), (_I,)],
    2: [*_SQUARE_CORNERS, *_SQUARE_EDGES, (_I, _I)],
    3: [
        *((*corner, z) for z in (_L, _H) for corner in _SQUARE_CORNERS),
        *((*edge, z) for z in (_L, _H) for edge in _SQUARE_EDGES),
        *((*corner, _I) for corner in _SQUARE_CORNERS),
        *((_L, _I, _I), (_H, _I, _I), (_I, _L, _I), (_I, _H, _I), (_I, _I, _L), (_I, _I, _H)),
        (_I, _I, _I),
    ],
}


@lru_cache
def vtk_order(dim: int, degree: int, *, in_memory: bool = False) -> NDArray[np.int64]:
    """Lexicographic index ((p + 1)**dim,) of each node in VTK's order, in a file or in memory.

    Shapes: returned ((p + 1)**dim,).
    """
    if dim not in _ENTITIES or degree < 1:
        raise GeometryError(
            f"VTK has no Lagrange cell of dimension {dim} and degree {degree}: "
            "take dimension 1 to 3 and degree 1 or more"
        )
    entities = list(_ENTITIES[dim])
    if dim == 3 and not in_memory:
        entities[18:20] = entities[19], entities[18]
    ends = {_L: range(1), _I: range(1, degree), _H: range(degree, degree + 1)}
    order = [
        sum(j * (degree + 1) ** d for d, j in enumerate(reversed(index)))
        for entity in entities
        for index in product(*(ends[place] for place in reversed(entity)))
    ]
    result = np.array(order, dtype=np.int64)
    result.setflags(write=False)
    return result


_FACES = {3: ((0, 1, 3), (2, 3, 1), (0, 3, 2), (0, 2, 1))}
_EDGES = {2: ((0, 1), (1, 2), (2, 0)), 3: ((0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3))}


def simplex_nodes(dim: int, degree: int) -> list[tuple[int, ...]]:
    """Barycentric indices of the nodes of a simplex of VTK: corners, edges, faces, inside."""
    if degree == 0:
        return [(0,) * (dim + 1)]
    corners = [tuple(degree * (k == j) for k in range(dim + 1)) for j in range(dim + 1)]
    if dim == 0 or degree < 0:
        return corners if degree >= 0 else []
    nodes = list(corners)
    for a, b in _EDGES[dim]:
        nodes += [
            tuple((degree - j) * (k == a) + j * (k == b) for k in range(dim + 1))
            for j in range(1, degree)
        ]
    inner = degree - dim - 1
    if dim == 3:
        for face in _FACES[dim]:
            for row in simplex_nodes(2, degree - 3) if degree > 2 else []:
                shares = dict(zip(face, row, strict=True))
                nodes.append(tuple(shares[k] + 1 if k in shares else 0 for k in range(4)))
    if inner >= 0:
        nodes += [tuple(n + 1 for n in row) for row in simplex_nodes(dim, inner)]
    return nodes


@lru_cache
def simplex_order(cell: Cell, degree: int, *, mirrored: bool) -> NDArray[np.int64]:
    """Index (size,) of each node in VTK's order among those of `simplices.lattice`.

    A mirrored simplex has its first two corners exchanged.
    """
    place = {tuple(row): k for k, row in enumerate(simplices.lattice(cell, degree).tolist())}
    order = (1, 0, *range(2, cell.dim + 1)) if mirrored else (*range(cell.dim + 1),)
    rows = [
        tuple(row[order[k]] for k in range(cell.dim + 1)) for row in simplex_nodes(cell.dim, degree)
    ]
    result = np.array([place[row] for row in rows], dtype=np.int64)
    result.setflags(write=False)
    return result


_PRISM_EDGES = ((0, 1), (1, 2), (2, 0))


def prism_nodes(p: int) -> list[tuple[int, ...]]:
    """Barycentric indices in the triangle, and the index along the prism, in VTK's order."""
    corners = [tuple(p * (k == j) for k in range(3)) for j in range(3)]
    inner, flat = range(1, p), simplex_nodes(2, p)
    edges, inside = flat[3 : 3 * p], flat[3 * p :]
    # inside a triangle VTK's nodes of a prism are by rows, those of a triangle by rings
    inside.sort(key=lambda row: (row[2], row[1]))
    nodes = [(*row, level) for level in (0, p) for row in corners]
    nodes += [(*row, level) for level in (0, p) for row in edges]
    nodes += [(*row, level) for row in corners for level in inner]
    nodes += [(*row, level) for level in (0, p) for row in inside]
    for a, b in _PRISM_EDGES:
        for level in inner:
            for j in inner:
                row = [0, 0, 0]
                row[a], row[b] = p - j, j
                nodes.append((*row, level))
    return nodes + [(*row, level) for level in inner for row in inside]


@lru_cache
def prism_order(degree: int) -> NDArray[np.int64]:
    """Index (size,) of each node in VTK's order among those of `simplices.lattice` of a prism."""
    place = {tuple(row): k for k, row in enumerate(simplices.lattice(PRISM, degree).tolist())}
    result = np.array([place[row] for row in prism_nodes(degree)], dtype=np.int64)
    result.setflags(write=False)
    return result
