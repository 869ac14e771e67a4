"""Reader of the MFEM mesh formats v1.0, v1.2 (with an end tag) and v1.3 (with names)."""

import os
from dataclasses import dataclass
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import checks
from femops_meshes.coordinates.interpolation import tensor_apply
from femops_meshes.errors import MeshError, MeshFormatError
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
    scanner.keyword("dimension")
    dim = scanner.integer(scanner.read("the dimension"), "the dimension", 1, 3)
    scanner.keyword("elements")
    elements, element_attributes = _entries(scanner, "element", dim)
    inside = read_sets(scanner, INSIDE) if named else {}
    where = f"{scanner.name} (elements end at line {scanner.line})"
    scanner.keyword("boundary")
    boundary, boundary_attributes = _entries(scanner, "boundary element", dim - 1)
    outside = read_sets(scanner, OUTSIDE) if named else {}
    scanner.keyword("vertices")
    count = scanner.integer(scanner.read("the number of vertices"), "the number of vertices", 0)
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


def _entries(scanner: Scanner, what: str, dim: int) -> tuple[Ints, Ints]:
    """Read a section of elements: lexicographic corners (n, 2**dim) and attributes (n,)."""
    least = 1 if what == "element" else 0
    count = scanner.integer(scanner.read(f"the number of {what}s"), f"the number of {what}s", least)
    corners = 2**dim
    scanner.room(count * (corners + 2), f"{count} {what}s")
    geometry = str(_TENSOR[dim])
    words: list[str] = []
    for number in range(count):
        row = scanner.integer_row(f"{what} {number + 1} of {count}")
        if len(row) != corners + 2 or row[1] != geometry:
            _bad_entry(scanner, what, row, dim)
        words += row
    table = np.array(list(map(int, words)), dtype=np.int64).reshape(count, corners + 2)
    order = VTK_CORNERS[dim] if dim else [0]
    return table[:, 2:][:, order], table[:, 0]


def _bad_entry(scanner: Scanner, what: str, row: list[str], dim: int) -> NoReturn:
    wanted = _TENSOR[dim]
    number = int(row[1]) if len(row) > 1 else wanted
    if number != wanted:
        known = 0 <= number < len(GEOMETRIES)
        got = f"a {GEOMETRIES[number]}" if known else "unknown"
        raise scanner.fail(
            f"{what} of geometry {number}, {got}: in this mesh it must be {wanted}, a "
            f"{GEOMETRIES[wanted]}; supported are meshes of segments, squares or cubes alone"
        )
    raise scanner.fail(
        f"{what} of {len(row)} numbers: a {GEOMETRIES[wanted]} has {2**dim + 2}: attribute, "
        f"geometry and {2**dim} vertices"
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
