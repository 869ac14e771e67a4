"""Interpolation, and maps from the reference element [0, 1]**dim to space, sum factorised.

Coordinates are values at the Gauss-Lobatto points of degree g. The number of points gives g.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from math import pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_meshes.coordinates import simplices
from femops_meshes.errors import MeshArgumentError, MeshGeometryError
from femops_meshes.topology.entities import CUBES, Cell, cell_and_degree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _frozen(*arrays: Floats) -> tuple[Floats, ...]:
    for array in arrays:
        array.setflags(write=False)
    return arrays


def _check_count(n: int, least: int, what: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < least:
        raise MeshArgumentError(f"{what} needs a whole number n >= {least} of points; got {n!r}")
    return int(n)


def _legendre(n: int, x: Floats) -> tuple[Floats, Floats]:
    """Legendre polynomials P_n and P_(n-1), n >= 1, at x (m,) in [-1, 1], by their recurrence."""
    before, now = np.ones_like(x), x.copy()
    for k in range(1, n):
        before, now = now, ((2 * k + 1) * x * now - k * before) / (k + 1)
    return now, before


def gauss_legendre(n: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre points and weights on [0, 1], exact for polynomials of degree 2n - 1."""
    return _gauss_legendre(_check_count(n, 1, "gauss_legendre"))


@lru_cache(maxsize=128)
def _gauss_legendre(n: int) -> tuple[Floats, Floats]:
    x: Floats = -np.cos(pi * (np.arange(n) + 0.75) / (n + 0.5))
    for _ in range(100):
        value, before = _legendre(n, x)
        step = value * (x * x - 1) / (n * (x * value - before))
        x = x - step
        if np.abs(step).max() < 1e-15:
            break
    x = (x - x[::-1]) / 2
    value, before = _legendre(n, x)
    slope = n * (x * value - before) / (x * x - 1)
    weights = 1 / ((1 - x * x) * slope * slope)
    points, weights = _frozen((1 + x) / 2, weights / weights.sum())
    return points, weights


def gauss_lobatto(n: int) -> tuple[Floats, Floats]:
    """Gauss-Lobatto (GLL) points and weights (n,) on [0, 1], exact up to degree 2n - 3.

    Points ascend from exactly 0 to exactly 1, so n is at least 2. Both arrays are read-only.
    """
    return _gauss_lobatto(_check_count(n, 2, "gauss_lobatto"))


@lru_cache(maxsize=128)
def _gauss_lobatto(n: int) -> tuple[Floats, Floats]:
    degree = n - 1
    x: Floats = -np.cos(pi * np.arange(n) / degree)
    for _ in range(100):
        value, before = _legendre(degree, x)
        # Newton for (1 - x^2) P'(x) = N (P_(N-1) - x P_N), whose slope is -N (N + 1) P_N
        step = (x * value - before) / (n * value)
        x = x - step
        if np.abs(step).max() < 1e-15:
            break
    x = (x - x[::-1]) / 2
    x[0], x[-1] = -1.0, 1.0
    weights = 1 / _legendre(degree, x)[0] ** 2
    points, weights = _frozen((1 + x) / 2, weights / weights.sum())
    return points, weights


def equispaced(n: int) -> Floats:
    """Return n >= 2 equispaced points of [0, 1], both ends among them; shape (n,)."""
    points: Floats = np.linspace(0.0, 1.0, _check_count(n, 2, "equispaced"))
    return points


def _barycentric_weights(nodes: Floats) -> Floats:
    """Weights (n,) of (3.2), w_j = prod_(k != j) 1 / (x_j - x_k), scaled to a maximum of 1."""
    differences = 4 * (nodes[:, None] - nodes[None, :])
    np.fill_diagonal(differences, 1.0)
    if (differences == 0).any():
        raise MeshArgumentError(f"interpolation nodes must all differ, got {nodes.tolist()}")
    weights: Floats = 1 / np.prod(differences, axis=1)
    weights /= np.abs(weights).max()
    return weights


def lagrange_matrix(nodes: ArrayLike, x: ArrayLike) -> Floats:
    """Matrix that evaluates at x the polynomial with given values at the nodes."""
    nodes = np.asarray(nodes, dtype=np.float64)
    x = np.asarray(x, dtype=np.float64)
    difference = x[:, None] - nodes[None, :]
    # a subnormal distance is a hit: dividing by it would overflow
    hits = np.abs(difference) < np.finfo(np.float64).tiny
    terms = _barycentric_weights(nodes) / np.where(hits, 1.0, difference)
    hit_rows = hits.any(axis=1)
    terms[hit_rows] = hits[hit_rows]
    matrix: Floats = terms / terms.sum(axis=1, keepdims=True)
    return matrix


