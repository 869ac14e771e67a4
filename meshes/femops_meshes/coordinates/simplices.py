"""Functions, nodes and rules of simplices and prisms, tabulated by basix: the only door to it.

Those of a prism are products of a triangle's and a segment's. The nodes on an edge are
Gauss-Lobatto points, as those of squares and cubes. Inside a triangle or tetrahedron they are by
Isaac's recursion (T. Isaac, "Recursive, parameter-free, explicitly defined interpolation nodes for
simplices", 2020).
"""

import math
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshExtraError
from femops_meshes.topology.entities import (
    PRISM,
    SEGMENT,
    SIMPLICES,
    TRIANGLE,
    Cell,
    cell_and_degree,
    swaps,
)
from femops_meshes.topology.topology import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_RULE = 40
"""Highest degree of a rule."""

_ROOM = 1 << 27
"""Bytes that the BLAS of basix may ask for. Without them it ends the process."""


def _basix() -> Any:
    try:
        import basix
    except ImportError as error:
        raise MeshExtraError(
            f"triangles and tetrahedra need the package basix ({error}): pip install fenics-basix, "
            "or split the elements of a file by femops.read_mesh(path, split=True)"
        ) from error
    return basix


def _cell(name: str) -> Any:
    return getattr(_basix().CellType, "interval" if name == SEGMENT.name else name)


@lru_cache(maxsize=64)
def _element(name: str, degree: int, broken: bool) -> Any:
    basix = _basix()
    np.empty(_ROOM, dtype=np.uint8)  # raises a MemoryError if there is no room
    return basix.create_element(
        basix.ElementFamily.P,
        _cell(name),
        degree,
        basix.LagrangeVariant.gll_isaac if degree else basix.LagrangeVariant.gll_warped,
        discontinuous=broken,
    )


def nodes(cell: Cell, degree: int) -> Floats:
    """Reference points (size, dim) of the nodes, in the order of the entities.

    Those of a segment ascend.
    """
    if cell.shape == "prism":
        flat, along = _factors(degree)
        line = nodes(SEGMENT, degree)
        return np.column_stack([nodes(TRIANGLE, degree)[flat], line[along]])
    found = np.array(_element(cell.name, degree, degree == 0).points)
    return found[_ascending(degree)] if cell is SEGMENT else found


@lru_cache(maxsize=64)
def _ascending(degree: int) -> Ints:
    """Order in which the nodes of a segment ascend."""
    found = _element(SEGMENT.name, degree, degree == 0).points
    return np.asarray(np.argsort(found[:, 0]))


@lru_cache(maxsize=64)
def _factors(degree: int) -> tuple[Ints, Ints]:
    """Node of a triangle, and of a segment, for each node (size,) of a prism."""
    if not degree:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    place = {tuple(row): k for k, row in enumerate(_of_triangle(degree).tolist())}
    rows = lattice(PRISM, degree).tolist()
    return np.array([place[tuple(row[:3])] for row in rows]), np.array([row[3] for row in rows])


def _of_triangle(degree: int) -> Ints:
    """Barycentric indices (size, 3) of a triangle's nodes; inside, corner 1 is fastest."""
    if not degree:
        return np.zeros((1, 3), dtype=np.int64)
    rows = lattice(TRIANGLE, degree)
    inside = (rows > 0).all(axis=1)
    order = np.lexsort((rows[:, 1] * inside, rows[:, 2] * inside, inside))
    return np.asarray(rows[order])


