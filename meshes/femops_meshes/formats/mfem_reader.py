"""Reader of the MFEM mesh formats v1.0, v1.2 (with an end tag) and v1.3 (with names)."""

import os
from dataclasses import dataclass
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import checks
from femops_meshes.coordinates.interpolation import tensor_apply
from femops_meshes.errors import MeshError, MeshFormatError, MeshTopologyError
from femops_meshes.formats.files import read_text
from femops_meshes.formats.mfem_inline import begins_inline, read_inline
from femops_meshes.formats.mfem_nodes import Collection, interior_order, parse_collection
from femops_meshes.formats.mfem_numbering import h1_numbers
from femops_meshes.formats.mfem_sets import INSIDE, OUTSIDE, read_sets
from femops_meshes.formats.repair import mended
from femops_meshes.formats.scanner import Scanner, printable, shorten
from femops_meshes.mesh import Mesh
from femops_meshes.names import Names, names_of
from femops_meshes.topology.entities import VTK_CORNERS
from femops_meshes.topology.topology import Topology, check_dangling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GEOMETRIES = ("point", "segment", "triangle", "square", "tetrahedron", "cube", "prism", "pyramid")
_TENSOR = {0: 0, 1: 1, 2: 3, 3: 5}
"""MFEM's geometry number of the reference cube of each dimension."""

_CORNERS = (1, 2, 3, 4, 4, 8, 6, 5)
"""Number of corners of each geometry."""

_MIXED = {1: (1,), 2: (2, 3), 3: (4, 5, 6, 7)}
"""All geometry numbers of each dimension."""

_SPLIT = (2, 4, 6)
"""Geometry numbers of the elements that `femops.read_mesh` can split."""

_HEADERS = ("MFEM mesh v1.0", "MFEM mesh v1.2", "MFEM mesh v1.3")
_NONCONFORMING = (
    "nonconforming meshes are not supported: give a mesh without hanging vertices, as MFEM writes "
    "it before any local refinement"
)
_END_TAG = "mfem_mesh_end"


@final
@dataclass(frozen=True)
class _Content:
    """Contents of a file, before they are checked."""

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
class MixedMesh:
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


def read_mixed(path: str | os.PathLike[str]) -> MixedMesh | None:
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
    return MixedMesh(elements, boundary, positions, inside, outside)


def read_mfem(source: str | os.PathLike[str]) -> Mesh:
    """Read a mesh in MFEM's format v1.0 to v1.3, or the box that an INLINE mesh file describes."""
    if isinstance(source, str) and "\n" in source:
        text, name = source, "mesh text"
    else:
        text, name = read_text(source), printable(os.fspath(source))
    scanner = Scanner(text, name)
    if begins_inline(scanner):
        return read_inline(scanner)
    content = _parse(scanner)
    try:
        return _build(content)
    except MeshFormatError:
        raise
    except MeshError as error:
        raise type(error)(f"{content.where}: {error}") from error.__cause__  # which says the same


