"""Meshes of several shapes in MFEM's format: the numbers of H1 nodes, elements written and read.

Vertices come first, then nodes inside edges, faces and cells. Edges and faces of all shapes are
numbered in the order in which the elements first touch them. The nodes of a face have the order in
which its first element sees them (`femops_meshes.formats.mfem_numbering` and `mfem_simplices`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import checks
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import gauss_lobatto, shared_lattice, vertex_weights
from femops_meshes.errors import MeshFormatError
from femops_meshes.formats.mfem_numbering import CORNERS_OF_EDGES, CORNERS_OF_FACES
from femops_meshes.formats.mfem_simplices import ENTITIES, points, written_elements
from femops_meshes.formats.repair import mended
from femops_meshes.mixed import SHAPES, MixedMesh
from femops_meshes.names import Names
from femops_meshes.topology.entities import (
    HEXAHEDRON,
    PRISM,
    QUADRILATERAL,
    TETRAHEDRON,
    TRIANGLE,
    VTK_CORNERS,
    Cell,
    cell_and_degree,
    outward_corners,
)
from femops_meshes.topology.topology import check_dangling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Local = tuple[tuple[int, ...], ...]

CELLS = {2: TRIANGLE, 3: QUADRILATERAL, 4: TETRAHEDRON, 5: HEXAHEDRON, 6: PRISM}
"""Cell of each of MFEM's geometry numbers."""

_FACES = {1: "segments", 2: "triangles", 3: "quadrilaterals"}
"""Name of the faces of each geometry in `MixedMesh`."""

