"""Refinement: every element is split into m**dim congruent parts of its reference element.

The lattice with m intervals per direction numbers the new vertices. Old vertices keep their
numbers. Then come vertices inside edges, faces and cells, shared by all elements at the entity.
"""

from collections.abc import Callable, Iterable
from itertools import product
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_common.arguments import check_memory
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.mapping import (
    gauss_lobatto,
    geometry_degree,
    lagrange_matrix,
    positions,
    tensor_apply,
)
from femops_meshes.errors import MeshArgumentError
from femops_meshes.topology.entities import (
    CUBES,
    SIMPLICES,
    entity_codes,
    entity_corners,
    outward_order,
    swaps,
)
from femops_meshes.topology.topology import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def _lattice_children(dim: int, m: int) -> Ints:
    """Lexicographic corners (m**dim, 2**dim) of each small cell in the (m + 1)**dim lattice."""
    powers = (m + 1) ** np.arange(dim)
    cells = np.array([index[::-1] for index in product(range(m), repeat=dim)]).reshape(-1, dim)
    corners = np.array([index[::-1] for index in product(range(2), repeat=dim)]).reshape(-1, dim)
    places: Ints = (cells @ powers)[:, None] + (corners @ powers)[None, :]
    return places


def split_elements(topology: Topology, m: int) -> Ints:
    """Vertex numbers (ne * m**dim, 2**dim) of the parts. An element's parts are consecutive."""
    lattice = topology.lattice(m)
    return lattice[:, _lattice_children(topology.dim, m)].reshape(-1, 2**topology.dim)


def pulled(corners: Ints, dim: int) -> tuple[Ints, Ints]:
    """Local corners (parts, dim + 1) of simplices in squares or cubes, and each one's element.

    A simplex is spanned by the vertex of its element with the lowest number and a simplex in a side
    without this vertex. So elements agree on the diagonal of a face that they share.

    Shapes: `corners` (n, 2**dim), lexicographic; parts of an element follow each other.
    """
    if dim == 1:
        return np.tile(np.array([[0, 1]]), (len(corners), 1)), np.arange(len(corners))
    cell, lowest = CUBES[dim], corners.argmin(axis=1)
    parts, owners = [], []
    for code in cell.face_codes:
        side = np.array(cell.entities[code][1])
        some = np.flatnonzero(~np.isin(lowest, side))
        inner, owner = pulled(corners[some][:, side], dim - 1)
        owner = some[owner]
        parts.append(np.column_stack([lowest[owner], side[inner]]))
        owners.append(owner)
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    return np.concatenate(parts)[order], owner[order]


def split_simplex_boundary(topology: Topology, boundary: Ints) -> tuple[Ints, Ints]:
    """Corners (nb * 2**(dim-1), dim) of the boundary's parts, and the parent of each.

    The corners of a part turn as those of its parent do.
    """
    cell, sides = topology.cell, topology.boundary_faces
    lattice = topology.lattice(2)
    parts = [[0, 1], [1, 2]] if cell.dim == 2 else [[0, 5, 4], [1, 3, 5], [2, 4, 3], [3, 4, 5]]
    found = np.empty((len(sides), len(parts), cell.dim), dtype=np.int64)
    for code in cell.face_codes:
        mine = np.flatnonzero(sides[:, 1] == code)
        nodes = cell.closed_lattice(code, 2)[parts]
        found[mine] = lattice[sides[mine, 0]][:, nodes]
    count = len(parts)
    odd = swaps(boundary) % 2 == 1
    found[odd, :, :2] = found[odd, :, 1::-1]
    return found.reshape(-1, cell.dim), np.repeat(np.arange(len(sides)), count)


def halved_simplices(mesh: Any) -> dict[str, Any]:
    """Arrays of a mesh of simplices whose edges are all halved."""
    topology, count = mesh.topology, 2**mesh.dim
    elements, nodes = simplices.halved(mesh.elements, mesh.coordinates, topology.lattice(2))
    boundary, parents = split_simplex_boundary(topology, mesh.boundary)
    return {
        "elements": elements,
        "coordinates": nodes,
        "element_attributes": np.repeat(mesh.element_attributes, count),
        "boundary": boundary,
        "boundary_attributes": mesh.boundary_attributes[parents],
        "num_vertices": topology.lattice_size(2),
        "file_elements": (mesh.file_elements[:, None] * count + np.arange(count)).ravel(),
    }


