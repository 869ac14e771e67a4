"""Gmsh's types of elements, and the order of the nodes of its complete Lagrange elements.

Source: the Gmsh reference manual, "Node ordering": corners, then the inside of each edge, then of
each face, then of the volume. The inside of a face or volume is numbered like an element of degree
p - 2. Nodes are equispaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Kind:
    """Type of element: its dimension, degree, number of nodes, and Gmsh's word for its shape."""

    dim: int
    degree: int
    size: int
    shape: str


COMPLETE = {
    "Line": (1, 8, 26, 27, 28, 62, 63, 64, 65, 66),
    "Triangle": (2, 9, 21, 23, 25, 42, 43, 44, 45, 46),
    "Quadrilateral": (3, 10, 36, 37, 38, 47, 48, 49, 50, 51),
    "Tetrahedron": (4, 11, 29, 30, 31, 71, 72, 73, 74, 75),
    "Hexahedron": (5, 12, 92, 93, 94, 95, 96, 97, 98),
    "Prism": (6, 13, 90, 91, 106, 107, 108, 109, 110),
    "Pyramid": (7, 14, 118, 119, 120, 121, 122, 123, 124),
}
"""Type numbers of the complete elements of degree 1, 2, ..."""

_INCOMPLETE = {
    ("Triangle", 3): (20, 22, 24, 52, 53, 54, 55, 56),
    ("Quadrilateral", 2): (16, 39, 40, 41, 57, 58, 59, 60, 61),
    ("Tetrahedron", 3): (137, 32, 33, 79, 80, 81, 82, 83),
    ("Hexahedron", 2): (17, 99, 100, 101, 102, 103, 104, 105),
    ("Prism", 2): (18, 111, 112, 113, 114, 115, 116, 117),
    ("Pyramid", 2): (19, 125, 126, 127, 128, 129, 130, 131),
}
"""Type numbers of the elements without nodes inside faces, by shape and lowest degree."""

_DIMS = {"Line": 1, "Triangle": 2, "Quadrilateral": 2}
_CORNERS_EDGES = {
    "Triangle": (3, 3),
    "Quadrilateral": (4, 4),
    "Tetrahedron": (4, 6),
    "Hexahedron": (8, 12),
    "Prism": (6, 9),
    "Pyramid": (5, 8),
}


def _complete_size(shape: str, degree: int) -> int:
    n = degree + 1
    return {
        "Line": n,
        "Triangle": n * (n + 1) // 2,
        "Quadrilateral": n**2,
        "Tetrahedron": n * (n + 1) * (n + 2) // 6,
        "Hexahedron": n**3,
        "Prism": n * n * (n + 1) // 2,
        "Pyramid": n * (n + 1) * (2 * n + 1) // 6,
    }[shape]


def _kinds() -> Iterator[tuple[int, Kind]]:
    yield 15, Kind(0, 0, 1, "Point")
    for shape, numbers in COMPLETE.items():
        for p, number in enumerate(numbers, 1):
            yield number, Kind(_DIMS.get(shape, 3), p, _complete_size(shape, p), shape)
    for (shape, lowest), numbers in _INCOMPLETE.items():
        corners, edges = _CORNERS_EDGES[shape]
        for p, number in enumerate(numbers, lowest):
            yield number, Kind(_DIMS.get(shape, 3), p, corners + edges * (p - 1), shape)


KINDS = dict(_kinds())
"""Gmsh's types of elements by number."""

ELEMENTS = {
    dim: {number: p for p, number in enumerate(COMPLETE[shape], 1)}
    for dim, shape in {1: "Line", 2: "Quadrilateral", 3: "Hexahedron"}.items()
}
"""Degree by Gmsh's type number, of lines, quadrangles and hexahedra."""

_SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
_CORNERS = {
    1: [(0,), (1,)],
    2: _SQUARE,
    3: [(*corner, z) for z in (0, 1) for corner in _SQUARE],
}
_EDGES = {
    1: [(0, 1)],
    2: [(0, 1), (1, 2), (2, 3), (3, 0)],
    3: [
        *((0, 1), (0, 3), (0, 4), (1, 2), (1, 5), (2, 3)),
        *((2, 6), (3, 7), (4, 5), (4, 7), (5, 6), (6, 7)),
    ],
}
_FACES = [(0, 3, 2, 1), (0, 1, 5, 4), (0, 4, 7, 3), (1, 2, 6, 5), (2, 3, 7, 6), (4, 5, 6, 7)]


@lru_cache
def gmsh_order(dim: int, degree: int) -> Ints:
    """Index in Gmsh's order of each lexicographic node, ((p + 1)**dim,).

    Shapes: returned ((p + 1)**dim,).
    """
    powers = (degree + 1) ** np.arange(dim)
    result = np.empty((degree + 1) ** dim, dtype=np.int64)
    result[lattice(dim, degree) @ powers] = np.arange(len(result))
    result.setflags(write=False)
    return result


def lattice(dim: int, degree: int) -> Ints:
    """Position (n, dim) of each node in Gmsh's order, as whole numbers from 0 to the degree."""
    if degree <= 0:
        return np.zeros((int(degree == 0), dim), dtype=np.int64)
    corners = np.array(_CORNERS[dim], dtype=np.int64)
    parts = [corners * degree]
    for first, last in _EDGES[dim]:
        steps = np.arange(1, degree)[:, None]
        parts.append(corners[first] * degree + steps * (corners[last] - corners[first]))
    if dim == 3 and degree > 1:
        parts += [_face(corners, face, degree) for face in _FACES]
    if dim > 1 and degree > 1:
        parts.append(lattice(dim, degree - 2) + 1)
    return np.concatenate(parts)


def _face(corners: Ints, face: tuple[int, ...], degree: int) -> Ints:
    """Nodes inside a face. Their first direction leads from the first corner to the second."""
    origin, first, _, second = corners[list(face)]
    inside = lattice(2, degree - 2) + 1
    nodes: Ints = origin * degree + inside @ np.stack([first - origin, second - origin])
    return nodes