_PRISM: tuple[_Local, ...] = (
    ((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)),
    ((0, 2, 1), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
    ((0, 1, 2, 3, 4, 5),),
)


def _entities(cell: Cell) -> tuple[_Local, ...]:
    """Corners, in MFEM's order, of the edges, faces and cell."""
    if cell is PRISM:
        return _PRISM
    if cell.simplex:
        return ENTITIES[cell.dim]
    return (
        CORNERS_OF_EDGES[cell.dim],
        *((CORNERS_OF_FACES,) if cell.dim == 3 else ()),
        (tuple(range(cell.num_corners)),),
    )


def _inside(kind: int, width: int, p: int) -> list[tuple[int, ...]]:
    """Weights of the corners, of sum p**kind, at the nodes inside an entity, in MFEM's order."""
    index = [row[::-1] for row in product(range(1, p), repeat=kind)]  # the first varies fastest
    if width == 2**kind:
        ends = [row[::-1] for row in product((0, 1), repeat=kind)]
        corners = [ends[k] for k in VTK_CORNERS[kind]]
        return [
            tuple(
                prod(i if end else p - i for i, end in zip(row, corner, strict=True))
                for corner in corners
            )
            for row in index
        ]
    if width == kind + 1:
        rows = [(p - sum(row), *row) for row in index if sum(row) < p]
        return [tuple(share * p ** (kind - 1) for share in row) for row in rows]
    flat = [((p - i - j, i, j), k) for i, j, k in index if i + j < p]
    return [tuple(share * end * p for end in (p - k, k) for share in shares) for shares, k in flat]


@lru_cache(maxsize=64)
def _nodes_inside(cell: Cell, p: int, local: tuple[int, ...], kind: int) -> Ints:
    """Nodes (n,) inside an entity among those of the lattice, in MFEM's order."""
    weights = vertex_weights(cell, p)
    if cell.cube:
        weights = weights[:, VTK_CORNERS[cell.dim]]
    place = {tuple(row): k for k, row in enumerate(weights.tolist())}
    found = []
    for shares in _inside(kind, len(local), p):
        row = [0] * cell.num_corners
        for corner, share in zip(local, shares, strict=True):
            row[corner] = share * p ** (cell.dim - kind)
        found.append(place[tuple(row)])
    return np.array(found, dtype=np.int64)


def h1_numbers(
    elements: Mapping[Cell, Ints], places: Mapping[Cell, Ints], num_vertices: int, degree: int
) -> tuple[dict[Cell, Ints], int]:
    """MFEM's number of each node of the lattice in each element, and their count.

    Shapes: `elements` (n, corners), `places` (n,) in the file, of each shape. Corners of squares
    and cubes are lexicographic, the vertices of others are in the file's order.
    """
    own, elements = elements, {cell: _turned(cell, rows) for cell, rows in elements.items()}
    ids, count = shared_lattice([*own.items()], degree)
    number = np.full(count, -1, dtype=np.int64)
    cells = [*elements]
    dim = cells[0].dim
    for cell, mine in zip(cells, ids, strict=True):
        corners = np.argsort(-vertex_weights(cell, degree), axis=0, kind="stable")[0]
        number[mine[:, corners]] = own[cell]
    start = num_vertices
    for kind in range(1, dim + 1):
        tables = []
        for k, cell in enumerate(cells):
            for at, local in enumerate(_entities(cell)[kind - 1]):
                rows = np.sort(elements[cell][:, local], axis=1)
                rows = np.pad(rows, [(0, 0), (0, 8 - rows.shape[1])], constant_values=-1)
                which = np.broadcast_to([at, k, len(local)], (len(rows), 3))
                at_element = np.arange(len(rows))
                tables.append(np.column_stack([places[cell], which, at_element, rows]))
        table = np.concatenate(tables)
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        base = table[np.sort(np.unique(table[:, 5:], axis=0, return_index=True)[1])]
        size_of = {width: len(_inside(kind, width, degree)) for width in {*base[:, 3].tolist()}}
        sizes = np.array([size_of[width] for width in base[:, 3].tolist()])
        starts = start + np.cumsum(sizes) - sizes
        for k, cell in enumerate(cells):
            for at, local in enumerate(_entities(cell)[kind - 1]):
                mine = np.flatnonzero((base[:, 1] == at) & (base[:, 2] == k))
                element, nodes = base[mine, 4], _nodes_inside(cell, degree, local, kind)
                numbers = starts[mine, np.newaxis] + np.arange(len(nodes))
                if kind == 1:  # an edge runs from its lower to its higher vertex
                    ends = elements[cell][element][:, local]
                    back = ends[:, 0] > ends[:, 1]
                    numbers[back] = numbers[back, ::-1]
                number[ids[k][element[:, np.newaxis], nodes]] = numbers
        start += int(sizes.sum())
    return {cell: number[mine] for cell, mine in zip(cells, ids, strict=True)}, start


def node_matrix(cell: Cell, degree: int) -> Floats:
    """Matrix from values at MFEM's H1 nodes, in the order of the lattice, to those at our nodes."""
    if cell.cube:
        return np.eye(cell.size(degree))
    return simplices.from_points(cell, degree, points(cell, gauss_lobatto(degree + 1)[0]))


# --- files ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class SeveralShapes:
    """Contents of a file with prisms, or with elements of several shapes."""

    elements: dict[int, tuple[Ints, Ints]]  # as of `mfem_reader.FileArrays`
    places: dict[int, Ints]  # (n,): places in the file of the elements of each geometry
    boundary: dict[int, tuple[Ints, Ints]]
    num_vertices: int
    positions: Floats | tuple[int, Floats]  # of vertices, or of H1 nodes of a degree
    where: str
    names: tuple[Names, Names]


def build(content: SeveralShapes) -> MixedMesh:
    """Mesh of several shapes. Mirrored elements are turned over."""
    cells = {CELLS[g]: rows for g, (_, rows) in content.elements.items()}
    numbers = np.concatenate([rows.ravel() for rows in cells.values()])
    check_dangling(numbers[:, np.newaxis], content.num_vertices)
    used = np.unique(numbers)
    places = {CELLS[g]: found for g, found in content.places.items()}
    nodes = _coordinates(content, cells, places, used)
    corners = {}
    for cell, rows in cells.items():
        checks.magnitude(nodes[cell])
        mine = np.searchsorted(used, _turned(cell, rows))
        if not cell.simplex:
            mine, nodes[cell], _ = mended(mine, nodes[cell])
        corners[cell.plural] = mine
    faces = {
        _FACES[g]: checks.compress_boundary(_turned(CELLS[g], rows) if g > 1 else rows, used)
        for g, (_, rows) in content.boundary.items()
    }
    mesh = MixedMesh.assemble(
        {name: corners[name] for name in SHAPES if name in corners},
        {cell.plural: x for cell, x in nodes.items()},
        len(used),
        {CELLS[g].plural: tags for g, (tags, _) in content.elements.items()},
        faces,
        {_FACES[g]: tags for g, (tags, _) in content.boundary.items()},
        *content.names,
        file_elements={cell.plural: found for cell, found in places.items()},
    )
    mesh.check_folds()
    return mesh


def _turned(cell: Cell, rows: Ints) -> Ints:
    """Corners from MFEM's order to ours, or back. Ours of squares and cubes are lexicographic."""
    return rows[:, VTK_CORNERS[cell.dim]] if cell.cube else rows


def _coordinates(
    content: SeveralShapes, cells: Mapping[Cell, Ints], places: Mapping[Cell, Ints], used: Ints
) -> dict[Cell, Floats]:
    """Coordinates (n, nodes, dim) of the elements of each shape."""
    if not isinstance(content.positions, tuple):
        x = content.positions
        return {cell: x[_turned(cell, rows)] for cell, rows in cells.items()}
    degree, values = content.positions
    elements = {cell: np.searchsorted(used, _turned(cell, rows)) for cell, rows in cells.items()}
    numbers, count = h1_numbers(elements, places, len(used), degree)
    if len(values) != count:
        raise MeshFormatError(
            f"{content.where}: nodes of degree {degree} are {count} on this mesh, but the file "
            f"gives {len(values)}: it is truncated, or a count is wrong"
        )
    return {cell: node_matrix(cell, degree) @ values[rows] for cell, rows in numbers.items()}


Rows = list[tuple[Cell, Ints, NDArray[np.int32]]]
"""Shape, corners (n, k) and attributes (n,) of elements or boundary faces."""


def written(mesh: MixedMesh) -> tuple[Rows, Rows, dict[Cell, Ints], dict[Cell, Floats]]:
    """Elements, boundary faces, places (n,) of the elements in the file, and nodes of each shape.

    Nodes are MFEM's, in the order of the lattice of the written corners.
    """
    line = gauss_lobatto(mesh.order + 1)[0]
    elements: Rows = []
    faces: Rows = []
    nodes: dict[Cell, Floats] = {}
    for part in mesh.parts:
        cell, corners, x = part.cell, part.elements, part.coordinates
        if cell.simplex:
            corners, x, boundary = written_elements(part, line)
        else:
            boundary = outward_corners(part.elements, part.topology.boundary_faces, cell)
        if cell is PRISM:
            x = simplices.tables(cell, part.order, points(cell, line))[0] @ x
        elements.append((cell, corners, part.element_attributes))
        nodes[cell] = x
        for face in cell.faces:
            mine = (boundary >= 0).sum(axis=1) == face.num_corners
            faces.append((face, boundary[mine, : face.num_corners], part.boundary_attributes[mine]))
    order = np.argsort(np.concatenate([part.file_elements for part in mesh.parts]), kind="stable")
    ranks, stops = np.argsort(order), np.cumsum([part.num_elements for part in mesh.parts])
    places = zip((row[0] for row in elements), np.split(ranks, stops[:-1]), strict=True)
    return elements, faces, dict(places), nodes


def h1_nodes(
    elements: Rows, places: Mapping[Cell, Ints], num_vertices: int, nodes: Mapping[Cell, Floats]
) -> Floats:
    """Nodes (ndofs, dim) in MFEM's order from those of the elements that `written` returns."""
    corners = {cell: rows for cell, rows, _ in elements}
    degree = cell_and_degree(*next(iter(nodes.values())).shape[1:])[1]
    numbers, count = h1_numbers(corners, places, num_vertices, degree)
    values = np.empty((count, elements[0][0].dim))
    for cell, rows in numbers.items():
        values[rows] = nodes[cell]
    return values
