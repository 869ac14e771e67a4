"""Reader of the MFEM mesh formats v1.0, v1.2 (with an end tag) and v1.3 (with names)."""

import math
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb
from typing import TYPE_CHECKING, Any, NoReturn, cast, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import checks
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.hanging import halved_along
from femops_meshes.coordinates.mapping import (
    equispaced,
    gauss_legendre,
    gauss_lobatto,
    lagrange_matrix,
    tensor_apply,
)
from femops_meshes.errors import MeshArgumentError, MeshError, MeshFormatError, MeshTopologyError
from femops_meshes.formats.files import read_text
from femops_meshes.formats.mfem_numbering import INSIDE, OUTSIDE, h1_numbers, read_sets
from femops_meshes.formats.repair import mended
from femops_meshes.formats.scanner import Scanner, printable, shorten
from femops_meshes.generators.grids import Grid
from femops_meshes.mesh import Mesh
from femops_meshes.names import Names, names_of
from femops_meshes.refinement import check_fits
from femops_meshes.topology.entities import (
    CUBES,
    MOST_SIMPLEX_DEGREE,
    SIMPLICES,
    VTK_CORNERS,
    Cell,
    outward_corners,
)
from femops_meshes.topology.ordering import hilbert_order
from femops_meshes.topology.topology import Topology, check_dangling
from femops_meshes.topology.tree_order import leaf_order

if TYPE_CHECKING:
    from femops_meshes.formats.mfem_mixed import SeveralShapes
    from femops_meshes.formats.mfem_trees import TreeContent

Floats = NDArray[np.float64]

MAX_DEGREE = 32
"""Largest degree of coordinates: beyond it equispaced points lose too many digits."""

_LEGACY = {"Linear": 1, "Quadratic": 2, "Cubic": 3}
_NAME = re.compile(r"(H1|H1Pos|L2)(?:_T([0-9]))?_([1-3])D_P([0-9]{1,6})", re.ASCII)
_L2_BASES = ("gauss", "gll", "bernstein", "open", "equispaced", "half")


@final
@dataclass(frozen=True)
class Collection:
    """MFEM's finite element collection: continuity, 1-D basis, degree and name."""

    continuous: bool
    basis: str
    degree: int
    name: str

    def to_gll(self) -> Floats:
        """1-D matrix (p + 1, p + 1) from the collection's coefficients to values at GLL points."""
        p = self.degree
        x = gauss_lobatto(p + 1)[0]
        if self.basis == "gll":
            return np.eye(p + 1)
        if self.basis == "bernstein":
            columns = [comb(p, i) * x**i * (1 - x) ** (p - i) for i in range(p + 1)]
            return np.stack(columns, axis=1)
        return lagrange_matrix(self.line(), x)

    def line(self) -> Floats:
        """1-D points (p + 1,) of a basis by nodes."""
        p = self.degree
        points = {
            "gll": lambda: gauss_lobatto(p + 1)[0],
            "equispaced": lambda: equispaced(p + 1),
            "gauss": lambda: gauss_legendre(p + 1)[0],
            "open": lambda: np.arange(1, p + 2) / (p + 2),
            "half": lambda: (np.arange(p + 1) + 0.5) / (p + 1),
        }
        return points[self.basis]()


def parse_collection(scanner: Scanner, dim: int) -> Collection:
    """Read the line that names the collection."""
    name = scanner.label("FiniteElementCollection")
    if name in _LEGACY:
        return Collection(True, "equispaced", _LEGACY[name], name)
    found = _NAME.fullmatch(name)
    kind, basis = (found[1], found[2]) if found else ("", None)
    if not found or (basis is not None and (kind != "L2" or int(basis) >= len(_L2_BASES))):
        raise scanner.fail(
            f'nodes in "{shorten(name)}" are not supported: known are H1_*D_P*, H1Pos_*D_P*, '
            "L2_*D_P*, L2_T0 to T5_*D_P*, Linear, Quadratic and Cubic; save the mesh with "
            "SetCurvature(p)"
        )
    if int(found[3]) != dim:
        raise scanner.fail(f'"{name}" has dimension {found[3]}, the mesh has {dim}')
    degree = scanner.integer(found[4], f'the degree in "{name}"', 1, MAX_DEGREE)
    if kind == "L2":
        return Collection(False, _L2_BASES[int(basis or 0)], degree, name)
    return Collection(True, "gll" if kind == "H1" else "bernstein", degree, name)


def interior_order(collection: Collection, dim: int) -> list[int]:
    """Index in MFEM's order of each lexicographic dof inside a cell.

    Both orders are equal, except in the legacy cubic hexahedron, whose dofs have the order of
    MFEM's corners.
    """
    if collection.name == "Cubic" and dim == 3:
        return [0, 1, 3, 2, 4, 5, 7, 6]
    return list(range((collection.degree - 1) ** dim))