@lru_cache(maxsize=64)
def lattice(cell: Cell, degree: int) -> Ints:
    """Barycentric indices (size, dim + 1) of equispaced nodes, of sum `degree`, by entities.

    Those inside an entity are lexicographic in its corners, the last one fastest. For a prism they
    are those of its triangle's nodes, then the index along its segment, which is slower.
    """
    rows = []
    for _, corners in cell.entities:
        if cell.shape != "prism":
            rows += _shares(corners, cell.dim + 1, degree)
            continue
        levels = {corner // 3 for corner in corners}
        steps = range(1, degree) if len(levels) > 1 else [degree * level for level in levels]
        flat = _shares(tuple(dict.fromkeys(corner % 3 for corner in corners)), 3, degree)
        flat.sort(key=lambda row: row[2] if min(row) else 0)  # inside, corner 1 fastest
        rows += [[*row, step] for step in steps for row in flat]
    found = np.array(rows, dtype=np.int64)
    found.setflags(write=False)
    return found


def _shares(corners: tuple[int, ...], count: int, degree: int) -> list[list[int]]:
    """Rows of `lattice` inside the simplex with some of ``count`` corners."""
    rows = []
    for inner in product(range(1, degree + 1), repeat=len(corners) - 1):
        rest = degree - sum(inner)
        if rest > 0:
            row = [0] * count
            for corner, share in zip(corners, (rest, *inner), strict=True):
                row[corner] = share
            rows.append(row)
    return rows


def equispaced(cell: Cell, degree: int) -> Floats:
    """Reference points (size, dim) of `lattice`."""
    return np.asarray(lattice(cell, degree)[:, 1:] / degree)


@lru_cache(maxsize=64)
def pieces(cell: Cell, n: int) -> Ints:
    """Nodes (parts, dim + 1) among those of `lattice` of the n**dim equal parts of a simplex.

    The sums of the indices from one on are those of a cubic lattice, whose cubes have a simplex for
    each path along their edges. The paths on which the sums stay in order are the parts. None is
    mirrored. Those of a prism are tetrahedra, three in each of its parts.
    """
    if cell.shape == "prism":
        rows = lattice(cell, n)
        place = {tuple(row): k for k, row in enumerate(lattice(TRIANGLE, n).tolist())}
        number = np.empty((len(place), n + 1), dtype=np.int64)
        number[[place[tuple(row)] for row in rows[:, :3].tolist()], rows[:, 3]] = np.arange(
            len(rows)
        )
        flat = number[pieces(TRIANGLE, n)]
        prisms = np.concatenate([flat[..., :-1], flat[..., 1:]], axis=1).swapaxes(1, 2)
        tetrahedra = np.array([(0, 1, 2, 5), (0, 1, 5, 4), (0, 4, 5, 3)])
        return np.asarray(prisms[..., tetrahedra].reshape(-1, 4))
    sums = lattice(cell, n)[:, :0:-1].cumsum(axis=1)[:, ::-1]
    number = np.full((n + 2,) * cell.dim, -1)
    number[tuple(sums.T)] = np.arange(len(sums))
    found = []
    for axes in permutations(np.eye(cell.dim, dtype=np.int64)):
        path = sums[:, np.newaxis] + np.cumsum([np.zeros_like(axes[0]), *axes], axis=0)
        if np.linalg.det(axes) < 0:
            path[:, -2:] = path[:, :-3:-1]
        found.append(number[tuple(np.moveaxis(path, 2, 0))])
    rows = np.concatenate(found)
    return np.asarray(rows[(rows >= 0).all(axis=1)])


def tables(cell: Cell, degree: int, points: Floats) -> Floats:
    """Values, then derivatives along each direction, at points (n, dim): (1 + dim, n, size)."""
    given = np.ascontiguousarray(points, dtype=np.float64)
    if given.size > _MOST_KEPT:
        return _tables(cell, degree, given)
    return _kept(cell, degree, given.shape, given.tobytes())


def factors(
    cell: Cell, degree: int, points: Floats
) -> tuple[tuple[Floats, Floats], tuple[Ints, Ints]] | None:
    """Factors of `tables` at points that are products, those of a prism's triangle fastest.

    They are the tables of the triangle (3, n, size) and of the segment (2, n, size), and the node
    of each for each node of the prism. None for other cells, and for points that are no products.
    """
    if cell.shape != "prism":
        return None
    count = int(np.argmax(points[:, 2] != points[0, 2])) or len(points)
    flat, line = points[:count, :2], points[::count, 2:]
    both = np.tile(flat, (len(line), 1)), np.repeat(line, count, axis=0)
    if len(points) != len(both[0]) or not np.array_equal(points, np.hstack(both)):
        return None
    return (tables(TRIANGLE, degree, flat), tables(SEGMENT, degree, line)), _factors(degree)


def modes(cell: Cell, degree: int, points: Floats) -> Floats:
    """Values (n, size) of polynomials that are orthonormal for a mean over the cell, by degree."""
    basix = _basix()
    kind = basix.PolynomialType.legendre
    found = basix.tabulate_polynomials(kind, _cell(cell.name), degree, points)
    return np.asarray(found.T / math.sqrt(math.factorial(cell.dim)))


def slope_tables(cell: Cell, degree: int) -> Floats:
    """Derivatives (dim, nodes, size) of `tables` at the nodes of one degree less.

    The values of the functions of those nodes times these are the derivatives at any points.
    """
    return tables(cell, degree, nodes(cell, degree - 1))[1:]


def bernstein(cell: Cell, degree: int, points: Floats) -> Floats:
    """Values (n, size) of Bernstein's polynomials at points (n, dim), in the order of `lattice`."""
    if not degree:
        return np.ones((len(points), 1))
    if cell.shape == "prism":
        of, at = _factors(degree)
        flat = bernstein(TRIANGLE, degree, points[:, :2])
        return np.asarray(flat[:, of] * bernstein(SEGMENT, degree, points[:, 2:])[:, at])
    weights = np.column_stack([1.0 - points.sum(axis=1), points])
    powers, rows = np.ones((degree + 1, *weights.shape)), lattice(cell, degree)
    for k in range(degree):
        powers[k + 1] = powers[k] * weights
    factors = [math.factorial(degree) / math.prod(map(math.factorial, r)) for r in rows.tolist()]
    found = np.tile(factors, (len(points), 1))
    for corner, exponents in enumerate(rows.T):
        found *= powers[exponents, :, corner].T
    return found


@lru_cache(maxsize=64)
def from_nodes(cell: Cell, degree: int) -> Floats:
    """Matrix (size, size) from values at the nodes to Bernstein's coefficients. Read-only."""
    matrix = np.linalg.inv(bernstein(cell, degree, nodes(cell, degree)))
    matrix.setflags(write=False)
    return np.asarray(matrix)


_MOST_KEPT = 2**13  # coordinates of points of which tables are kept


@lru_cache(maxsize=256)
def _kept(cell: Cell, degree: int, shape: tuple[int, int], points: bytes) -> Floats:
    return _tables(cell, degree, np.frombuffer(points).reshape(shape))


def _tables(cell: Cell, degree: int, x: Floats) -> Floats:
    if cell.shape == "prism":
        flat, line = _tables(TRIANGLE, degree, x[:, :2]), _tables(SEGMENT, degree, x[:, 2:])
        found = _products(flat, line, degree)
        found.setflags(write=False)
        return found
    found = np.array(_element(cell.name, degree, degree == 0).tabulate(1, x)[..., 0])
    if cell is SEGMENT:
        found = found[..., _ascending(degree)]
    found[1:] -= found[1:].mean(axis=2, keepdims=True)  # a constant has no derivative
    found[np.abs(found) < 1e-14] = 0.0  # round-off
    found.setflags(write=False)
    return found


def _products(flat: Floats, line: Floats, degree: int) -> Floats:
    """Tables (4, n, size) of a prism from those of its triangle and its segment."""
    of, at = _factors(degree)
    values = [(flat[0], line[0]), (flat[1], line[0]), (flat[2], line[0]), (flat[0], line[1])]
    return np.stack([a[:, of] * b[:, at] for a, b in values])


def at_points(cell: Cell, degree: int, points: Floats, *, slopes: bool) -> Floats:
    """Values, or derivatives, like those of `tables`, at points that are used once.

    Nothing is kept, or rounded to zero, and the bits at a point do not depend on the other points.
    Shapes: `points` (n, dim), returned (1, n, size) or (dim, n, size).
    """
    if cell.shape == "prism":
        flat, line = (
            np.concatenate([at_points(each, degree, x, slopes=k) for k in (False, True)])
            for each, x in ((TRIANGLE, points[:, :2]), (SEGMENT, points[:, 2:]))
        )
        whole = _products(flat, line, degree)
        return whole[1:] if slopes else whole[:1]
    matrices = _to_nodes(cell, degree)[1:] if slopes else _to_nodes(cell, degree)[:1]
    values = bernstein(cell, degree, points)
    found = np.zeros((len(matrices), len(points), matrices.shape[2]))
    for k in range(matrices.shape[1]):  # a large product of BLAS rounds a row by their number
        found += values[:, k, np.newaxis] * matrices[:, np.newaxis, k]
    return found


@lru_cache(maxsize=64)
def _to_nodes(cell: Cell, degree: int) -> Floats:
    """Matrices (1 + dim, size, size) from Bernstein's functions to `tables`."""
    at_nodes = _tables(cell, degree, nodes(cell, degree))
    found = np.matmul(from_nodes(cell, degree), at_nodes) if degree else at_nodes
    found.setflags(write=False)
    return np.asarray(found)


@lru_cache(maxsize=64)
def _seen_from(cell: Cell, degree: int, order: tuple[int, ...]) -> Ints:
    """Nodes (size,) of a simplex in the order in which they are seen with permuted vertices."""
    given = nodes(cell, degree)
    weights = np.column_stack([1.0 - given.sum(axis=1), given])
    wanted = weights @ cell.corners[list(order)]
    gaps = np.abs(wanted[:, np.newaxis] - given).max(axis=2)
    return np.asarray(gaps.argmin(axis=1))


def mirrored(coordinates: Floats) -> Flags:
    """True (n[, ...]) for simplices whose determinant is negative in the middle."""
    cell, degree = cell_and_degree(*coordinates.shape[-2:])
    slopes = tables(cell, degree, cell.center)[1:, 0]
    return np.asarray(np.linalg.det(slopes @ coordinates) < 0.0)


def look_out(boundary: Ints, coordinates: Floats, faces: Ints, codes: NDArray[Any]) -> Flags:
    """True (nb, 2) where an entry looks out of the simplex on its first, or its second, side.

    So the corners of an entry turn around the outward normal, or the domain is to their left.
    Shapes: `boundary` (nb, dim), `coordinates` (ne, nodes, dim), `faces`, `codes` (nb, 2).
    """
    opposite = codes - SIMPLICES[boundary.shape[1]].face_codes[0]
    turns = swaps(boundary)[:, np.newaxis] + opposite + mirrored(coordinates[faces])
    return np.asarray(turns % 2 == 0)


def with_sides(topology: Topology, boundary: Ints, coordinates: Floats) -> Topology:
    """Topology in which a boundary entry between two simplices has the one that it looks out of.

    In the given topology it has the first of both.
    """
    at = topology.boundary_faces
    number = topology.entity[at[:, 0], at[:, 1]]
    two = np.flatnonzero(topology.faces[number, 1] >= 0)
    if not len(two):
        return topology
    faces, codes = topology.faces[number[two]], topology.face_codes[number[two]]
    out = look_out(boundary[two], coordinates, faces, codes)
    second = (out[:, 1] & ~out[:, 0]).astype(np.int64)
    rows, found = np.arange(len(two)), at.copy()
    found[two] = np.stack([faces[rows, second], codes[rows, second]], axis=1)
    found.setflags(write=False)
    return replace(topology, boundary_faces=found)


def turned(cell: Cell, degree: int, code: int) -> Ints:
    """Nodes (size,) of a simplex that is turned to a face: its vertices first, the other last.

    Then the face lies where the last reference coordinate is zero. A prism is turned so that a
    triangle lies there, or a quadrilateral where the second coordinate is zero.
    """
    face = cell.entities[code][1]
    if cell.shape == "prism":
        return _seen_prism(degree, face)
    (apex,) = {*range(cell.num_corners)} - {*face}
    return _seen_from(cell, degree, (*face, apex))


def _seen_prism(degree: int, face: tuple[int, ...]) -> Ints:
    """Nodes (size,) of a prism in the order in which they are seen by one with a face below it."""
    flat, along = _factors(degree)
    rows = _of_triangle(degree)
    if len(face) == 3:
        along = along if max(face) < 3 else degree - along
    else:
        a, b = face[0], face[1]
        place = {tuple(row): k for k, row in enumerate(rows.tolist())}
        order = [(a, b, 3 - a - b).index(k) for k in range(3)]
        flat = np.array([place[tuple(row)] for row in rows[:, order].tolist()])[flat]
    number = np.empty((len(rows), degree + 1), dtype=np.int64)
    number[_factors(degree)] = np.arange(len(flat))
    return np.asarray(number[flat, along])


def reflected_prism(degree: int) -> Ints:
    """Nodes (size,) of a prism in the order in which they are seen with two edges exchanged."""
    flat, along = _factors(degree)
    rows = _of_triangle(degree)
    place = {tuple(row): k for k, row in enumerate(rows.tolist())}
    other = np.array([place[a, c, b] for a, b, c in rows.tolist()])
    number = np.empty((len(rows), degree + 1), dtype=np.int64)
    number[flat, along] = np.arange(len(flat))
    return np.asarray(number[other[flat], along])


def at_end(points: Floats) -> Floats:
    """Reference points (n, dim) on the face of a turned cell, from a list (n, dim - 1) of points.

    The last coordinate leads inwards; see `femops.element.turned_to`.
    """
    return np.column_stack([points, np.zeros(len(points))])


def ascending(elements: Ints, coordinates: Floats) -> tuple[Ints, Floats]:
    """Elements (ne, dim + 1) with ascending vertices, and their nodes in the order that follows."""
    order = np.argsort(elements, axis=1, kind="stable")
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    result = coordinates.copy()
    keys = order @ 10 ** np.arange(order.shape[1])
    for key in np.unique(keys):
        some = np.flatnonzero(keys == key)
        seen = _seen_from(cell, degree, tuple(order[some[0]].tolist()))
        result[some] = coordinates[some[:, np.newaxis], seen]
    return np.take_along_axis(elements, order, axis=1), result


def from_points(cell: Cell, degree: int, points: Floats) -> Floats:
    """Matrix (size, size) from a polynomial's values at points (size, dim) to those at the nodes.

    Values at the points must determine the polynomial. Points may be nodes.
    """
    at = nodes(cell, degree)
    matrix = np.linalg.inv(_tables(cell, degree, points)[0])
    same = np.abs(at[:, np.newaxis] - points).max(axis=2) < 1e-12
    rows = same.any(axis=1)
    matrix[rows] = same[rows]  # values at common nodes stay bit by bit
    return np.asarray(matrix)


_IN_TWO = {
    2: (((0, 5, 4), (1, 5, 3), (2, 4, 3), (3, 4, 5)),),
    3: tuple(
        (
            *((0, 9, 8, 7), (1, 9, 6, 5), (2, 8, 6, 4), (3, 7, 5, 4)),
            *((*ends, *sides) for sides in pairs),
        )
        for ends, pairs in (
            ((4, 9), ((8, 7), (7, 5), (5, 6), (6, 8))),
            ((5, 8), ((9, 7), (7, 4), (4, 6), (6, 9))),
            ((6, 7), ((9, 8), (8, 4), (4, 5), (5, 9))),
        )
    ),
}
"""Vertices of the parts of a halved simplex among its nodes of degree 2, for each diagonal."""


def halves(cell: Cell) -> Floats:
    """Corners (2**dim, corners, dim) of the parts of a halved reference cell."""
    if cell.shape == "prism":
        return np.asarray(equispaced(cell, 2)[_halved_prism()])
    return np.asarray(nodes(cell, 2)[np.array(_IN_TWO[cell.dim][0])])


@lru_cache
def _halved_prism() -> Ints:
    """Corners (8, 6) of the parts of a halved prism among its nodes of degree 2."""
    number = np.empty((6, 3), dtype=np.int64)
    number[_factors(2)] = np.arange(18)
    flat = np.array([(0, 5, 4), (5, 1, 3), (4, 3, 2), (3, 4, 5)])  # none is mirrored
    return np.concatenate([np.column_stack([number[flat, k], number[flat, k + 1]]) for k in (0, 1)])


def halved_prisms(coordinates: Floats, lattice: Ints) -> tuple[Ints, Floats]:
    """Split prisms into 8 with halved edges; shapes as of `halved`."""
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    corners, inner = halves(cell), nodes(cell, degree)
    result = np.empty((len(coordinates), len(corners), *coordinates.shape[1:]))
    for k, part in enumerate(corners):
        places = part[0] + inner @ (part[1:4] - part[0])
        result[:, k] = tables(cell, degree, places)[0] @ coordinates
    elements = lattice[:, _halved_prism()]
    return elements.reshape(-1, 6), result.reshape(-1, *coordinates.shape[1:])


def halved(elements: Ints, coordinates: Floats, lattice: Ints) -> tuple[Ints, Floats]:
    """Split simplices into 2**dim with halved edges, tetrahedra along their shortest diagonal.

    Shapes: `lattice` (ne, nodes of degree 2), numbers of the new vertices; returned (ne * 2**dim,
    dim + 1) and the nodes of the parts, which follow each other for each element.
    """
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    second, way = nodes(cell, 2), np.zeros(len(elements), dtype=np.int64)
    if cell.dim == 3:
        x = tables(cell, degree, second)[0] @ coordinates
        ends = np.array([parts[4][:2] for parts in _IN_TWO[3]])
        lengths = np.linalg.norm(x[:, ends[:, 0]] - x[:, ends[:, 1]], axis=2)
        way = lengths.argmin(axis=1)
    count = 2**cell.dim
    corners = np.empty((len(elements), count, cell.num_corners), dtype=np.int64)
    result = np.empty((len(elements), count, *coordinates.shape[1:]))
    inner = nodes(cell, degree)
    for number, parts in enumerate(_IN_TWO[cell.dim]):
        some = np.flatnonzero(way == number)
        corners[some] = lattice[some][:, np.array(parts)]
        for k, part in enumerate(parts):
            x = second[list(part)]
            places = x[0] + inner @ (x[1:] - x[0])
            result[some, k] = tables(cell, degree, places)[0] @ coordinates[some]
    return ascending(
        corners.reshape(-1, cell.num_corners), result.reshape(-1, *coordinates.shape[1:])
    )


@lru_cache(maxsize=64)
def rule(cell: Cell, degree: int) -> tuple[Floats, Floats]:
    """Points (n, dim) and positive weights (n,) that sum to 1, exact to a degree.

    Rules of Xiao and Gimbutas (2010) as far as they go, then products of Gauss and Jacobi.
    """
    if cell.shape == "prism":
        (flat, areas), (line, lengths) = rule(TRIANGLE, degree), rule(SEGMENT, degree)
        points = np.column_stack([np.tile(flat, (len(line), 1)), np.repeat(line, len(flat))])
        weights = np.outer(lengths, areas).ravel()
        for array in (points, weights):
            array.setflags(write=False)
        return points, weights
    basix = _basix()
    for kind in (basix.QuadratureType.xiao_gimbutas, basix.QuadratureType.gauss_jacobi):
        try:
            points, weights = basix.make_quadrature(_cell(cell.name), max(degree, 1), rule=kind)
        except RuntimeError:
            continue  # no rule of this degree
        if (weights > 0).all():
            break
    points, weights = np.array(points), np.array(weights) / np.sum(weights)
    for array in (points, weights):
        array.setflags(write=False)
    return points, weights
