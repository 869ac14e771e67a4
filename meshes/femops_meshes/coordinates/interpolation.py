"""One-dimensional points, weights and Lagrange interpolation on [0, 1], and their tensor products.

All functions work in float64 and are stable to degree 20 and beyond. They use the barycentric
formulas (3.2), (4.2) and (9.4) of J.-P. Berrut and L. N. Trefethen, "Barycentric Lagrange
interpolation", SIAM Review 46 (2004).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from math import pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops_meshes.errors import MeshArgumentError

Floats = NDArray[np.float64]


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
