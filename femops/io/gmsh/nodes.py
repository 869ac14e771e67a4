"""Gmsh's order of the nodes of its complete Lagrange elements.

Source: the Gmsh reference manual, "Node ordering": corners, then the inside of each edge, then of
each face, then of the volume. The inside of a face or volume is numbered like an element of degree
p - 2. Nodes are equispaced.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ELEMENTS = {
    1: {1: 1, 8: 2, 26: 3, 27: 4, 28: 5, 62: 6, 63: 7, 64: 8, 65: 9, 66: 10},
    2: {3: 1, 10: 2, 36: 3, 37: 4, 38: 5, 47: 6, 48: 7, 49: 8, 50: 9, 51: 10},
    3: {5: 1, 12: 2, 92: 3, 93: 4, 94: 5, 95: 6, 96: 7, 97: 8, 98: 9},
}
"""Degree by Gmsh's type number, of lines, quadrangles and hexahedra."""

POINT = 15
"""Gmsh's type number of a point."""

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

    Parameters
    ----------
    dim : int
        1 to 3: line, quadrangle, hexahedron.
    degree : int
        p >= 1.

    Returns
    -------
    ((p + 1)**dim,) int64, a permutation, not writeable
        ``nodes[:, gmsh_order(dim, p)]`` is lexicographic, x fastest.
    """
    powers = (degree + 1) ** np.arange(dim)
    result = np.empty((degree + 1) ** dim, dtype=np.int64)
    result[_lattice(dim, degree) @ powers] = np.arange(len(result))
    result.setflags(write=False)
    return result


def _lattice(dim: int, degree: int) -> Ints:
    """Position (n, dim) of each node in Gmsh's order, as whole numbers from 0 to the degree."""
    if degree == 0:
        return np.zeros((1, dim), dtype=np.int64)
    corners = np.array(_CORNERS[dim], dtype=np.int64)
    parts = [corners * degree]
    for first, last in _EDGES[dim]:
        steps = np.arange(1, degree)[:, None]
        parts.append(corners[first] * degree + steps * (corners[last] - corners[first]))
    if dim == 3 and degree > 1:
        parts += [_face(corners, face, degree) for face in _FACES]
    if dim > 1 and degree > 1:
        parts.append(_lattice(dim, degree - 2) + 1)
    return np.concatenate(parts)


def _face(corners: Ints, face: tuple[int, ...], degree: int) -> Ints:
    """Nodes inside a face. Their first direction leads from the first corner to the second."""
    origin, first, _, second = corners[list(face)]
    inside = _lattice(2, degree - 2) + 1
    nodes: Ints = origin * degree + inside @ np.stack([first - origin, second - origin])
    return nodes