Ints = NDArray[np.int64]
Vector = tuple[int, int, int]
_Run = tuple[Vector, Vector, int]

_MOST = 2**18
"""Most elements of a mesh: a file of 60 bytes may ask for any number, and each takes time."""

_HEADER = "MFEM INLINE mesh v1.0"
_DIMENSIONS = {"segment": 1, "quad": 2, "hex": 3, "tri": 2, "tet": 3, "wedge": 3}
_TURNED = [1, 3, 0, 2, 5, 7, 4, 6]
"""Corners of a hexahedron that is turned about its third direction: its prisms are then MFEM's."""

_SPLIT_BOXES = {"tri": [1, 0], "tet": [0, 1, 4, 2, 3, 5], "wedge": [0, 1]}
"""Place, among our parts of a quadrilateral or hexahedron, of each of MFEM's parts, by type."""
_COUNTS, _SIZES = ("nx", "ny", "nz"), ("sx", "sy", "sz")
_ATTRIBUTES = {1: (1, 2), 2: (4, 2, 1, 3), 3: (5, 3, 2, 4, 1, 6)}
"""Boundary attributes at the low and high end of each direction."""


def begins_inline(scanner: Scanner) -> bool:
    """True if the text that follows is an INLINE mesh."""
    return scanner.peek().startswith("MFEM INLINE")


