"""Gmsh's reference elements: corners, edges, faces, and the parts of a split."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import final

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray

from femops.io.gmsh.nodes import gmsh_order, lattice

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Corners = tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class Shape:
    """Reference element of Gmsh."""

    corners: Floats  # shape (n, dim) float64, in Gmsh's order
    # edges and faces: corners of each edge and face. A triangle or quadrangle has itself as its
    # only face.
    edges: tuple[Corners, ...]
    faces: tuple[Corners, ...] = ()
    # number of leading directions whose exponents sum to at most the degree, as on a simplex
    simplex: int = 0

    def nodes(self, degree: int) -> Floats:
        """Positions (n, dim) of the nodes of a complete element, in Gmsh's order.

        The highest degree of a prism is 2.
        """
        if not self.simplex:
            return 2 * lattice(self.dim, degree) / degree - 1
        parts = [self.corners]
        for a, b in self.edges:
            steps = np.arange(1, degree)[:, np.newaxis] / degree
            parts.append(self.corners[a] + steps * (self.corners[b] - self.corners[a]))
        for a, b, *rest in self.faces:
            inside = _simplex(2, degree - 3) if len(rest) == 1 else lattice(2, degree - 2)
            first, second = self.corners[b] - self.corners[a], self.corners[rest[-1]]
            sides = np.stack([first, second - self.corners[a]])
            parts.append(self.corners[a] + (inside + 1) / degree @ sides)
        if len(self.corners) == 4 and self.dim == 3:
            parts.append(_simplex(3, degree - 4) / degree + np.full(3, 1 / degree))
        return np.concatenate(parts)

    @property
    def dim(self) -> int:
        """Dimension of the element."""
        return int(self.corners.shape[1])

    @property
    def entities(self) -> list[tuple[int, Corners]]:
        """Dimension and corners of all vertices, edges and faces, and in 3-D of the element."""
        rows: list[tuple[int, Corners]] = [(0, (k,)) for k in range(len(self.corners))]
        rows += [(1, edge) for edge in self.edges] + [(2, face) for face in self.faces]
        return rows + [(3, tuple(range(len(self.corners))))] * (self.dim // 3)

    @property
    def middles(self) -> Floats:
        """Position (n, dim) of the middle of each entity."""
        return np.array([self.corners[list(row)].mean(axis=0) for _, row in self.entities])

    @property
    def parts(self) -> Ints:
        """Entities (m, 2**dim) whose middles are the lexicographic corners of each part.

        Each corner of the element has a part. A part has the orientation of the element.
        """
        if self.dim == 1:
            return np.array([[0, 2], [2, 1]])
        return np.array([self._part(corner) for corner in range(len(self.corners))])

    def _part(self, corner: int) -> list[int]:
        ends = [sum(edge) - corner for edge in self.edges if corner in edge]
        if np.linalg.det(self.corners[ends] - self.corners[corner]) < 0:
            ends[:2] = ends[1::-1]
        result = []
        for bits in range(2**self.dim):
            # lower dimensions come first: the first entity with these corners is spanned by them
            spanned = {corner, *(end for d, end in enumerate(ends) if bits >> d & 1)}
            found = (k for k, (_, row) in enumerate(self.entities) if spanned <= set(row))
            result.append(next(found))
        return result

    def basis(self, degree: int, points: Floats) -> Floats:
        """Values (n, m) of a basis of all polynomials of a degree at points (n, dim)."""
        low, high = self.corners.min(axis=0), self.corners.max(axis=0)
        lines = [legvander(x, degree) for x in (2 * (points - low) / (high - low) - 1).T]
        columns = [
            np.prod([line[:, k] for line, k in zip(lines, powers, strict=True)], axis=0)
            for powers in self.powers(degree)
        ]
        return np.stack(columns, axis=1)

    def powers(self, degree: int) -> list[tuple[int, ...]]:
        """Exponents of all polynomials of a degree."""
        powers = product(range(degree + 1), repeat=self.dim)
        return [each for each in powers if sum(each[: self.simplex]) <= degree]


def _simplex(dim: int, degree: int) -> Ints:
    """Positions (n, dim), times the degree, of all nodes of a triangle or tetrahedron."""
    if degree <= 0:
        return np.zeros((int(degree == 0), dim), dtype=np.int64)
    shape = SHAPES["Triangle" if dim == 2 else "Tetrahedron"]
    return np.rint(shape.nodes(degree) * degree).astype(np.int64)


def _tensor(dim: int) -> Floats:
    """Corners (2**dim, dim) of lines, quadrangles and hexahedra, which lie in [-1, 1]**dim."""
    lexicographic = np.array([*product((-1.0, 1.0), repeat=dim)])[:, ::-1]
    return lexicographic[np.argsort(gmsh_order(dim, 1))]


_FLAT = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
_ROUND = tuple((k, (k + 1) % 4) for k in range(4))

SHAPES = {
    "Line": Shape(_tensor(1), ((0, 1),)),
    "Triangle": Shape(np.array(_FLAT), ((0, 1), (1, 2), (2, 0)), ((0, 1, 2),), simplex=2),
    "Quadrilateral": Shape(_tensor(2), _ROUND, ((0, 1, 2, 3),)),
    "Tetrahedron": Shape(
        np.eye(4)[:, 1:],
        ((0, 1), (1, 2), (2, 0), (3, 0), (3, 2), (3, 1)),
        ((0, 2, 1), (0, 1, 3), (0, 3, 2), (3, 1, 2)),
        simplex=3,
    ),
    "Prism": Shape(
        np.array([(*corner, z) for z in (-1.0, 1.0) for corner in _FLAT]),
        ((0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (3, 5), (4, 5)),
        ((0, 2, 1), (3, 4, 5), (0, 1, 4, 3), (0, 3, 5, 2), (1, 2, 5, 4)),
        simplex=2,
    ),
    "Hexahedron": Shape(
        _tensor(3),
        (*_ROUND, *((a + 4, b + 4) for a, b in _ROUND), *((k, k + 4) for k in range(4))),
        ((0, 1, 2, 3), (4, 5, 6, 7), *((a, b, b + 4, a + 4) for a, b in _ROUND)),
    ),
}
"""Reference elements by Gmsh's word for the shape."""