def lagrange_derivative_matrix(nodes: ArrayLike, x: ArrayLike) -> Floats:
    """Matrix that evaluates at x the derivative of the polynomial with given values at the nodes.

    First (9.4) gives the derivative at the nodes, with a diagonal that makes the sum of each row
    zero. The derivative is a polynomial of lower degree, so its interpolation to x is exact.
    """
    nodes = np.asarray(nodes, dtype=np.float64)
    weights = _barycentric_weights(nodes)
    difference = nodes[:, None] - nodes[None, :]
    np.fill_diagonal(difference, 1.0)
    at_nodes = weights[None, :] / weights[:, None] / difference
    np.fill_diagonal(at_nodes, 0.0)
    np.fill_diagonal(at_nodes, -at_nodes.sum(axis=1))
    result: Floats = lagrange_matrix(nodes, x) @ at_nodes
    return result


@lru_cache(maxsize=256)
def _for_components(matrix: bytes, columns: int, ncomp: int) -> Floats:
    """Matrix that applies a matrix, whose bytes are given, to each of ncomp components."""
    step = np.frombuffer(matrix).reshape(-1, columns)
    return np.asarray(np.kron(step, np.eye(ncomp)), dtype=np.float64)


def tensor_apply(matrices: Sequence[ArrayLike], values: ArrayLike) -> Floats:
    """Apply a matrix (k_d, m_d) per direction to lexicographic values, by sum factorisation.

    The matrix of x is the first. `values` (n, m[, ncomp]), where m = m_1 * ... * m_dim with x
    fastest; returned (n, k[, ncomp]), where k = k_1 * ... * k_dim.
    """
    steps = [np.asarray(matrix, dtype=np.float64) for matrix in matrices]
    data: Floats = np.asarray(values, dtype=np.float64)
    points = math.prod(step.shape[1] for step in steps)
    if data.ndim not in (2, 3) or data.shape[1] != points:
        raise MeshArgumentError(
            f"values have shape {data.shape}, the matrices need (n, {points}) or "
            f"(n, {points}, ncomp)"
        )
    count, trailing = data.shape[0], data.shape[2:]
    ncomp = inner = trailing[0] if trailing else 1
    for direction, step in enumerate(steps):
        rows, columns = step.shape
        outer = math.prod(later.shape[1] for later in steps[direction + 1 :])
        if direction == 0:
            # element by element: in one large product rounding would depend on the number of rows
            wide = step if ncomp == 1 else _for_components(step.tobytes(), columns, ncomp)
            data = np.matmul(data.reshape(count, outer, columns * ncomp), wide.T)
        else:
            data = np.matmul(step, data.reshape(count * outer, columns, inner))
        inner *= rows
    rows = math.prod(step.shape[0] for step in steps)
    return data.reshape(count, rows, *trailing)


_MOST_POINTS = 4096  # most points of an element for matrices over all its points


def geometry_degree(num_nodes: int, dim: int) -> int:
    """Degree g with (g + 1)**dim == num_nodes, of segments, quadrilaterals and hexahedra."""
    cell, degree = cell_and_degree(num_nodes, dim)
    if not cell.cube:
        raise MeshGeometryError(
            f"this is not done for {cell.plural} yet: take a mesh of "
            f"{CUBES[dim].plural}, as femops.read_mesh(path, split=True) makes"
        )
    return degree


def positions(coordinates: ArrayLike, points_1d: ArrayLike | list[Floats]) -> Floats:
    """Physical positions of points: a grid, alike in each direction or not, or a list (n, dim)."""
    coordinates = np.asarray(coordinates, dtype=np.float64)
    if isinstance(points_1d, np.ndarray) and points_1d.ndim == 2:
        return np.asarray(np.matmul(_table(coordinates, points_1d)[0], coordinates))
    if isinstance(points_1d, list) and isinstance(points_1d[0], np.ndarray):
        if any(not np.array_equal(x, points_1d[0]) for x in points_1d):
            degree = geometry_degree(*coordinates.shape[1:])
            return tensor_apply([_matrices(degree, _bytes(x))[0] for x in points_1d], coordinates)
        points_1d = points_1d[0]
    dim, points = coordinates.shape[2], _bytes(points_1d)
    degree = geometry_degree(coordinates.shape[1], dim)
    if _multilinear(degree, dim, points):
        return np.asarray(np.matmul(_of_corners(dim, points)[0], coordinates))
    values, _ = _matrices(degree, points)
    return tensor_apply([values] * dim, coordinates)


