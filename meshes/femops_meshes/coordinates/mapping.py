"""Maps from the reference element [0, 1]**dim to physical space, sum factorised.

Coordinates are values at the Gauss-Lobatto points of degree g. The number of points gives g.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_meshes.coordinates.interpolation import (
    gauss_lobatto,
    lagrange_derivative_matrix,
    lagrange_matrix,
    tensor_apply,
)
from femops_meshes.errors import MeshGeometryError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_POINTS = 4096  # most points of an element for matrices over all its points


def geometry_degree(num_nodes: int, dim: int) -> int:
    """Degree g with (g + 1)**dim == num_nodes."""
    g: int = round(num_nodes ** (1.0 / dim)) - 1
    if g < 1 or (g + 1) ** dim != num_nodes:
        raise MeshGeometryError(
            f"{num_nodes} nodes per element, but in {dim}-D it must be (g + 1)**{dim}, g >= 1"
        )
    return g


def positions(coordinates: ArrayLike, points_1d: ArrayLike | list[Floats]) -> Floats:
    """Physical positions of a tensor grid of points: the same in each direction, or a list."""
    coordinates = np.asarray(coordinates, dtype=np.float64)
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
    """Jacobians of the map from the reference element at a tensor grid of points."""
    coordinates = np.asarray(coordinates, dtype=np.float64)
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
    used, place = np.unique(element, return_inverse=True)
    lattice = positions(coordinates[used], np.array([0.0, 0.5, 1.0]))  # points by ternary code
    return np.asarray(lattice[place, code])