def _parse(scanner: Scanner) -> _Content:
    end_tag, named = _header(scanner)
    dim = _dimension(scanner)
    elements, element_attributes = _entries(scanner, "element", dim)
    inside = read_sets(scanner, INSIDE) if named else {}
    where = f"{scanner.name} (elements end at line {scanner.line})"
    boundary, boundary_attributes = _entries(scanner, "boundary element", dim - 1)
    outside = read_sets(scanner, OUTSIDE) if named else {}
    count = _vertex_count(scanner)
    positions: Floats | tuple[Collection, Floats]
    if scanner.peek() == "nodes":
        positions = _nodes(scanner, dim, len(elements))
    else:
        positions = _vertices(scanner, dim, count)
    scanner.end(end_tag)
    return _Content(
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


def _header(scanner: Scanner) -> tuple[tuple[str, ...], bool]:
    """Check the first line; return the tags that may end the file, and whether it has names."""
    header = scanner.read('the line "MFEM mesh v1.0"')
    if header in _HEADERS:
        return () if header == _HEADERS[0] else (_END_TAG,), header == _HEADERS[2]
    other = {
        "MFEM NC mesh": _NONCONFORMING,
        "MFEM mesh v1.1": _NONCONFORMING,  # its first version
        "MFEM NURBS": "NURBS meshes are not supported",
        "$MeshFormat": "Gmsh's format is not supported: convert it with MFEM or meshio first",
    }
    for start, advice in other.items():
        if header.startswith(start):
            raise scanner.fail(f'"{shorten(header)}": {advice}')
    raise scanner.fail(
        f'the file should begin with "MFEM mesh v1.0", got "{shorten(header)}": '
        "it is no mesh of a version that is read, v1.0, v1.2 or v1.3"
    )


def _dimension(scanner: Scanner) -> int:
    scanner.keyword("dimension")
    return scanner.integer(scanner.read("the dimension"), "the dimension", 1, 3)


def _vertex_count(scanner: Scanner) -> int:
    scanner.keyword("vertices")
    return scanner.integer(scanner.read("the number of vertices"), "the number of vertices", 0)


def _entries(scanner: Scanner, what: str, dim: int) -> tuple[Ints, Ints]:
    """Read a section of elements: lexicographic corners (n, 2**dim) and attributes (n,)."""
    rows = _rows(scanner, what, (_TENSOR[dim],))
    words = [word for row in rows for word in row]
    table = np.array(list(map(int, words)), dtype=np.int64).reshape(len(rows), 2**dim + 2)
    order = VTK_CORNERS[dim] if dim else [0]
    return table[:, 2:][:, order], table[:, 0]


def _mixed_entries(scanner: Scanner, what: str, dim: int) -> dict[int, tuple[Ints, Ints]]:
    """Read a section of elements: attributes (n,) and corners (n, k) of each geometry."""
    rows = _rows(scanner, what, _MIXED[dim])
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
    rows = []
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
        advice = "; supported are meshes of segments, squares or cubes alone"
        if number in _SPLIT:
            advice += " (femops.read_mesh(path, split=True) splits triangles, tetrahedra, prisms)"
        raise scanner.fail(
            f"{what} of geometry {number}, {got}: in this mesh it must be {names}"
            + (advice if len(wanted) == 1 else "")
        )
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


def _nodes(scanner: Scanner, dim: int, num_elements: int) -> tuple[Collection, Floats]:
    """Read the collection and its coefficients (ndofs, dim)."""
    scanner.keyword("nodes")
    scanner.keyword("FiniteElementSpace")
    collection = parse_collection(scanner, dim)
    vdim = scanner.integer(scanner.label("VDim"), "VDim", 1, 3)
    if vdim != dim:
        raise scanner.fail(
            f"nodes in {vdim} dimensions for elements in {dim}: surfaces in a higher dimension are "
            "not supported"
        )
    ordering = scanner.integer(scanner.label("Ordering"), "Ordering", 0, 1)
    p = collection.degree
    least = num_elements * ((p - 1) ** dim if collection.continuous else (p + 1) ** dim)
    scanner.room(least * dim, f"nodes of {num_elements} elements of degree {p}")
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
    topology = Topology.build(elements, len(used), boundary)
    if isinstance(content.positions, tuple):
        coordinates = _node_coordinates(*content.positions, elements, topology, content.where)
    else:
        coordinates = content.positions[content.elements]
    checks.magnitude(coordinates)
    elements, coordinates, turned = mended(elements, coordinates)
    if turned:
        topology = Topology.build(elements, len(used), boundary)
    mesh = Mesh.assemble(
        elements,
        coordinates,
        len(used),
        content.element_attributes,
        boundary,
        content.boundary_attributes,
        topology,
    )
    checks.geometry(mesh.coordinates)
    if not isinstance(content.positions, tuple) or content.positions[0].continuous:
        checks.folds(mesh.elements, mesh.topology)
    return mesh.with_names(
        names_of(content.element_names, mesh.element_attributes),
        names_of(content.boundary_names, mesh.boundary_attributes),
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
    if len(nodes) != count:
        raise MeshFormatError(
            f'{where}: "{collection.name}" has {count} nodes on this mesh, but the file '
            f"gives {len(nodes)} (of {dim} numbers each): it is truncated, or a count is wrong"
        )
    checks.magnitude(nodes[numbers])
    return tensor_apply([collection.to_gll()] * dim, nodes[numbers])
