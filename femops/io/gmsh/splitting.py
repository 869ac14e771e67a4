"""Splitting triangles, tetrahedra and prisms of a file into quadrilaterals and hexahedra.

Each element is cut at the middles of its edges, of its faces and of itself, into one part at each
corner: three for a triangle, four for a tetrahedron, six for a prism. Quadrangles and hexahedra are
cut in the same way into four and eight, so that all parts fit together.

A part is the image of [0, 1]**dim under a map into the reference element. The map is linear in each
direction, so a polynomial of degree p has degree p in each direction of the part. So parts of
degree p represent the geometry of the element exactly.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import final

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray

from femops.io.gmsh.file import GmshArrays, node_places
from femops.io.gmsh.gluing import images
from femops.io.gmsh.nodes import ELEMENTS, Kind, gmsh_order, lattice
from femops.io.gmsh.periodic import Link
from femops_meshes import MeshFormatError, checks

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

    @cached_property
    def entities(self) -> list[tuple[int, Corners]]:
        """Dimension and corners of all vertices, edges and faces, and in 3-D of the element."""
        rows: list[tuple[int, Corners]] = [(0, (k,)) for k in range(len(self.corners))]
        rows += [(1, edge) for edge in self.edges] + [(2, face) for face in self.faces]
        return rows + [(3, tuple(range(len(self.corners))))] * (self.dim // 3)

    @cached_property
    def middles(self) -> Floats:
        """Position (n, dim) of the middle of each entity."""
        return np.array([self.corners[list(row)].mean(axis=0) for _, row in self.entities])

    @cached_property
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


SPLIT = ("Triangle", "Tetrahedron", "Prism")
"""Kinds of elements that are split, in Gmsh's words."""

_PRISM = 2  # highest degree of prisms whose nodes Gmsh itself can order
_HIGHEST = 2**62  # highest node number that leaves room for all new nodes
_TYPES = {dim: {p: number for number, p in row.items()} for dim, row in ELEMENTS.items()}


def split_simplices(content: GmshArrays) -> GmshArrays:
    """Split all elements if triangles, tetrahedra or prisms have the highest dimension.

    Physical groups, names and periodic sides are kept.
    """
    blocks, rows = content.blocks.copy(), content.rows()
    dim = int(blocks[blocks[:, 2] > 0, 0].max(initial=0))
    kinds = [content.kinds[number] for number in blocks[:, 1].tolist()]
    cells = [k for k, kind in enumerate(kinds) if kind.dim == dim and len(rows[k])]
    if not any(kinds[k].shape in SPLIT for k in cells):
        return content
    for k in cells:
        _check(kinds[k], kinds[cells[0]].degree)
    faces = [k for k, kind in enumerate(kinds) if kind.dim == dim - 1 and kind.shape in SHAPES]
    sides = [side for side in content.sides if content.kinds[side.kind].shape in SHAPES]
    first = int(content.tags.max(initial=0)) + 1
    if first > _HIGHEST:
        raise MeshFormatError(f"a node has the number {first - 1}: let Gmsh number nodes from 1 on")
    middles = _Middles(
        [(kinds[k].shape, rows[k]) for k in (*cells, *faces)]
        + [(content.kinds[side.kind].shape, side.nodes) for side in sides],
        first,
    )
    points = _Points(middles)
    places = node_places(content.tags, np.concatenate([rows[k].ravel() for k in cells]))
    stops = np.cumsum([rows[k].size for k in cells])
    for at, (k, mine) in enumerate(zip(cells, np.split(places, stops[:-1]), strict=True)):
        known = content.positions[mine.reshape(rows[k].shape)]
        rows[k] = points.of_parts(at, kinds[k], known)
        blocks[k, 1:] = _TYPES[dim][kinds[k].degree], len(rows[k])
    for at, k in enumerate(faces, len(cells)):
        rows[k] = middles.parts(at)[:, np.argsort(gmsh_order(dim - 1, 1))]
        blocks[k, 1:] = _TYPES[dim - 1][1], len(rows[k])
    cut = {id(side): middles.parts(at) for at, side in enumerate(sides, len(cells) + len(faces))}
    return replace(
        content,
        tags=np.concatenate([content.tags, np.arange(middles.first, points.stop)]),
        positions=np.concatenate([content.positions, points.middles, *points.inside]),
        blocks=blocks,
        nodes=np.concatenate([part.ravel() for part in rows]),
        links=[middles.extended(link) for link in content.links],
        sides=[replace(side, nodes=cut.get(id(side), side.nodes)) for side in content.sides],
    )


def _check(kind: Kind, degree: int) -> None:
    """Raise if elements of a type cannot be split, or have another degree."""
    if kind.shape not in SHAPES:
        raise MeshFormatError(
            f"it holds elements of the shape {kind.shape.lower()}, which cannot be split into "
            "hexahedra that fit to others: make the mesh without them"
        )
    if kind.degree != degree:
        raise MeshFormatError(
            f"it mixes elements of degrees {sorted({degree, kind.degree})}: give all one, in Gmsh "
            "by SetOrder"
        )
    if kind.size != len(SHAPES[kind.shape].powers(degree)):
        raise MeshFormatError(
            f"it holds incomplete elements ({kind.shape.lower()}s of degree {degree} with "
            f"{kind.size} nodes): in Gmsh set Mesh.SecondOrderIncomplete = 0"
        )
    highest = _PRISM if kind.shape == "Prism" else max(_TYPES[kind.dim])
    if degree > highest:
        raise MeshFormatError(f"its elements have degree {degree}: the highest is {highest}")