def halved_prisms(mesh: Any) -> dict[str, Any]:
    """Arrays of a mesh of prisms whose edges are all halved."""
    topology, cell = mesh.topology, mesh.cell
    lattice, sides = topology.lattice(2), topology.boundary_faces
    elements, nodes = simplices.halved_prisms(mesh.coordinates, lattice)
    boundary = np.full((len(sides), 4, 4), -1, dtype=np.int64)
    for code in cell.face_codes:
        mine, order = np.flatnonzero(sides[:, 1] == code), cell.outward(code)
        parts = _QUARTERS[len(order)][:, order]
        corners = lattice[sides[mine, 0]][:, cell.closed_lattice(code, 2)[parts]]
        boundary[mine, :, : len(order)] = corners
    return {
        "elements": elements,
        "coordinates": nodes,
        "element_attributes": np.repeat(mesh.element_attributes, 8),
        "boundary": boundary.reshape(-1, 4),
        "boundary_attributes": np.repeat(mesh.boundary_attributes, 4),
        "file_elements": (mesh.file_elements[:, None] * 8 + np.arange(8)).ravel(),
    }


# nodes of degree 2 of triangles and quadrilaterals that are the corners of their quarters
_QUARTERS = {3: np.array([[0, 5, 4], [5, 1, 3], [4, 3, 2], [3, 4, 5]]), 4: _lattice_children(2, 2)}


def into_simplices(mesh: Any) -> dict[str, Any]:
    """Arrays of a mesh whose squares or cubes are split into simplices, without new vertices."""
    inner = simplices.nodes(SIMPLICES[mesh.dim], mesh.order)
    many, plural = mesh.num_elements * factorial(mesh.dim), SIMPLICES[mesh.dim].plural
    what = f"splitting {mesh.num_elements} elements into {plural}"
    check_fits((many, len(inner), mesh.dim), what, "take fewer")
    local, owner = pulled(mesh.elements, mesh.dim)
    numbers = np.take_along_axis(mesh.elements[owner], local, axis=1)
    order = np.argsort(numbers, axis=1)
    local = np.take_along_axis(local, order, axis=1)
    nodes = np.empty((len(local), len(inner), mesh.dim))
    keys = local @ 8 ** np.arange(mesh.dim + 1)
    for key in np.unique(keys):
        some = np.flatnonzero(keys == key)
        x = mesh.cell.corners[local[some[0]]]
        places = x[0] + inner @ (x[1:] - x[0])
        nodes[some] = positions(mesh.coordinates[owner[some]], places)
    sides, parents = pulled(mesh.boundary, mesh.dim - 1)
    if mesh.dim == 3:  # as the corners 0, 1, 2 of the quadrilateral turn
        x = CUBES[2].corners[sides]
        odd = np.linalg.det(x[:, 1:] - x[:, :1]) < 0.0
        sides[odd] = sides[odd][:, [1, 0, 2]]
    count = len(owner) // max(mesh.num_elements, 1)
    return {
        "elements": np.take_along_axis(numbers, order, axis=1),
        "coordinates": nodes,
        "element_attributes": mesh.element_attributes[owner],
        "boundary": np.take_along_axis(mesh.boundary[parents], sides, axis=1),
        "boundary_attributes": mesh.boundary_attributes[parents],
        "file_elements": mesh.file_elements[owner] * count + np.arange(len(owner)) % max(count, 1),
        "coarser": None,
        "forest": None,
    }


def split_boundary(topology: Topology, m: int) -> tuple[Ints, Ints]:
    """Corners (nb * m**(dim-1), 2**(dim-1)) of the boundary's parts, and the parent of each.

    The parts look out of the same element as their parent.
    """
    dim = topology.dim
    lattice = topology.lattice(m)
    count = m ** (dim - 1)
    parts = np.empty((len(topology.boundary_faces), count, 2 ** (dim - 1)), dtype=np.int64)
    flat = _lattice_children(dim - 1, m) if dim > 1 else np.zeros((1, 1), dtype=np.int64)
    for code in entity_codes(dim, dim - 1):
        mine = np.flatnonzero(topology.boundary_faces[:, 1] == code)
        nodes = lattice[topology.boundary_faces[mine, 0]][:, _face_lattice(dim, code, m)]
        parts[mine] = nodes[:, flat[:, outward_order(dim, code)]]
    parents = np.repeat(np.arange(len(parts), dtype=np.int64), count)
    return parts.reshape(-1, 2 ** (dim - 1)), parents