def jacobians(coordinates: ArrayLike, points_1d: ArrayLike) -> Floats:
    """Jacobians of the map from the reference element at a grid, or at a list (n, dim)."""
    coordinates = np.asarray(coordinates, dtype=np.float64)
    if isinstance(points_1d, np.ndarray) and points_1d.ndim == 2:
        slopes = _table(coordinates, points_1d)[1:]
        return of_columns([np.matmul(slope, coordinates) for slope in slopes])
    dim, points = coordinates.shape[2], _bytes(points_1d)
    degree = geometry_degree(coordinates.shape[1], dim)
    if _multilinear(degree, dim, points):
        slopes = _of_corners(dim, points)[1]
        found = np.matmul(slopes, coordinates).reshape(len(coordinates), dim, -1, dim)
        return of_columns(list(found.swapaxes(0, 1)))
    values, slopes = _matrices(degree, points)
    columns = [
        tensor_apply([slopes if d == j else values for d in range(dim)], coordinates)
        for j in range(dim)
    ]
    return of_columns(columns)


def _table(coordinates: Floats, points: Floats) -> Floats:
    """Values and derivatives (1 + dim, n, nodes) of the functions of a map at points (n, dim)."""
    dim = coordinates.shape[2]
    if points.shape[1] != dim:
        raise MeshArgumentError(f"points have {points.shape[1]} coordinates in a {dim}-D mesh")
    cell, degree = cell_and_degree(coordinates.shape[1], dim)
    if not cell.cube:
        return simplices.tables(cell, degree, points)
    lines = [_matrices(degree, _bytes(x)) for x in points.T]
    return np.stack([table_of_lines(lines, along) for along in (None, *range(dim))])


def table_of_lines(lines: Sequence[tuple[Floats, Floats]], slope: int | None = None) -> Floats:
    """Values (n, functions) of products at points, or derivatives along a direction.

    ``lines`` has for each direction, x first, values and slopes (n, p1d) at the coordinates.
    """
    result = np.ones((len(lines[0][0]), 1))
    for d, line in enumerate(lines):  # x fastest: the later direction varies more slowly
        along = line[d == slope]
        result = (along[:, :, np.newaxis] * result[:, np.newaxis]).reshape(len(along), -1)
    return result


def _bytes(points_1d: ArrayLike) -> bytes:
    return np.asarray(points_1d, dtype=np.float64).tobytes()


@lru_cache(maxsize=256)
def _matrices(degree: int, points: bytes) -> tuple[Floats, Floats]:
    """Matrices of the values and slopes at 1-D points, whose bytes are given. Read-only.

    They are kept, because meshes are evaluated by small blocks of elements.
    """
    nodes, x = gauss_lobatto(degree + 1)[0], np.frombuffer(points)
    found = lagrange_matrix(nodes, x), lagrange_derivative_matrix(nodes, x)
    for matrix in found:
        matrix.flags.writeable = False
    return found


def _multilinear(degree: int, dim: int, points: bytes) -> bool:
    """True if one product with the matrices of `_of_corners` is faster than sum factorisation.

    NumPy multiplies small matrices slowly if they have two columns.
    """
    return degree == 1 and len(np.frombuffer(points)) ** dim <= _MOST_POINTS


@lru_cache(maxsize=256)
def _of_corners(dim: int, points: bytes) -> tuple[Floats, Floats]:
    """Matrices of the values and slopes of a multilinear map at a grid of points. Read-only.

    Shapes: `values` (q**dim, 2**dim), `slopes` (dim * q**dim, 2**dim).
    """
    values, slopes = _matrices(1, points)
    rows = []
    for j in range(-1, dim):
        product = np.eye(1)
        for d in reversed(range(dim)):
            product = np.asarray(np.kron(product, slopes if d == j else values))
        rows.append(product)
    found = rows[0], np.concatenate(rows[1:])
    for matrix in found:
        matrix.flags.writeable = False
    return found


def of_columns(columns: Sequence[Floats]) -> Floats:
    """Make matrices (..., n, m) of their m columns (..., n).

    In memory each entry's numbers follow each other, as `determinants` and `adjugates` need them.
    """
    entries = np.empty((columns[0].shape[-1], len(columns), *columns[0].shape[:-1]))
    for j, column in enumerate(columns):
        entries[:, j] = np.moveaxis(column, -1, 0)
    return np.moveaxis(entries, (0, 1), (-2, -1))


def determinants(J: ArrayLike) -> Floats:
    """Return the determinants (...) of matrices (..., dim, dim) with dim 1 to 3."""
    a = _by_entries(np.asarray(J, dtype=np.float64))
    if len(a) == 1:
        return np.array(a[0, 0])
    if len(a) == 2:
        plane: Floats = a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
        return plane
    space: Floats = (
        a[0, 0] * (a[1, 1] * a[2, 2] - a[1, 2] * a[2, 1])
        - a[0, 1] * (a[1, 0] * a[2, 2] - a[1, 2] * a[2, 0])
        + a[0, 2] * (a[1, 0] * a[2, 1] - a[1, 1] * a[2, 0])
    )
    return space