@final
class _Middles:
    """Node numbers for the middles of edges, faces and elements, one per set of corners."""

    def __init__(self, elements: list[tuple[str, Ints]], first: int) -> None:
        self._shapes = [SHAPES[shape] for shape, _ in elements]
        groups = zip(self._shapes, (rows for _, rows in elements), strict=True)
        corners = [rows[:, : len(shape.corners)] for shape, rows in groups]
        self._vertices = np.unique(np.concatenate([rows.ravel() for rows in corners]))
        ranks = [np.searchsorted(self._vertices, rows) for rows in corners]
        self.numbers: list[Ints] = []
        places = defaultdict(list)
        for at, shape in enumerate(self._shapes):
            self.numbers.append(np.empty((len(corners[at]), len(shape.entities)), dtype=np.int64))
            self.numbers[at][:, : len(shape.corners)] = corners[at]
            for entity, (d, row) in enumerate(shape.entities):
                if d:
                    places[d, len(row)].append((at, entity, list(row)))
        self._tables: list[tuple[int, Ints]] = []
        self.first = self.stop = first
        for (d, _), same in places.items():
            rows = np.concatenate([np.sort(ranks[at][:, row], axis=1) for at, _, row in same])
            table, number = np.unique(rows, axis=0, return_inverse=True)
            stops = np.cumsum([len(ranks[at]) for at, *_ in same])
            parts = np.split(self.stop + number.ravel(), stops[:-1])
            for (at, entity, _), part in zip(same, parts, strict=True):
                self.numbers[at][:, entity] = part
            if d < 3:  # elements themselves are not glued
                self._tables.append((self.stop, table))
            self.stop += len(table)

    def parts(self, at: int) -> Ints:
        """Lexicographic corners (n * parts, 2**dim) of the parts of all elements of a group."""
        parts = self._shapes[at].parts
        return self.numbers[at][:, parts].reshape(-1, parts.shape[1])

    def extended(self, link: Link) -> Link:
        """Extend a link to the middles of edges and faces whose corners it maps."""
        last = len(self._vertices) - 1
        places = np.minimum(np.searchsorted(self._vertices, link.nodes), last)
        known = places[(self._vertices[places] == link.nodes).all(axis=1)]
        pairs = [link.nodes]
        for first, table in self._tables:
            mapped, there = images(table, known, len(self._vertices))
            pairs.append(first + np.stack([mapped, there], axis=1)[there >= 0])
        return replace(link, nodes=np.concatenate(pairs))


@cache
def _to_parts(name: str, p: int) -> tuple[Floats, Floats]:
    """Interpolation from the corners of a part, and from the nodes of an element, to part nodes."""
    shape = SHAPES[name]
    line = np.stack([np.arange(p, -1, -1), np.arange(p + 1)], axis=1) / p
    linear: Floats = np.ones((1, 1))
    for _ in range(shape.dim):
        linear = np.asarray(np.kron(line, linear))
    targets = (linear @ shape.middles[shape.parts]).reshape(-1, shape.dim)
    matrix = np.linalg.solve(shape.basis(p, shape.nodes(p)).T, shape.basis(p, targets).T).T
    return linear, np.asarray(matrix, dtype=np.float64)


@final
class _Points:
    """Positions of the middles, and of the further nodes of parts of higher degree."""

    def __init__(self, middles: _Middles) -> None:
        self._middles = middles
        self.middles = np.zeros((middles.stop - middles.first, 3))
        self.inside: list[Floats] = []
        self.stop = middles.stop

    def of_parts(self, at: int, kind: Kind, known: Floats) -> Ints:
        """Nodes (n * parts, (p + 1)**dim) of the parts of a group of elements, in Gmsh's order.

        Shapes: `known` (n, k, 3), the positions of the elements' nodes.
        """
        p, (linear, matrix) = kind.degree, _to_parts(kind.shape, kind.degree)
        checks.magnitude(known)
        x = (matrix @ known).reshape(-1, len(linear), 3)
        corners = self._middles.parts(at)
        ends = np.flatnonzero((linear == 1).any(axis=1))
        new = corners >= self._middles.first
        self.middles[corners[new] - self._middles.first] = x[:, ends][new]
        inner = np.setdiff1d(np.arange(len(linear)), ends)
        count = len(x) * len(inner)
        nodes = np.empty(x.shape[:2], dtype=np.int64)
        nodes[:, ends] = corners
        nodes[:, inner] = np.arange(self.stop, self.stop + count).reshape(len(x), len(inner))
        self.inside.append(x[:, inner].reshape(-1, 3))
        self.stop += count
        return nodes[:, np.argsort(gmsh_order(kind.dim, p))]