def split_faces(dim: int, faces: Ints, chosen: Flags, start: Ints) -> tuple[Ints, Ints]:
    """Faces (m, 2), elements and codes, that faces (n, 2) become when elements are halved.

    The first half of a chosen element e is element start[e]; another element becomes start[e]. Also
    return the face (m,) of which each is a part.
    """
    halves = chosen[faces[:, 0]]
    parents = np.repeat(np.arange(len(faces)), np.where(halves, 2 ** (dim - 1), 1))
    parts = np.stack([start[faces[parents, 0]], faces[parents, 1]], axis=1)
    for code in entity_codes(dim, dim - 1):
        mine = halves[parents] & (faces[parents, 1] == code)
        children = np.array(entity_corners(dim, code))
        parts[mine, 0] += np.tile(children, int(mine.sum()) // len(children))
    return parts, parents


def _face_lattice(dim: int, code: int, m: int) -> Ints:
    """Lexicographic lattice nodes of a whole face: its interior, edges and corners."""
    digits = [code // 3**d % 3 for d in range(dim)]
    ranges = [range(m + 1) if t == 1 else (m * t // 2,) for t in reversed(digits)]
    powers = (m + 1) ** np.arange(dim)[::-1]
    return np.array([np.dot(index, powers) for index in product(*ranges)], dtype=np.int64)


def split_coordinates(coordinates: Floats, m: int) -> Floats:
    """Coordinates (ne * m**dim, (g + 1)**dim, dim) of the parts: the same polynomials, exactly."""
    count, num_nodes, dim = coordinates.shape
    nodes = gauss_lobatto(geometry_degree(num_nodes, dim) + 1)[0]
    parts = [lagrange_matrix(nodes, (nodes + part) / m) for part in range(m)]
    result = np.empty((count, m**dim, num_nodes, dim))
    for child, index in enumerate(product(range(m), repeat=dim)):
        result[:, child] = tensor_apply([parts[i] for i in reversed(index)], coordinates)
    return result.reshape(-1, num_nodes, dim)


def joined_coordinates(parts: Floats) -> Floats:
    """Coordinates (n, (g + 1)**dim, dim) of elements from those of their halves, at their nodes.

    Shapes: `parts` (n, 2**dim, (g + 1)**dim, dim).
    """
    count, _, num_nodes, dim = parts.shape
    p = geometry_degree(num_nodes, dim)
    nodes = gauss_lobatto(p + 1)[0]
    ends = np.array([0, int((nodes <= 0.5).sum()), p + 1])
    rows = [lagrange_matrix(nodes, 2 * nodes[slice(*ends[k : k + 2])] - k) for k in (0, 1)]
    result = np.empty((count, *(p + 1,) * dim, dim))  # z, y, x
    for child, index in enumerate(product(range(2), repeat=dim)):
        at = tuple(slice(*ends[k : k + 2]) for k in index)
        part = tensor_apply([rows[k] for k in reversed(index)], parts[:, child])
        shape = [int(ends[k + 1] - ends[k]) for k in index]
        result[(slice(None), *at)] = part.reshape(count, *shape, dim)
    return result.reshape(count, num_nodes, dim)


def refined(
    mesh: Any, times: Any, shapes: Iterable[tuple[int, ...]], once: Callable[[Any], Any]
) -> Any:
    """Refine a mesh ``times`` times by ``once``. Its parts have coordinates of some shapes."""
    if isinstance(times, bool) or not isinstance(times, int | np.integer) or times < 0:
        raise MeshArgumentError(f"times is a whole number >= 0, got {times!r}")
    for shape in shapes:
        check_refined(shape, int(times))
    for _ in range(int(times)):
        mesh = once(mesh)
    return mesh


def check_refined(shape: tuple[int, ...], times: int) -> None:
    """Raise if a mesh with coordinates of `shape` would not fit into memory after refinement.

    Only the arrays of the result are counted, so a refused refinement could not succeed.
    """
    count, num_nodes, dim = shape
    if times > 0:
        # 2**(300 * dim) elements fit nowhere either, and can still be counted
        elements = count * 2 ** (dim * min(times, 300))
        what = f"refining {count} elements {times} times"
        check_fits((elements, num_nodes, dim), what, "refine less")


def check_fits(shape: tuple[int, ...], what: str, remedy: str) -> None:
    """Raise if the arrays of a mesh with coordinates of `shape` do not fit into memory."""
    elements, num_nodes, dim = shape
    needed = elements * (8 * 2**dim + 8 * num_nodes * dim + 4 + 8)
    check_memory(needed, what, remedy, MeshArgumentError)