def read_inline(scanner: Scanner) -> Mesh:
    """Make the mesh that an INLINE file describes. Type checkers take prisms for a `Mesh`."""
    header = scanner.read("the first line")
    if header != _HEADER:
        raise scanner.fail(f'"{shorten(header)}": the version that is read is "{_HEADER}"')
    fields = _fields(scanner)
    dim = _inline_dimension(scanner, fields)
    counts = tuple(_count(scanner, fields, name) for name in _COUNTS[:dim])
    sizes = tuple(_size(scanner, fields, name) for name in _SIZES[:dim])
    split = _SPLIT_BOXES.get(fields["type"])
    try:
        grid = Grid.checked(counts, 0.0, sizes, periodic=False)
        number = math.prod(counts) * len(split or [0])
        if number > _MOST:
            raise MeshArgumentError(
                f"an INLINE mesh of {number} elements takes minutes to read, at most {_MOST} are "
                "read: halve nx, ny and nz, and refine, as by femops.read_mesh(path, refine=1)"
            )
        check_fits((number, 2**dim, dim), f"making {number} elements", "take fewer")
    except MeshArgumentError as error:
        raise MeshArgumentError(f"{scanner.name}: {error}") from error.__cause__
    cells = mfem_order(counts) if split is None else _lexicographic(counts)
    mesh = Mesh.assemble(grid.elements(cells), grid.coordinates(cells, 1), grid.num_vertices)
    codes = mesh.topology.boundary_faces[:, 1]
    attributes = np.zeros(len(codes), dtype=np.int64)
    for side, attribute in enumerate(_ATTRIBUTES[dim]):
        attributes[codes // 3 ** (side // 2) % 3 == 2 * (side % 2)] = attribute
    mesh = mesh.with_attributes(boundary=attributes)
    if split is None:
        return mesh
    if fields["type"] == "wedge":
        elements, nodes = mesh.elements[:, _TURNED], mesh.coordinates[:, _TURNED]
        return cast(Mesh, replace(mesh, elements=elements, coordinates=nodes).prisms())
    parts = np.arange(len(cells) * len(split)).reshape(-1, len(split))
    ordered = mesh.simplices().reordered(parts[:, split].ravel())
    return replace(ordered, file_elements=parts.ravel())


def _lexicographic(counts: tuple[int, ...]) -> Ints:
    """Cells (n, dim) of a grid, x fastest."""
    return np.ascontiguousarray(np.indices(counts[::-1]).reshape(len(counts), -1)[::-1].T)


def _fields(scanner: Scanner) -> dict[str, str]:
    """Read all lines "name = value"."""
    fields: dict[str, str] = {}
    while scanner.peek():
        line = scanner.read("")
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or name not in ("type", *_COUNTS, *_SIZES):
            raise scanner.fail(
                f'"{shorten(line)}": an INLINE mesh has lines "type = hex", "nx = 4" (elements, '
                'also ny and nz) and "sx = 1.0" (length, also sy and sz) only'
            )
        if name in fields:
            raise scanner.fail(f'"{shorten(line)}": this is the second line for {name}, keep one')
        fields[name] = value.partition("#")[0].strip()
    scanner.end("")
    return fields


def _inline_dimension(scanner: Scanner, fields: dict[str, str]) -> int:
    kind = fields.get("type", "")
    if kind not in _DIMENSIONS:
        known = ", ".join(f'"{name}"' for name in _DIMENSIONS)
        cure = "mesh without pyramids" if kind == "pyramid" else 'write a line as "type = hex"'
        raise scanner.fail(
            f'the type of an INLINE mesh is one of {known}, got "{shorten(kind)}": {cure}'
        )
    return _DIMENSIONS[kind]


def _value(scanner: Scanner, fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise scanner.fail(
            f'an INLINE mesh of type "{fields["type"]}" needs "{name} = ...": the file has none'
        )
    return fields[name]


def _count(scanner: Scanner, fields: dict[str, str], name: str) -> int:
    return scanner.integer(_value(scanner, fields, name), name, 1)


def _size(scanner: Scanner, fields: dict[str, str], name: str) -> float:
    size = scanner.number(_value(scanner, fields, name), name)
    if size <= 0:
        raise scanner.fail(f"{name} is a length, it must be positive, got {size}")
    return size


def mfem_order(counts: tuple[int, ...]) -> Ints:
    """Cells (n, dim) of a grid in the order that MFEM gives them.

    Notes
    -----
    MFEM follows the generalized Hilbert curve of J. Cerveny (github.com/jakubcerveny/gilbert,
    BSD-2-Clause), whose longest direction comes first.
    """
    dim = len(counts)
    axes: list[Vector] = [(counts[0], 0, 0), (0, (*counts, 1)[1], 0), (0, 0, (*counts, 1, 1)[2])]
    lead = int(np.argmax(counts))
    leading = [axes[lead], *(axes[d] for d in range(dim) if d != lead)]
    runs: list[_Run] = []
    todo: list[tuple[Vector, ...]] = [((0, 0, 0), *leading)]
    while todo:
        block = todo.pop()
        run = _row(*block)
        if run is None:
            todo += reversed(_split_flat(*block) if dim == 2 else _split(*block))
        else:
            runs.append(run)
    starts, steps, lengths = (np.array(column) for column in zip(*runs, strict=True))
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    cells = np.repeat(starts, lengths, axis=0)
    cells += within[:, None] * np.repeat(steps, lengths, axis=0)
    return np.ascontiguousarray(cells[:, :dim])


def _row(at: Vector, *axes: Vector) -> _Run | None:
    """Start, step and length of a block with one row of cells; None for other blocks."""
    lengths = [abs(sum(axis)) for axis in axes]
    for along, length in zip(axes, lengths, strict=True):
        if sum(lengths) == length + len(axes) - 1:
            return at, _unit(along), length
    return None


def _split_flat(at: Vector, a: Vector, b: Vector) -> list[tuple[Vector, ...]]:
    """Split the block at `at` along a, b into smaller blocks, in the order along the curve."""
    if 2 * abs(sum(a)) > 3 * abs(sum(b)):
        a2 = _even_half(a)
        return [(at, a2, b), (_add(at, a2), _add(a, a2, -1), b)]
    a2, b2 = _half(a), _even_half(b)
    ra, rb = _add(a, a2, -1), _add(b, b2, -1)
    end = _add(_add(at, _add(a, _unit(a), -1)), _add(b2, _unit(b), -1))
    return [(at, b2, a2), (_add(at, b2), a, rb), (end, _minus(b2), _minus(ra))]


def _split(at: Vector, a: Vector, b: Vector, c: Vector) -> list[tuple[Vector, ...]]:
    """Split the block at `at` along a, b, c into smaller blocks, in the order along the curve."""
    w, h, d = (abs(sum(v)) for v in (a, b, c))
    a2, b2, c2 = (_even_half(v) for v in (a, b, c))
    ra, rb, rc = (_add(v, v2, -1) for v, v2 in ((a, a2), (b, b2), (c, c2)))
    end_a, end_c = _add(a, _unit(a), -1), _add(c, _unit(c), -1)
    last_b2, last_c2 = _add(b2, _unit(b), -1), _add(c2, _unit(c), -1)
    if 2 * w > 3 * h and 2 * w > 3 * d:
        return [(at, a2, b, c), (_add(at, a2), ra, b, c)]
    if 3 * h > 4 * d:
        top = _add(_add(at, end_a), last_b2)
        return [(at, b2, c, a2), (_add(at, b2), a, rb, c), (top, _minus(b2), c, _minus(ra))]
    if 3 * d > 4 * h:
        top = _add(_add(at, end_a), last_c2)
        return [(at, c2, a2, b), (_add(at, c2), a, b, rc), (top, _minus(c2), _minus(ra), b)]
    return [
        (at, b2, c2, a2),
        (_add(at, b2), c, a2, rb),
        (_add(_add(at, last_b2), end_c), a, _minus(b2), _minus(rc)),
        (_add(_add(_add(at, end_a), b2), end_c), _minus(c), _minus(ra), rb),
        (_add(_add(at, end_a), last_b2), _minus(b2), c2, _minus(ra)),
    ]


def _unit(v: Vector) -> Vector:
    return ((v[0] > 0) - (v[0] < 0), (v[1] > 0) - (v[1] < 0), (v[2] > 0) - (v[2] < 0))


def _add(v: Vector, w: Vector, times: int = 1) -> Vector:
    return (v[0] + times * w[0], v[1] + times * w[1], v[2] + times * w[2])


def _minus(v: Vector) -> Vector:
    return (-v[0], -v[1], -v[2])


def _half(v: Vector) -> Vector:
    """Half of an axis, rounded down."""
    return (int(v[0] / 2), int(v[1] / 2), int(v[2] / 2))


def _even_half(v: Vector) -> Vector:
    """About half of an axis: an even number of cells if the axis has more than two."""
    half = _half(v)
    return _add(half, _unit(v)) if abs(sum(half)) % 2 == 1 and abs(sum(v)) > 2 else half


GEOMETRIES = ("point", "segment", "triangle", "square", "tetrahedron", "cube", "prism", "pyramid")
_ALIKE = {1: (1,), 2: (3, 2), 3: (5, 4)}
"""MFEM's geometry numbers of the cells of meshes of each dimension."""

_FACES = {1: 0, 2: 1, 3: 1, 4: 2, 5: 3}
"""MFEM's geometry number of the faces of a cell."""

_ORDERS = {3: VTK_CORNERS[2], 5: VTK_CORNERS[3]}
"""Corners by geometry number, if they have another order than ours."""

_CORNERS = (1, 2, 3, 4, 4, 8, 6, 5)
"""Number of corners of each geometry."""

_MIXED = {1: (1,), 2: (2, 3), 3: (4, 5, 6, 7)}
"""All geometry numbers of each dimension."""

_SPLIT = (2, 4, 6)
"""Geometry numbers of the elements that `femops.read_mesh` can split."""

_HEADERS = ("MFEM mesh v1.0", "MFEM mesh v1.2", "MFEM mesh v1.3")
_NONCONFORMING = ("MFEM NC mesh v1.0", "MFEM mesh v1.1")
_END_TAG = "mfem_mesh_end"


@final
@dataclass(frozen=True)
class _Content:
    """Contents of a file, before they are checked."""

    cell: Cell
    elements: Ints
    element_attributes: Ints
    boundary: Ints
    boundary_attributes: Ints
    num_vertices: int
    positions: Floats | tuple[Collection, Floats]
    where: str
    element_names: Names
    boundary_names: Names


@final
@dataclass(frozen=True)
class FileArrays:
    """Contents of a file with straight triangles, tetrahedra or prisms."""

    # elements and boundary: for each of MFEM's geometry numbers, the attributes (n,) and the
    # vertex numbers (n, k) of its elements, in the file's order. The geometry 1 is a segment, 2 a
    # triangle, 3 a quadrilateral, 4 a tetrahedron, 5 a hexahedron, 6 a prism and 7 a pyramid.
    elements: dict[int, tuple[Ints, Ints]]
    boundary: dict[int, tuple[Ints, Ints]]
    positions: Floats  # shape (nv, dim): positions of the vertices
    # element_names and boundary_names: attributes of each name
    element_names: Names
    boundary_names: Names


def read_mixed(path: str | os.PathLike[str]) -> FileArrays | None:
    """Read a file whose elements have several shapes. Return None if it has no simplex or prism."""
    scanner = Scanner(read_text(path), printable(os.fspath(path)))
    if begins_inline(scanner):
        return None
    end_tag, named = _header(scanner)
    dim = _dimension(scanner)
    elements = _mixed_entries(scanner, "element", dim)
    if not any(geometry in _SPLIT for geometry in elements):
        return None
    inside = read_sets(scanner, INSIDE) if named else {}
    boundary = _mixed_entries(scanner, "boundary element", dim - 1)
    outside = read_sets(scanner, OUTSIDE) if named else {}
    count = _vertex_count(scanner)
    if scanner.peek() == "nodes":
        scanner.read("")
        raise scanner.fail(
            "the elements are curved, as they have nodes, and of triangles, tetrahedra and prisms "
            "in MFEM's format only straight ones are split: save the mesh with SetCurvature(0)"
        )
    positions = _vertices(scanner, dim, count)
    scanner.end(end_tag)
    return FileArrays(elements, boundary, positions, inside, outside)


def read_mfem(source: str | os.PathLike[str]) -> Mesh | Any:
    """Read a mesh in MFEM's formats v1.0 to v1.3 and NC v1.0, or the box of an INLINE mesh file.

    A file with prisms, or with elements of several shapes, becomes a `MixedMesh`.
    """
    if isinstance(source, str) and "\n" in source:
        text, name = source, "mesh text"
    else:
        text, name = read_text(source), printable(os.fspath(source))
    scanner = Scanner(text, name)
    if begins_inline(scanner):
        return read_inline(scanner)
    if scanner.peek() in _NONCONFORMING:
        return _read_trees(scanner, text)
    content = _parse(scanner)
    try:
        if isinstance(content, _Content):
            return _build(content)
        from femops_meshes.formats.mfem_mixed import build

        return build(content)
    except MeshFormatError:
        raise
    except MeshError as error:
        raise type(error)(f"{content.where}: {error}") from error.__cause__  # it says the same


def _parse(scanner: Scanner) -> "_Content | SeveralShapes":
    end_tag, named = _header(scanner)
    dim = _dimension(scanner)
    rows = _rows(scanner, "element", _MIXED[dim])
    geometries = {int(row[1]) for row in rows}
    if len(geometries) > 1 or not geometries <= {*_ALIKE[dim]}:
        return _parse_shapes(scanner, rows, dim, end_tag, named=named)
    geometry, elements, element_attributes = _alike(rows, _ALIKE[dim])
    cell = (SIMPLICES if geometry in _SPLIT else CUBES)[dim]
    inside = read_sets(scanner, INSIDE) if named else {}
    where = f"{scanner.name} (elements end at line {scanner.line})"
    faces = (_FACES[geometry],)
    _, boundary, boundary_attributes = _entries(scanner, "boundary element", faces)
    outside = read_sets(scanner, OUTSIDE) if named else {}
    count = _vertex_count(scanner)
    positions: Floats | tuple[Collection, Floats]
    if scanner.peek() == "nodes":
        positions = _nodes(scanner, {cell: len(elements)})
    else:
        positions = _vertices(scanner, dim, count)
    scanner.end(end_tag)
    return _Content(
        cell,
        elements,
        element_attributes,
        boundary,
        boundary_attributes,
        count,
        positions,
        where,
        inside,
        outside,
    )


def _parse_shapes(
    scanner: Scanner, rows: list[list[str]], dim: int, end_tag: str, *, named: bool
) -> "SeveralShapes":
    """Read what follows the elements (their words) of a file with several shapes."""
    from femops_meshes.formats.mfem_mixed import CELLS, SeveralShapes

    where = f"{scanner.name} (elements end at line {scanner.line})"
    kinds = np.array([int(row[1]) for row in rows])
    places = {geometry: np.flatnonzero(kinds == geometry) for geometry in np.unique(kinds).tolist()}
    if 7 in places:
        raise MeshFormatError(
            f"{where}: it holds {len(places[7])} pyramid(s), number {places[7][0]} the first "
            "(counted from 0): pyramids are not supported, and cannot be split; make the mesh "
            "without them: prisms meet tetrahedra at triangles, and hexahedra at quadrilaterals"
        )
    elements = _mixed_entries(scanner, "element", dim, rows)
    inside = read_sets(scanner, INSIDE) if named else {}
    boundary = _mixed_entries(scanner, "boundary element", dim - 1)
    outside = read_sets(scanner, OUTSIDE) if named else {}
    count = _vertex_count(scanner)
    positions: Floats | tuple[int, Floats]
    if scanner.peek() == "nodes":
        counts = {CELLS[geometry]: len(found) for geometry, found in places.items()}
        collection, values = _nodes(scanner, counts)
        positions = collection.degree, values
        same = collection.basis == "equispaced" and collection.degree < 3  # points of Gauss-Lobatto
        if not collection.continuous or (collection.basis != "gll" and not same):
            raise MeshFormatError(
                f'{where}: nodes of elements of several shapes in "{collection.name}" are not '
                f"read: save the mesh with nodes in H1_{dim}D_P{collection.degree}"
            )
    else:
        positions = _vertices(scanner, dim, count)
    scanner.end(end_tag)
    return SeveralShapes(elements, places, boundary, count, positions, where, (inside, outside))


def _read_trees(scanner: Scanner, text: str) -> Mesh:
    """Read a nonconforming mesh."""
    from femops_meshes.formats.mfem_trees import read_legacy_trees, read_names, read_trees

    if scanner.read("") == _NONCONFORMING[1]:
        content = read_legacy_trees(scanner)
        count = _vertex_count(scanner)
        curved, what = scanner.peek() == "nodes", f"{count} vertices"
    else:
        content = read_trees(scanner, read_names(text, scanner.name))
        curved, what = scanner.peek() == "nodes", "the roots' vertices"
        if not curved:
            scanner.keyword("coordinates")
            count = scanner.integer(scanner.read(what), f"the number of {what}", 0)
    dim, leaves = content.dim, int((content.nodes[:, 0] >= 0).sum())
    positions = _nodes(scanner, {CUBES[dim]: leaves}) if curved else _vertices(scanner, dim, count)
    # older files end without a line of their own
    scanner.end("" if content.legacy and scanner.peek() != _END_TAG else _END_TAG)
    try:
        return _build_trees(content, positions)
    except MeshFormatError:
        raise
    except MeshError as error:
        raise type(error)(f"{content.where}: {error}") from error.__cause__


def _build_trees(content: "TreeContent", positions: Floats | tuple[Collection, Floats]) -> Mesh:
    from femops_meshes.formats.mfem_trees import read_boundary, trees_of

    trees = trees_of(content)
    forest, elements, count = trees.forest, trees.elements, trees.num_vertices
    if isinstance(positions, tuple):
        if len(elements) != int((content.nodes[:, 0] >= 0).sum()):
            raise MeshFormatError(
                f"{content.where}: nodes of elements that are refined in some directions only are "
                "not read: save the mesh without nodes, or refine it in all directions in MFEM"
            )
        numbered = trees.numbers[elements]
        topology = Topology.build(numbered, count)
        coordinates = _node_coordinates(*positions, numbered, topology, content.where)
        folds = positions[0].continuous
        checks.folded_faces(forest.roots, trees.roots)
    else:
        if len(positions) <= trees.tops.max():
            raise MeshFormatError(
                f"{content.where}: {len(positions)} positions are given, but the roots have vertex "
                f"{trees.tops.max()} (counted from 0)"
            )
        of_roots = positions[trees.tops][forest.roots]
        checks.magnitude(of_roots)
        checks.geometry(of_roots)
        checks.folds((forest.roots, of_roots, trees.roots))
        coordinates, folds = of_roots[forest.root], False
        coordinates = halved_along(coordinates, forest.path, forest.level)
    checks.geometry(coordinates)
    topology = forest.topology(elements, count, trees.boundary)
    if folds:
        checks.folds((elements, coordinates, topology))
    entries = read_boundary(topology, elements, trees.boundary, trees.boundary_attributes)
    places = np.empty(len(elements), dtype=np.int64)
    order = leaf_order(content.dim, forest.root, forest.level, forest.path)
    places[order] = np.arange(len(order))
    mesh = Mesh(
        elements,
        coordinates,
        checks.attribute_array(trees.attributes, len(elements), "element_attributes"),
        outward_corners(elements, entries[:, :2]),
        checks.attribute_array(entries[:, 2], len(entries), "boundary_attributes"),
        count,
        places,
        forest=forest if forest.depth else None,
    )
    inside, outside = content.names
    return _told_balanced(mesh, content.where).with_names(
        names_of(inside, mesh.element_attributes), names_of(outside, mesh.boundary_attributes)
    )


def _told_balanced(mesh: Mesh, where: str) -> Mesh:
    """Refine elements until neighbours differ by one level, with a warning."""
    from femops_meshes.formats.mfem_trees import MOST_BALANCED, read_boundary

    balanced = mesh if mesh.forest is None else mesh.balanced(MOST_BALANCED * mesh.num_elements)
    if balanced is not mesh:
        more = balanced.num_elements - mesh.num_elements
        warnings.warn(
            f"{where}: some elements of the file are two levels or more above an element that "
            f"touches them; they were refined, so the mesh has {more} elements more than the file",
            stacklevel=5,
        )
        # faces that were two levels apart meet only now, and the file may list both sides
        elements, marks = balanced.elements, balanced.boundary_attributes.astype(np.int64)
        entries = read_boundary(balanced.topology, elements, balanced.boundary, marks)
        balanced = replace(
            balanced,
            boundary=outward_corners(elements, entries[:, :2]),
            boundary_attributes=checks.attribute_array(
                entries[:, 2], len(entries), "boundary_attributes"
            ),
        )
    return balanced


def _header(scanner: Scanner) -> tuple[str, bool]:
    """Check the first line; return the tag that ends the file, and whether it has names."""
    header = scanner.read('the line "MFEM mesh v1.0"')
    if header in _HEADERS:
        return "" if header == _HEADERS[0] else _END_TAG, header == _HEADERS[2]
    other = {
        "MFEM NC mesh": "elements are halved unevenly in this version: read is v1.0",
        "MFEM NURBS": "NURBS meshes are not supported",
        "$MeshFormat": "Gmsh's format is not supported: convert it with MFEM or meshio first",
    }
    for start, advice in other.items():
        if header.startswith(start):
            raise scanner.fail(f'"{shorten(header)}": {advice}')
    raise scanner.fail(
        f'the file should begin with "MFEM mesh v1.0", got "{shorten(header)}": '
        "it is no mesh of a version that is read, v1.0 to v1.3"
    )


def _dimension(scanner: Scanner) -> int:
    scanner.keyword("dimension")
    return scanner.integer(scanner.read("the dimension"), "the dimension", 1, 3)


def _vertex_count(scanner: Scanner) -> int:
    scanner.keyword("vertices")
    return scanner.integer(scanner.read("the number of vertices"), "the number of vertices", 0)


def _entries(scanner: Scanner, what: str, geometries: tuple[int, ...]) -> tuple[int, Ints, Ints]:
    """Read a section of elements that are alike: geometry, corners (n, k) and attributes (n,)."""
    return _alike(_rows(scanner, what, geometries), geometries)


def _alike(rows: list[list[str]], geometries: tuple[int, ...]) -> tuple[int, Ints, Ints]:
    geometry = int(rows[0][1]) if rows else geometries[0]
    words = [word for row in rows for word in row]
    table = np.array(list(map(int, words)), dtype=np.int64)
    table = table.reshape(len(rows), _CORNERS[geometry] + 2)
    corners = table[:, 2:]
    return geometry, corners[:, _ORDERS.get(geometry, slice(None))], table[:, 0]


def _mixed_entries(
    scanner: Scanner, what: str, dim: int, rows: list[list[str]] | None = None
) -> dict[int, tuple[Ints, Ints]]:
    """Read a section of elements: attributes (n,) and corners (n, k) of each geometry.

    Pass the words of its lines if they are read.
    """
    rows = _rows(scanner, what, _MIXED[dim]) if rows is None else rows
    result = {}
    for geometry in _MIXED[dim]:
        mine = [row for row in rows if row[1] == str(geometry)]
        if not mine:
            continue
        table = np.array([[*map(int, row)] for row in mine], dtype=np.int64)
        attributes, corners = table[:, 0], table[:, 2:]
        checks.attribute_array(attributes, len(mine), f"{scanner.name}: attributes of {what}s")
        again = len(mine) - len(np.unique(np.sort(corners, axis=1), axis=0))
        if again:
            raise MeshTopologyError(
                f"{scanner.name}: {again} {what}(s) have the same vertices as another "
                f"{GEOMETRIES[geometry]}: list each once"
            )
        result[geometry] = attributes, corners
    return result


def _rows(scanner: Scanner, what: str, geometries: tuple[int, ...]) -> list[list[str]]:
    """Read the words of each line of a section of elements."""
    scanner.keyword("elements" if what == "element" else "boundary")
    least = 1 if what == "element" else 0
    count = scanner.integer(scanner.read(f"the number of {what}s"), f"the number of {what}s", least)
    sizes = {str(geometry): _CORNERS[geometry] + 2 for geometry in geometries}
    scanner.room(count * min(sizes.values()), f"{count} {what}s")
    rows: list[list[str]] = []
    for number in range(count):
        row = scanner.integer_row(f"{what} {number + 1} of {count}")
        if len(row) < 2 or len(row) != sizes.get(row[1]):
            _bad_entry(scanner, what, row, geometries)
        rows.append(row)
    return rows


def _bad_entry(scanner: Scanner, what: str, row: list[str], wanted: tuple[int, ...]) -> NoReturn:
    number = int(row[1]) if len(row) > 1 else wanted[0]
    if number not in wanted:
        known = 0 <= number < len(GEOMETRIES)
        got = f"a {GEOMETRIES[number]}" if known else "unknown"
        names = " or ".join(f"{one}, a {GEOMETRIES[one]}" for one in wanted)
        raise scanner.fail(f"{what} of geometry {number}, {got}: in this mesh it must be {names}")
    corners = _CORNERS[number]
    raise scanner.fail(
        f"{what} of {len(row)} numbers: a {GEOMETRIES[number]} has {corners + 2}: attribute, "
        f"geometry and {corners} vertices"
    )


def _vertices(scanner: Scanner, dim: int, count: int) -> Floats:
    """Read positions (count, dim)."""
    text = scanner.read("the dimension of the vertices")
    space = scanner.integer(text, "the dimension of the vertices", 1, 3)
    if space != dim:
        raise scanner.fail(
            f"vertices in {space} dimensions for elements in {dim}: surfaces in a higher dimension "
            "are not supported"
        )
    return scanner.floats(count * dim, f"{count} vertices").reshape(count, dim)


def _nodes(scanner: Scanner, counts: Mapping[Cell, int]) -> tuple[Collection, Floats]:
    """Read the collection and its coefficients (ndofs, dim), for numbers of elements by shape."""
    cell = next((one for one in counts if not one.cube), next(iter(counts)))
    dim = cell.dim
    scanner.keyword("nodes")
    scanner.keyword("FiniteElementSpace")
    collection = parse_collection(scanner, dim)
    if not cell.cube and collection.degree > MOST_SIMPLEX_DEGREE:
        raise scanner.fail(
            f'"{collection.name}": coordinates of {cell.plural} have degree {MOST_SIMPLEX_DEGREE} '
            f"at most: save the mesh with SetCurvature({MOST_SIMPLEX_DEGREE})"
        )
    if not cell.cube and collection.basis == "bernstein" and not collection.continuous:
        raise scanner.fail(
            f'nodes of {cell.plural} in "{collection.name}" are not supported: save the mesh with '
            "SetCurvature(p)"
        )
    vdim = scanner.integer(scanner.label("VDim"), "VDim", 1, 3)
    if vdim != dim:
        raise scanner.fail(
            f"nodes in {vdim} dimensions for elements in {dim}: surfaces in a higher dimension are "
            "not supported"
        )
    ordering = scanner.integer(scanner.label("Ordering"), "Ordering", 0, 1)
    p = collection.degree
    least = sum(
        count * (one.inside_kind(dim, p) if collection.continuous else one.size(p))
        for one, count in counts.items()
    )
    scanner.room(least * dim, f"nodes of {sum(counts.values())} elements of degree {p}")
    values = scanner.remaining_floats(f'coordinates in "{collection.name}"', _END_TAG)
    if len(values) % dim:
        raise scanner.fail(
            f"{len(values)} numbers cannot be positions in {dim} dimensions: the file is truncated"
        )
    return collection, values.reshape(-1, dim) if ordering else values.reshape(dim, -1).T


def _build(content: _Content) -> Mesh:
    check_dangling(content.elements, content.num_vertices)
    elements, used = checks.compress_vertices(content.elements)
    boundary = checks.compress_boundary(content.boundary, used)
    topology = None
    if not content.cell.cube:
        coordinates = _simplex_coordinates(content, elements, len(used))
        elements, coordinates = simplices.ascending(elements, coordinates)
    elif isinstance(content.positions, tuple):
        topology = Topology.build(elements, len(used), boundary)
        coordinates = _node_coordinates(*content.positions, elements, topology, content.where)
    else:
        coordinates = content.positions[content.elements]
    checks.magnitude(coordinates)
    turned = False
    if content.cell.cube:
        elements, coordinates, turned = mended(elements, coordinates)
    mesh = Mesh.assemble(
        elements,
        coordinates,
        len(used),
        content.element_attributes,
        boundary,
        content.boundary_attributes,
        None if turned else topology,
    )
    checks.geometry(mesh.coordinates)
    if not isinstance(content.positions, tuple) or content.positions[0].continuous:
        checks.folds((mesh.elements, mesh.coordinates, mesh.topology))
    return mesh.with_names(
        names_of(content.element_names, mesh.element_attributes),
        names_of(content.boundary_names, mesh.boundary_attributes),
    )


def _simplex_coordinates(content: _Content, elements: Ints, num_vertices: int) -> Floats:
    """Coordinates (ne, nodes, dim) of simplices whose vertices are in the file's order."""
    from femops_meshes.formats import mfem_simplices

    cell = content.cell
    if not isinstance(content.positions, tuple):
        return content.positions[content.elements]
    collection, nodes = content.positions
    if collection.continuous:
        numbers, count = mfem_simplices.h1_numbers(elements, num_vertices, collection.degree)
    else:
        count = len(elements) * cell.size(collection.degree)
        order = mfem_simplices.broken_order(cell, collection.degree)
        numbers = np.arange(count).reshape(len(elements), -1)[:, order]
    _check_count(collection, nodes, count, content.where)
    checks.magnitude(nodes[numbers])
    if collection.basis == "bernstein":
        return mfem_simplices.of_bernstein(cell, collection.degree) @ nodes[numbers]
    points = mfem_simplices.points(cell, collection.line())
    return simplices.from_points(cell, collection.degree, points) @ nodes[numbers]


def _check_count(collection: Collection, nodes: Floats, count: int, where: str) -> None:
    if len(nodes) != count:
        raise MeshFormatError(
            f'{where}: "{collection.name}" has {count} nodes on this mesh, but the file '
            f"gives {len(nodes)} (of {nodes.shape[1]} numbers each): it is truncated, or a count "
            "is wrong"
        )


def _node_coordinates(
    collection: Collection, nodes: Floats, elements: Ints, topology: Topology, where: str
) -> Floats:
    """Convert coefficients to coordinates (ne, (p + 1)**dim, dim) at GLL points."""
    dim, p, ne = topology.dim, collection.degree, len(elements)
    if collection.continuous:
        numbers, count = h1_numbers(elements, topology, np.arange(ne, dtype=np.int64), p)
        inner = (p - 1) ** dim
        if inner > 1:
            order = np.array(interior_order(collection, dim))
            cells = np.arange(count - ne * inner, count).reshape(ne, inner)
            renumber = np.arange(count)
            renumber[cells] = cells[:, order]
            numbers = renumber[numbers]
    else:
        count = ne * (p + 1) ** dim
        numbers = np.arange(count).reshape(ne, -1)
    _check_count(collection, nodes, count, where)
    checks.magnitude(nodes[numbers])
    return tensor_apply([collection.to_gll()] * dim, nodes[numbers])


def read_mesh(path: str | os.PathLike[str], refine: int = 0, reorder: bool = True) -> Mesh | Any:
    """Read a mesh file of MFEM, refine it, and order its elements for speed."""
    mesh = read_mfem(path).refine(refine)
    return mesh.reordered(hilbert_order(mesh.element_centers())) if reorder else mesh
