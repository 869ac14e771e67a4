"""Conversion of a Gmsh file to a mesh: nodes, groups, boundary, simplices split if asked for."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import count as counting
from itertools import product
from typing import final

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray

from femops.io.gmsh.file import GmshArrays, node_places
from femops.io.gmsh.gluing import glued, images, vertex_links
from femops.io.gmsh.nodes import ELEMENTS, Kind, gmsh_order, lattice
from femops.io.gmsh.periodic import Link
from femops_meshes import (
    Mesh,
    MeshError,
    MeshFormatError,
    MeshGeometryError,
    MeshTopologyError,
    MixedMesh,
    Topology,
    checks,
)
from femops_meshes.checks import compress_boundary, compress_vertices
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import (
    equispaced,
    gauss_lobatto,
    lagrange_matrix,
    tensor_apply,
)
from femops_meshes.formats.repair import mended
from femops_meshes.mixed import SHAPES as MIXED_SHAPES
from femops_meshes.names import names_of
from femops_meshes.topology.entities import (
    CUBES,
    MOST_SIMPLEX_DEGREE,
    PRISM,
    SIMPLICES,
    VTK_CORNERS,
    Cell,
)
from femops_meshes.topology.topology import exterior_boundary

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
        """Positions (n, dim) of the nodes of a complete element, in Gmsh's order."""
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
        if len(self.corners) == 6:  # along the prism first
            flat = (_simplex(2, degree - 3) + 1) / degree
            line = 2 * (lattice(1, degree - 2) + 1) / degree - 1
            along = np.tile(line, (len(flat), 1))
            parts.append(np.hstack([np.repeat(flat, len(line), axis=0), along]))
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


_TRIANGLE = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
_ROUND = tuple((k, (k + 1) % 4) for k in range(4))

SHAPES = {
    "Line": Shape(_tensor(1), ((0, 1),)),
    "Triangle": Shape(np.array(_TRIANGLE), ((0, 1), (1, 2), (2, 0)), ((0, 1, 2),), simplex=2),
    "Quadrilateral": Shape(_tensor(2), _ROUND, ((0, 1, 2, 3),)),
    "Tetrahedron": Shape(
        np.eye(4)[:, 1:],
        ((0, 1), (1, 2), (2, 0), (3, 0), (3, 2), (3, 1)),
        ((0, 2, 1), (0, 1, 3), (0, 3, 2), (3, 1, 2)),
        simplex=3,
    ),
    "Prism": Shape(
        np.array([(*corner, z) for z in (-1.0, 1.0) for corner in _TRIANGLE]),
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
        _check(kinds[k], kinds[cells[0]].degree, content, k)
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
        numbers=None,
        counted="counted from 0",
    )


def _first(content: GmshArrays, blocks: Sequence[int]) -> str:
    """Number of the first element of some blocks."""
    starts = np.cumsum([0, *content.blocks[:, 2]])
    places = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in blocks])
    return f"number {content.numbers_of(places).min()} ({content.counted})"