def _by_entries(matrices: Floats) -> Floats:
    """Entries of matrices (..., n, m) as arrays (n, m, ...), contiguous, for fast arithmetic."""
    return np.ascontiguousarray(np.moveaxis(matrices, (-2, -1), (0, 1)))


def adjugates(jacobian: Floats) -> Floats:
    """Adjugates (det J times the inverse of J) of matrices (..., dim, dim), by cofactors."""
    a, dim = _by_entries(jacobian), jacobian.shape[-1]
    result = np.empty_like(a)
    if dim == 1:
        result[...] = 1.0
    elif dim == 2:
        result[0, 0], result[0, 1] = a[1, 1], -a[0, 1]
        result[1, 0], result[1, 1] = -a[1, 0], a[0, 0]
    else:
        for i in range(3):
            i1, i2 = (i + 1) % 3, (i + 2) % 3
            for j in range(3):
                j1, j2 = (j + 1) % 3, (j + 2) % 3
                result[j, i] = a[i1, j1] * a[i2, j2] - a[i1, j2] * a[i2, j1]
    return np.moveaxis(result, (0, 1), (-2, -1))


def face_centers(coordinates: Floats, faces: Ints) -> Floats:
    """Physical positions (n, dim) of the middles of faces."""
    element, code = faces.T
    cell, degree = cell_and_degree(*coordinates.shape[1:])
    if not cell.cube:
        places = np.zeros((len(cell.entities), cell.dim))
        for each in cell.face_codes:
            places[each] = cell.corners[list(cell.entities[each][1])].mean(axis=0)
        values = simplices.tables(cell, degree, places)[0]
        return np.asarray(np.einsum("nk,nkd->nd", values[code], coordinates[element]))
    used, place = np.unique(element, return_inverse=True)
    lattice = positions(coordinates[used], np.array([0.0, 0.5, 1.0]))  # points by ternary code
    return np.asarray(lattice[place, code])


# --- equispaced nodes, shared by elements of several shapes --------------------------------------


def equispaced_grid(cell: Cell, degree: int) -> Floats:
    """Equispaced nodes of a cell: a line (n,) for cubes, else a list (n, dim)."""
    return equispaced(degree + 1) if cell.cube else simplices.equispaced(cell, degree)


def shared_lattice(shapes: Sequence[tuple[Cell, Ints]], degree: int) -> tuple[list[Ints], int]:
    """Numbers (n, nodes) of equispaced nodes in elements (n, corners) of each shape, and the count.

    A node is determined by the vertices of its face, edge or element, and by their weights.
    """
    keys, found, count = [], [], 0
    for cell, elements in shapes:
        weights = vertex_weights(cell, degree)
        outer = (weights == 0).any(axis=1)
        numbers = np.empty((len(elements), len(weights)), dtype=np.int64)
        inner = len(elements), int((~outer).sum())
        numbers[:, ~outer] = count + np.arange(inner[0] * inner[1]).reshape(inner)
        count += inner[0] * inner[1]
        pairs = (elements[:, np.newaxis] + 1) * (degree**cell.dim + 1) + weights[outer]
        pairs = np.sort(np.where(weights[outer] > 0, pairs, 0), axis=2)[..., -4:]
        pairs = np.pad(pairs, [(0, 0), (0, 0), (4 - pairs.shape[2], 0)])
        keys.append(pairs.reshape(-1, 4))
        found.append((numbers, outer))
    rows = np.concatenate(keys)
    order = np.lexsort(rows.T)
    new = np.ones(len(rows), dtype=np.bool_)
    new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = count + np.cumsum(new) - 1
    ends = np.cumsum([len(each) for each in keys])
    for (numbers, outer), mine in zip(found, np.split(rank, ends[:-1]), strict=True):
        numbers[:, outer] = mine.reshape(len(numbers), int(outer.sum()))
    return [numbers for numbers, _ in found], count + int(new.sum())


def vertex_weights(cell: Cell, degree: int) -> Ints:
    """Weights (nodes, corners) of the corners at equispaced nodes, of sum degree**dim."""
    if cell.cube:
        line = np.arange(degree + 1)
        ends, found = np.stack([degree - line, line], axis=1), np.ones((1, 1), dtype=np.int64)
        for _ in range(cell.dim):
            found = np.asarray(np.kron(ends, found))
        return found
    rows = simplices.lattice(cell, degree)
    if cell.simplex:
        return np.asarray(rows * degree ** (cell.dim - 1))
    low, high = rows[:, :3] * (degree - rows[:, 3:]), rows[:, :3] * rows[:, 3:]
    return np.hstack([low, high]) * degree
