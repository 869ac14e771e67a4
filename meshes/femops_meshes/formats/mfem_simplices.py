"""MFEM's nodes of triangles and tetrahedra: where they are, and their numbers in a file.

A node has barycentric indices, one for each vertex of its element as the file lists them, whose sum
is the degree. Its position divides 1-D points at these indices by their sum. Vertices come first,
then nodes inside edges, faces and cells, which are numbered as those of squares and cubes
(`femops_meshes.formats.mfem_numbering`). Inside an entity the index of the second vertex varies
fastest, then that of the third. An edge runs from its lower to its higher vertex, a face has the
vertices of the first element that touches it.
"""

from itertools import product
from math import factorial, prod

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import determinants, jacobians
from femops_meshes.formats.mfem_numbering import first_met
from femops_meshes.mesh import Mesh
from femops_meshes.topology.entities import PRISM, SIMPLICES, Cell
from femops_meshes.topology.topology import group_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ENTITIES = {
    2: (((0, 1), (1, 2), (2, 0)), ((0, 1, 2),)),
    3: (
        ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)),
        ((1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1)),
        ((0, 1, 2, 3),),
    ),
}
"""Corners of the edges, faces and cell, in MFEM's order."""


def points(cell: Cell, line: Floats) -> Floats:
    """Reference points (size, dim) of `simplices.lattice`, from 1-D points (p + 1,)."""
    shares = line[simplices.lattice(cell, len(line) - 1)]
    if cell is PRISM:
        flat = shares[:, 1:3] / shares[:, :3].sum(axis=1, keepdims=True)
        return np.column_stack([flat, shares[:, 3]])
    return np.asarray(shares[:, 1:] / shares.sum(axis=1, keepdims=True))


def of_bernstein(cell: Cell, degree: int) -> Floats:
    """Matrix from coefficients of Bernstein's functions to values at the nodes of a mesh."""
    shares, at = simplices.lattice(cell, degree), simplices.nodes(cell, degree)
    weights = np.column_stack([1.0 - at.sum(axis=1), at])
    ways = [factorial(degree) // prod(map(factorial, row)) for row in shares.tolist()]
    return np.asarray((weights[:, np.newaxis] ** shares).prod(axis=2) * ways)


def broken_order(cell: Cell, degree: int) -> Ints:
    """Place (size,) in MFEM's L2 element of each node of `simplices.lattice`."""
    return _ranks(simplices.lattice(cell, degree)[:, 1:], degree, 0)


def _ranks(inner: Ints, degree: int, least: int) -> Ints:
    """Rank of indices (..., k), all from ``least`` on, among those whose sum leaves so much."""
    count = inner.shape[-1]
    every = [
        index[::-1]
        for index in product(range(least, degree + 1), repeat=count)
        if sum(index) <= degree - least
    ]
    table = np.zeros((degree + 1,) * count, dtype=np.int64)
    if every:
        table[tuple(np.array(every).T)] = np.arange(len(every))
    return np.asarray(table[tuple(np.moveaxis(inner, -1, 0))])


def h1_numbers(elements: Ints, num_vertices: int, degree: int) -> tuple[Ints, int]:
    """MFEM's number of each node of `simplices.lattice` in each element, and their count.

    Elements (ne, dim + 1) have the file's order, as have their vertices.
    """
    dim = elements.shape[1] - 1
    cell = SIMPLICES[dim]
    shares = simplices.lattice(cell, degree)
    support = [frozenset(np.flatnonzero(row).tolist()) for row in shares]
    numbers = np.empty((len(elements), len(shares)), dtype=np.int64)
    numbers[:, : dim + 1] = elements
    start = num_vertices
    for kind, entities in enumerate(ENTITIES[dim], 1):
        corners = elements[:, np.array(entities)]
        if kind == dim:
            entity, count, base = np.arange(len(elements))[:, np.newaxis], len(elements), corners
        else:
            found, count = group_rows(corners.reshape(-1, kind + 1), num_vertices)
            rank, place = first_met(found, count)
            entity, base = rank[found].reshape(corners.shape[:2]), np.sort(corners, axis=-1)
            if kind > 1:
                base = corners.reshape(-1, kind + 1)[place][found].reshape(corners.shape)
        inside = cell.inside_kind(kind, degree)
        for at, local in enumerate(entities if inside else ()):
            nodes = [k for k, some in enumerate(support) if some == {*local}]
            seen = (elements[:, np.newaxis] == base[:, at, 1:, np.newaxis]).argmax(axis=2)
            inner = shares[nodes][:, seen].swapaxes(0, 1)
            numbers[:, nodes] = start + entity[:, [at]] * inside + _ranks(inner, degree, 1)
        start += count * inside
    return numbers, start


def written_elements(mesh: Mesh, line: Floats) -> tuple[Ints, Floats, Ints]:
    """Elements whose vertices are in an order of a positive determinant, and nodes at `points`.

    Also corners of the boundary, which look out of the elements.
    """
    cell, degree = mesh.cell, len(line) - 1
    corners, nodes = mesh.elements.copy(), np.empty_like(mesh.coordinates)
    mirrored = determinants(jacobians(mesh.coordinates, cell.center))[:, 0] < 0
    at = points(cell, line)
    shares = np.column_stack([1.0 - at.sum(axis=1), at])
    for flag in (False, True):
        mine = mirrored == flag
        order = [
            *range(cell.dim - 1),
            *((cell.dim, cell.dim - 1) if flag else (cell.dim - 1, cell.dim)),
        ]
        places = np.empty_like(shares)
        places[:, order] = shares
        corners[mine] = mesh.elements[mine][:, order]
        nodes[mine] = simplices.tables(cell, degree, places[:, 1:])[0] @ mesh.coordinates[mine]
    element, code = mesh.topology.boundary_faces.T
    sides = np.array([cell.entities[code][1] for code in cell.face_codes])
    opposite = code - cell.face_codes[0]
    boundary = np.take_along_axis(mesh.elements[element], sides[opposite], axis=1)
    turned = mirrored[element] != (opposite % 2 == 1)
    boundary[turned, -2:] = boundary[turned, -2:][:, ::-1]
    return corners, nodes, boundary
