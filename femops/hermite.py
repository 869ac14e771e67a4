"""Hermite-like polynomials on [0, 1]: at an end two of them have a value or a derivative.

Of degree p >= 3, with Jacobi's polynomials J_n of the weight ``x^b (1 - x)^a``:

- ``(1 - x)^2 J_(p-2)``, a = 4, b = 1, has a value and a derivative at 0;
- ``x (1 - x)^2 J_(p-3)``, a = 4, b = 3, has a derivative alone at 0;
- ``x^2 (1 - x)^2 l_i``, with the Lagrange polynomials l_i of the zeros of J_(p-3), a = b = 4, have
  neither value nor derivative at the ends;
- and the mirror images of the first two.

By the weights, the inner functions are orthogonal to each other and to those of the ends, and so
are the two functions of one end. So the mass matrix is diagonal but for the entries between the
two ends. Of degree 2 one function is left between the ends, ``x (1 - x)``; of degree 1 none.

M. Kronbichler, K. Kormann, N. Fehn, P. Munch and J. Witte, "A Hermite-like basis for faster
matrix-free evaluation of interior penalty discontinuous Galerkin operators", arXiv:1907.08492, have
inner functions of this kind. Their functions of the ends vanish at the same zeros.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.mapping import (
    gauss_legendre,
    lagrange_derivative_matrix,
    lagrange_matrix,
)

Floats = NDArray[np.float64]


def hermite_matrix(p: int, x: Floats) -> Floats:
    """Values (len(x), p + 1) of the Hermite-like polynomials of degree p >= 1 at x."""
    return _mirrored(p, x, derivative=False)


def hermite_derivative_matrix(p: int, x: Floats) -> Floats:
    """Derivatives (len(x), p + 1) of the Hermite-like polynomials of degree p >= 1 at x."""
    return _mirrored(p, x, derivative=True)


def _mirrored(p: int, x: Floats, *, derivative: bool) -> Floats:
    """Values or derivatives of all functions. Those at the end 1 are mirror images."""
    result = np.empty((x.size, p + 1))
    pairs = min(2, (p + 1) // 2)
    for j in range(pairs):
        result[:, j] = _end_function(p, j, x)[derivative]
        result[:, p - j] = (-1) ** derivative * _end_function(p, j, 1.0 - x)[derivative]
    if p == 2:
        result[:, 1] = 2.0 * (1.0 - 2.0 * x) if derivative else 2.0 * x * (1.0 - x)
    if p > 3:  # with equal errors on both sides: kernels use the symmetry of the matrix
        here, there = (_inner(p, at, derivative=derivative) for at in (x, 1.0 - x))
        result[:, 2:-2] = 0.5 * (here + (-1) ** derivative * there[:, ::-1])
    return result


def _inner(p: int, x: Floats, *, derivative: bool) -> Floats:
    """Values or derivatives (len(x), p - 3) of the inner functions. Each is 1 at its zero of J."""
    nodes, bubble = _inner_nodes(p - 3), (x * (1.0 - x))[:, np.newaxis]
    lagrange, scale = lagrange_matrix(nodes, x), (nodes * (1.0 - nodes)) ** 2
    if not derivative:
        return np.asarray(bubble**2 * lagrange / scale)
    steep = 2.0 * bubble * (1.0 - 2.0 * x)[:, np.newaxis]
    slopes = bubble**2 * lagrange_derivative_matrix(nodes, x)
    return np.asarray((slopes + steep * lagrange) / scale)


def _end_function(p: int, j: int, x: Floats) -> tuple[Floats, Floats]:
    """Values and derivatives (len(x),) of function j = 0 or 1 of the end 0.

    The first is 1 at 0. The second is 0 there, ascends, and has the same norm in L2.
    """
    size = _size(p, j)
    values, slopes = _unscaled(p, j, x)
    return values / size, slopes / size


def _unscaled(p: int, j: int, x: Floats) -> tuple[Floats, Floats]:
    """Values and derivatives of `_end_function` before the division by `_size`."""
    if p == 1:
        return 1.0 - x, -np.ones_like(x)
    rest, weight = 1.0 - x, (4, 3 if j else 1)
    value, slope = _jacobi(p - 2 - j, *weight, x)
    slopes = x**j * (rest**2 * slope - 2.0 * rest * value) + j * rest**2 * value
    return x**j * rest**2 * value, slopes


@lru_cache(maxsize=256)
def _size(p: int, j: int) -> float:
    """Number by which `_end_function` divides function j."""
    at_end = _unscaled(p, j, np.zeros(1))[j][0]
    if j == 0:
        return float(at_end)
    points, weights = gauss_legendre(p + 1)
    first, second = (weights @ _unscaled(p, k, points)[0] ** 2 for k in (0, 1))
    return float(np.copysign(np.sqrt(second / first) * abs(_size(p, 0)), at_end))


def _jacobi(n: int, a: int, b: int, x: Floats) -> tuple[Floats, Floats]:
    """Values and derivatives (len(x),) of Jacobi's polynomial J_n of the weight x^b (1 - x)^a."""
    slope = (n + a + b + 1) * _jacobi_values(n - 1, a + 1, b + 1, x) if n else np.zeros_like(x)
    return _jacobi_values(n, a, b, x), slope


def _jacobi_values(n: int, a: int, b: int, x: Floats) -> Floats:
    """Jacobi's polynomials by their recurrence: Abramowitz and Stegun, 22.7.1."""
    t, c = 2.0 * x - 1.0, a + b
    before, now = np.zeros_like(x), np.ones_like(x)
    for k in range(1, n + 1):
        if k == 1:
            before, now = now, 0.5 * (a - b + (c + 2) * t)
            continue
        twice = 2 * k + c
        factor = (twice - 1) * (twice * (twice - 2) * t + (a * a - b * b))
        last = 2 * (k + a - 1) * (k + b - 1) * twice
        before, now = now, (factor * now - last * before) / (2 * k * (k + c) * (twice - 2))
    return now


@lru_cache(maxsize=128)
def _inner_nodes(n: int) -> Floats:
    """Zeros (n,) of Jacobi's polynomial J_n with a = b = 4, by the eigenvalues of its recurrence.

    G. H. Golub and J. H. Welsch, "Calculation of Gauss quadrature rules", 1969.
    """
    k = np.arange(1, n)
    beside = np.sqrt(k * (k + 8) / ((2.0 * k + 9) * (2 * k + 7)))
    t = np.linalg.eigvalsh(np.diag(beside, 1) + np.diag(beside, -1))
    return np.asarray(0.5 + 0.25 * (t - t[::-1]))