def _check(kind: Kind, degree: int, content: GmshArrays, block: int) -> None:
    """Raise if elements of a type cannot be split, or have another degree."""
    if kind.shape not in SHAPES:
        raise MeshFormatError(
            f"it holds elements of the shape {kind.shape.lower()}, which cannot be split into "
            f"hexahedra that fit to others, {_first(content, [block])} the first: make the mesh "
            "without them"
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
    highest = max(_TYPES[kind.dim])
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


@final
@dataclass(frozen=True)
class Numbering:
    """Attributes (n,) of n elements, the attribute of elements `without` group, and all names."""

    numbers: Ints
    without: int
    names: dict[str, tuple[int, ...]]


def attributes_of(which: Ints, sets: list[tuple[int, ...]], names: dict[int, str]) -> Numbering:
    """Give each element or boundary face (here: thing) one attribute.

    Shapes: `which` (n,), the index of each thing's tags in `sets`, which has ascending tags.
    """
    used = sorted({sets[k] for k in np.unique(which).tolist()})
    tags = dict.fromkeys(sorted(tag for one in used for tag in one))
    without = next(number for number in counting(1) if number not in tags)
    shared = {tag for one in used if len(one) > 1 for tag in one}
    numbers: dict[tuple[int, ...], int] = {(): without}
    number = max([*tags, without])
    meanings: dict[int, list[int]] = defaultdict(list)
    for one in filter(None, used):
        number += not shared.isdisjoint(one)
        numbers[one] = own = one[0] if shared.isdisjoint(one) else number
        for tag in one:
            meanings[tag].append(own)
    by_name: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        name = names.get(tag, str(tag) if tag in shared else "")
        if name:
            by_name[name] += meanings[tag]
    attributes = np.array([numbers.get(one, without) for one in sets], dtype=np.int64)[which]
    return Numbering(attributes, without, {name: (*group,) for name, group in by_name.items()})


_CELLS = {
    name: (SIMPLICES if shape.simplex else CUBES)[shape.dim]
    for name, shape in SHAPES.items()
    if name != "Prism"
} | {"Prism": PRISM}
"""Cells of a mesh by Gmsh's word for the shape."""

_SHARED = 16  # most tags, in the mean, of an element or face that several groups have
_FLAT = 1e-10  # largest distance of nodes from a plane, relative to the size of the mesh


def mesh_from(content: GmshArrays, name: str, *, split: bool) -> Mesh | MixedMesh:
    """Make a mesh from the contents of a file or object, which errors call `name`.

    Elements are lines, triangles, quadrangles, tetrahedra, hexahedra or prisms. If they are prisms,
    or of several shapes, the mesh is a `MixedMesh`.

    The elements of the highest dimension form the mesh. The boundary has all exterior faces, and
    the elements of one dimension less that are in a physical group. Coordinates have the degree of
    the elements. Attributes are the tags of the physical groups. Elements and faces in no group
    have attribute 1, or the lowest number that is no tag. If groups overlap, each combination of
    groups gets a number above all tags. The name of a group (by default its tag) then stands for
    all its numbers. Elements listed clockwise are turned over.

    Vertices that $Periodic joins become one vertex, also through several sides. Each element keeps
    its coordinates. Glued sides are no boundary, even if they are in a group. A name that only
    glued sides have is removed.
    """
    try:
        mesh = mesh_of(split_simplices(content) if split else content)
    except MeshError as error:
        raise type(error)(f"{name}: {error}") from error.__cause__  # it says the same
    _warn_of_empty_groups(content, name)
    return mesh


def _warn_of_empty_groups(content: GmshArrays, file: str) -> None:
    """Warn of names of groups in which the file lists no element or face."""
    dim = content.blocks[content.blocks[:, 2] > 0, 0].max()
    dims = content.blocks[content.groups[:, 0], 0].tolist()
    used = {content.names.get(key) for key in zip(dims, content.groups[:, 1].tolist(), strict=True)}
    empty = [name for (d, _), name in content.names.items() if dim - 1 <= d <= dim]
    empty = sorted({*empty} - used)
    if empty:
        warnings.warn(
            f"{file}: no element or face is in the group(s) {', '.join(map(repr, empty[:5]))}"
            f"{', ...' * (len(empty) > 5)}: the mesh does not have these names; Gmsh lists groups "
            "in version 2.2 only with Mesh.SaveAll = 0, and in 4.1 always",
            stacklevel=6,
        )


def mesh_of(content: GmshArrays) -> Mesh | MixedMesh:
    """Make a mesh from the contents of a file; for errors see `read_mesh`."""
    shapes, degree = _checked_kinds(content)
    if len(shapes) > 1 or shapes == ["Prism"]:
        return _mixed_of(content, shapes, degree)
    (shape,) = shapes
    cell = _CELLS[shape]
    dim, of_face = cell.dim, len(cell.entities[cell.face_codes[0]][1])
    tags, first = np.unique(content.tags, return_index=True)
    cells = _entries(content, dim, tags, cell.size(degree))
    corners, coordinates = _geometry(content.positions[first], cells.nodes, shape, degree)
    corners, used = compress_vertices(corners)
    kept, inside = _attributes(content, dim, cells, corners, once=True)
    faces = _tagged(content, _entries(content, dim - 1, tags, of_face))
    turned = dim > 1 and not cell.simplex
    sides = faces.nodes[:, VTK_CORNERS[dim - 1]] if turned else faces.nodes
    _check_attached(content, faces, used)
    sides = compress_boundary(sides, used)
    listed, outside = _attributes(content, dim - 1, faces, sides)
    corners, sides, tagged, vertices = corners[kept], sides[listed], outside.numbers, len(used)
    coordinates = coordinates[kept]
    checks.geometry(coordinates)
    boundary, topology = _with_exterior(corners, vertices, sides, cell)
    _check_joined(coordinates, topology)
    checks.folds((corners, coordinates, topology))
    links = vertex_links(content, tags[used], content.positions[first[used]])
    if links:
        one = glued([(cell, corners)], vertices, [sides], links)
        (corners,), (sides,), vertices = one.elements, one.boundary, one.num_vertices
        if cell.simplex:
            corners, coordinates = simplices.ascending(corners, coordinates)
        tagged = tagged[one.kept[0]]
        boundary, _ = _with_exterior(corners, vertices, sides, cell)
    numbers = np.full(len(boundary), outside.without)
    numbers[: len(tagged)] = tagged
    mesh = Mesh.assemble(corners, coordinates, vertices, inside.numbers, boundary, numbers)
    return mesh.with_names(inside.names, names_of(outside.names, mesh.boundary_attributes))


_FACES_OF = {2: ("Line",), 3: ("Triangle", "Quadrilateral")}


def _mixed_of(content: GmshArrays, shapes: Sequence[str], degree: int) -> MixedMesh:
    """Make a mesh of several shapes, or of prisms."""
    dim = _CELLS[shapes[0]].dim
    tags, first = np.unique(content.tags, return_index=True)
    cells = {s: _entries(content, dim, tags, _CELLS[s].size(degree), s) for s in shapes}
    made = {s: _geometry(content.positions[first], cells[s].nodes, s, degree) for s in shapes}
    numbers = [corners for corners, _ in made.values()]
    kept, inside = _attributes(content, dim, *_stacked(cells.values(), numbers), once=True)
    used = np.unique(np.concatenate([rows.ravel() for rows in numbers]))
    corners, nodes, attributes, labels = {}, {}, {}, {}
    for s, mine, marks in _parted(cells, kept, inside.numbers):
        name = _CELLS[s].plural
        corners[name] = np.searchsorted(used, made[s][0][mine])
        nodes[name], attributes[name] = made[s][1][mine], marks
        labels[name] = content.numbers_of(cells[s].places[mine])
    kinds = _FACES_OF[dim]
    faces = {
        s: _tagged(content, _entries(content, dim - 1, tags, len(SHAPES[s].corners), s))
        for s in kinds
    }
    for entries in faces.values():
        _check_attached(content, entries, used)
    rows = [
        entries.nodes[:, VTK_CORNERS[2]] if s == "Quadrilateral" else entries.nodes
        for s, entries in faces.items()
    ]
    listed, outside = _attributes(content, dim - 1, *_stacked(faces.values(), rows))
    boundary, marks_of = {}, {}
    for s, mine, marks in _parted(faces, listed, outside.numbers):
        name = "segments" if s == "Line" else _CELLS[s].plural
        boundary[name] = compress_boundary(rows[kinds.index(s)][mine], used)
        marks_of[name] = marks
    order = sorted(corners, key=[*MIXED_SHAPES].index)

    def assembled(elements: dict[str, Ints], vertices: int) -> MixedMesh:
        return MixedMesh.assemble(
            elements,
            nodes,
            vertices,
            attributes,
            boundary,
            marks_of,
            inside.names,
            outside.names,
            exterior=outside.without,
            labels=(labels, content.counted),
        )

    elements = {name: corners[name] for name in order}
    mesh = assembled(elements, len(used))
    for part in mesh.parts:
        _check_joined(part.coordinates, part.topology)
    mesh.check_folds()
    if not mesh.continuous:
        raise MeshGeometryError(
            "elements of different shapes have other nodes on a common face or edge: give them the "
            "same nodes"
        )
    links = vertex_links(content, tags[used], content.positions[first[used]])
    if not links:
        return mesh
    by_cell = [(MIXED_SHAPES[name], corner) for name, corner in elements.items()]
    one = glued(by_cell, len(used), [*boundary.values()], links)
    for name, left, outer in zip([*boundary], one.boundary, one.kept, strict=True):
        boundary[name], marks_of[name] = left, marks_of[name][outer]
    try:
        return assembled(dict(zip(order, one.elements, strict=True)), one.num_vertices)
    except MeshTopologyError as error:
        raise MeshTopologyError(f"once its periodic sides are glued, {error}") from error.__cause__


def _stacked(entries: Iterable[_Entries], rows: Sequence[Ints]) -> tuple[_Entries, Ints]:
    """Entries of several shapes without their nodes, and their corners (n, most corners).

    Rows of elements with fewer corners end with -1.
    """
    blocks = np.concatenate([each.blocks for each in entries])
    most = max(part.shape[1] for part in rows)
    wide = [np.pad(p, [(0, 0), (0, most - p.shape[1])], constant_values=-1) for p in rows]
    return _Entries(np.zeros((len(blocks), 0), dtype=np.int64), blocks, blocks), np.concatenate(
        wide
    )


def _parted(
    entries: Mapping[str, _Entries], kept: Ints, numbers: Ints
) -> Iterator[tuple[str, Ints, Ints]]:
    """Entries (k,) of each shape that are kept, and their attributes (k,)."""
    stop = 0
    for shape, each in entries.items():
        start, stop = stop, stop + len(each.blocks)
        mine = (kept >= start) & (kept < stop)
        yield shape, kept[mine] - start, numbers[mine]


def _check_attached(content: GmshArrays, faces: _Entries, used: Ints) -> None:
    """Raise if a group has faces at vertices of no element."""
    loose = ~np.isin(faces.nodes, used).all(axis=1)
    if loose.any():
        rows = content.groups[np.isin(content.groups[:, 0], faces.blocks[loose])]
        pairs = zip(content.blocks[rows[:, 0], 0].tolist(), rows[:, 1].tolist(), strict=True)
        names = sorted({repr(content.names.get(pair, str(pair[1]))) for pair in pairs})
        raise MeshTopologyError(
            f"{np.count_nonzero(loose)} face(s) in the group(s) {', '.join(names[:5])} are sides "
            "of no element: leave them out of the groups, or mesh what they bound"
        )


def _check_joined(coordinates: Floats, topology: Topology) -> None:
    """Raise if elements that share a face or edge have different nodes on it."""
    apart = np.flatnonzero(checks.gaps(coordinates, topology))
    if len(apart):
        raise MeshGeometryError(
            f"{len(apart)} element(s) have other nodes on a common face or edge than the elements "
            f"beside them, number {apart[0]} the first (counted from 0): give them the same nodes"
        )


def _checked_kinds(content: GmshArrays) -> tuple[list[str], int]:
    """Return the shapes and the degree of the elements. Raise if they cannot form a mesh."""
    dim = max(content.blocks[content.blocks[:, 2] > 0, 0], default=0)
    if dim < 1:
        raise MeshFormatError(
            "it holds no elements that can be read: let Gmsh generate the mesh before it saves (if "
            "there are physical groups, Gmsh saves only what is in one: group the elements, too)"
        )
    found: dict[Kind, int] = defaultdict(int)
    for block_dim, number, count in content.blocks.tolist():
        if count and block_dim >= dim - 1:
            found[content.kinds[number]] += count
    cells = {kind: count for kind, count in found.items() if kind.dim == dim}
    faces = {kind: count for kind, count in found.items() if kind.dim < dim and kind.dim}
    for kind, count in (*cells.items(), *faces.items()):
        _check_complete(kind, count)
    shapes = sorted({kind.shape for kind in cells})
    if "Pyramid" in shapes:
        blocks = [
            k
            for k, (_, number, count) in enumerate(content.blocks.tolist())
            if count and content.kinds[number].shape == "Pyramid"
        ]
        count = sum(count for kind, count in cells.items() if kind.shape == "Pyramid")
        raise MeshFormatError(
            f"it holds {count} pyramid(s), {_first(content, blocks)} the first: {_NO_PYRAMIDS}"
        )
    degrees = sorted({kind.degree for kind in cells})
    if len(degrees) > 1:
        raise MeshFormatError(
            f"it mixes elements of degrees {degrees}: give all one, in Gmsh by SetOrder"
        )
    cell = next((_CELLS[s] for s in shapes if not _CELLS[s].cube), _CELLS[shapes[0]])
    most = max(ELEMENTS[cell.dim].values()) if cell.cube else MOST_SIMPLEX_DEGREE
    if degrees[0] > most:
        raise MeshFormatError(
            f"its {cell.plural} have degree {degrees[0]}: the highest is {most}: give them that, "
            f"in Gmsh by SetOrder({most})"
        )
    for kind, count in faces.items():
        of_faces = {face for shape in shapes for face in _CELLS[shape].faces}
        if dim == 3 and _CELLS[kind.shape] not in of_faces:
            raise MeshFormatError(
                f"it holds {count} {kind.shape.lower()}(s) beside {cell.plural}, which have "
                f"{cell.face.plural} as faces: leave them out"
            )
    return shapes, degrees[0]


# With RecombineAll on surfaces, Gmsh's subdivision of volumes inverts elements.
_NO_PYRAMIDS = (
    "pyramids are not supported, and cannot be split either. Prisms meet tetrahedra at triangles, "
    "and hexahedra at quadrilaterals, so that a mesh needs none where hexahedra do not touch "
    "tetrahedra; let Gmsh make tetrahedra alone (without Mesh.RecombineAll and transfinite "
    "volumes), or all hexahedra by Mesh.SubdivisionAlgorithm = 2"
)


def _check_complete(kind: Kind, count: int) -> None:
    """Raise if elements of a type have no nodes inside their faces or volume."""
    whole = SHAPES.get(kind.shape)
    if whole and kind.size < len(whole.powers(kind.degree)):
        raise MeshFormatError(
            f"it holds {count} {kind.shape.lower()}(s) of degree {kind.degree}, {kind.size} nodes: "
            "these are incomplete elements; in Gmsh set Mesh.SecondOrderIncomplete = 0"
        )


@final
@dataclass(frozen=True)
class _Entries:
    """Elements of one dimension: indices (n, k) of their first nodes, and their blocks (n,)."""

    nodes: Ints
    blocks: Ints
    places: Ints  # (n,): places among all elements of the file


def _entries(
    content: GmshArrays, dim: int, tags: Ints, width: int, shape: str | None = None
) -> _Entries:
    """Elements of a dimension, and of a shape, if one is given."""
    mine = content.blocks[:, 0] == dim
    if shape is not None:
        mine &= [content.kinds[kind].shape == shape for kind in content.blocks[:, 1].tolist()]
    chosen, counts = np.flatnonzero(mine), content.blocks[:, 2]
    all_rows = content.rows()
    rows = [all_rows[block][:, :width] for block in chosen]
    numbers = np.concatenate([np.zeros((0, width), dtype=np.int64), *rows])
    places = np.flatnonzero(np.repeat(mine, counts))
    return _Entries(node_places(tags, numbers), np.repeat(chosen, counts[chosen]), places)


def _tagged(content: GmshArrays, entries: _Entries) -> _Entries:
    mine = np.isin(entries.blocks, content.groups[:, 0])
    return _Entries(entries.nodes[mine], entries.blocks[mine], entries.places[mine])


def _geometry(points: Floats, nodes: Ints, shape: str, degree: int) -> tuple[Ints, Floats]:
    """Corners and nodal coordinates of cells. Mirrored squares, cubes and prisms are turned over.

    The vertices of simplices ascend.
    """
    cell = _CELLS[shape]
    dim = cell.dim
    if cell.cube:
        nodes = nodes[:, gmsh_order(dim, degree)]
    lattice = points[nodes]
    checks.magnitude(lattice)
    size = np.ptp(lattice.reshape(-1, 3), axis=0)
    if size[dim:].max(initial=0.0) > _FLAT * size.max():
        raise MeshFormatError(
            f"its elements of dimension {dim} lie curved or tilted in space (size "
            f"{' x '.join(f'{length:.3g}' for length in size)}): surfaces and curves in a higher "
            "dimension are not supported; give the file the elements inside (if there are physical "
            "groups, Gmsh saves only what is in one), or lay a 2-D mesh into the plane z = 0"
        )
    lattice = np.ascontiguousarray(lattice[..., :dim])
    if not cell.cube:
        places = SHAPES[shape].nodes(degree)
        if shape == "Prism":  # Gmsh's segment is from -1 to 1
            places[:, 2] = (1 + places[:, 2]) / 2
        coordinates = simplices.from_points(cell, degree, places) @ lattice
        if cell.simplex:
            return simplices.ascending(nodes[:, : dim + 1], coordinates)
        return mended(nodes[:, : cell.num_corners], coordinates)[:2]
    to_gll = lagrange_matrix(equispaced(degree + 1), gauss_lobatto(degree + 1)[0])
    coordinates = tensor_apply([to_gll] * dim, lattice)
    ends = np.array([0, degree])
    grid = nodes.reshape(-1, *[degree + 1] * dim)[np.ix_(np.arange(len(nodes)), *[ends] * dim)]
    corners = grid.reshape(-1, 2**dim)
    return mended(corners, coordinates)[:2]


def _attributes(
    content: GmshArrays, dim: int, entries: _Entries, corners: Ints, *, once: bool = False
) -> tuple[Ints, Numbering]:
    """Entries to keep, and their attributes. Duplicates from several groups are removed.

    Raise if an entry comes twice in one group, if `once`.
    """
    names = {tag: name for (d, tag), name in content.names.items() if d == dim}
    if len(corners) == 0:
        return np.zeros(0, dtype=np.int64), attributes_of(np.zeros(0, dtype=np.int64), [()], {})
    _, first, place = np.unique(
        np.sort(corners, axis=1), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    thing = np.argsort(order)[place.ravel()]
    cells = np.unique(np.stack([thing, entries.blocks], axis=1), axis=0)
    if once and len(cells) < len(corners):
        raise MeshFormatError(
            f"it lists {len(corners) - len(cells)} element(s) of dimension {dim} twice in one "
            "group: it is damaged, write it again"
        )
    return first[order], attributes_of(*_tag_sets(content.groups, cells), names)


def _tag_sets(groups: Ints, cells: Ints) -> tuple[Ints, list[tuple[int, ...]]]:
    """Sets of tags, and for each of n things in blocks the index (n,) of its set.

    Shapes: `cells` (m, 2), ascending pairs of a thing and a block that has it.
    """
    tags: dict[int, set[int]] = defaultdict(set)
    for block, tag in groups.tolist():
        tags[block].add(tag)
    starts = np.flatnonzero(np.diff(cells[:, 0], prepend=-1))
    alone, which = np.unique(cells[starts, 1], return_inverse=True)
    which = which.ravel()
    several: dict[tuple[int, ...], int] = {}
    stops = np.append(starts[1:], len(cells))
    for thing in np.flatnonzero(stops - starts > 1).tolist():
        key = (*cells[starts[thing] : stops[thing], 1].tolist(),)
        which[thing] = several.setdefault(key, len(alone) + len(several))
    # a file lists a tag once for many elements, and a name has a number for each set
    count, most = sum(len(tags[block]) for key in several for block in key), _SHARED * len(cells)
    if count > most + len(groups):
        raise MeshFormatError(
            f"its groups overlap in {len(several)} ways with {count} tags in all, for {len(cells)} "
            "elements or faces: list each element once, on one entity"
        )
    blocks = [*((block,) for block in alone.tolist()), *several]
    return which, [tuple(sorted(set().union(*(tags[block] for block in key)))) for key in blocks]


def _with_exterior(
    elements: Ints, num_vertices: int, faces: Ints, cell: Cell
) -> tuple[Ints, Topology]:
    """Boundary with all exterior faces appended that are missing, and the topology before."""
    topology = Topology.build(elements, num_vertices, faces, cell)
    exterior = (topology.faces[:, 0] >= 0) & (topology.faces[:, 1] < 0)
    where = np.stack([topology.faces[exterior, 0], topology.face_codes[exterior, 0]], axis=1)
    known = topology.boundary_faces @ [27, 1]
    rest = where[~np.isin(where @ [27, 1], known)]
    more = exterior_boundary(elements, replace(topology, boundary_faces=rest))
    return np.concatenate([faces, more]), topology
