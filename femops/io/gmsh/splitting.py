"""Splitting triangles, tetrahedra and prisms of a Gmsh file into quadrilaterals and hexahedra.

Each element is cut at the middles of its edges, of its faces and of itself, into one part at each
corner: three for a triangle, four for a tetrahedron, six for a prism. Quadrangles and hexahedra are
cut in the same way into four and eight, so that all parts fit together.

A part is the image of [0, 1]**dim under a map into the reference element. The map is linear in each
direction, so a polynomial of degree p has degree p in each direction of the part. So parts of
degree p represent the geometry of the element exactly.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.io.gmsh.file import GmshArrays, node_places
from femops.io.gmsh.gluing import images
from femops.io.gmsh.nodes import ELEMENTS, Kind, gmsh_order
from femops.io.gmsh.periodic import Link
from femops.io.gmsh.shapes import SHAPES
from femops_meshes import MeshFormatError, checks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
    points = _Points(content, middles)
    for at, k in enumerate(cells):
        degree = kinds[k].degree
        rows[k] = points.of_parts(at, kinds[k], rows[k])
        blocks[k, 1:] = _TYPES[dim][degree], len(rows[k])
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
            "hexahedra that fit to others: let Gmsh mesh without them"
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
            if d < 3:  # an element has no image
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


@final
class _Points:
    """Positions of the middles, and of the further nodes of parts of higher degree."""

    def __init__(self, content: GmshArrays, middles: _Middles) -> None:
        self._content, self._middles = content, middles
        self.middles = np.zeros((middles.stop - middles.first, 3))
        self.inside: list[Floats] = []
        self.stop = middles.stop

    def of_parts(self, at: int, kind: Kind, rows: Ints) -> Ints:
        """Nodes (n * parts, (p + 1)**dim) of the parts of a group of elements, in Gmsh's order."""
        shape, p = SHAPES[kind.shape], kind.degree
        line = np.stack([np.arange(p, -1, -1), np.arange(p + 1)], axis=1) / p
        linear: Floats = np.ones((1, 1))
        for _ in range(kind.dim):
            linear = np.asarray(np.kron(line, linear))
        targets = (linear @ shape.middles[shape.parts]).reshape(-1, kind.dim)
        # interpolation from the nodes of an element to the nodes of its parts
        matrix = np.linalg.solve(shape.basis(p, shape.nodes(p)).T, shape.basis(p, targets).T).T
        known = self._content.positions[node_places(self._content.tags, rows)]
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
