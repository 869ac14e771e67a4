"""Hermite-like polynomials from the conditions that define them, in rational arithmetic.

Shares no code with femops. A polynomial is a list of its coefficients, those of low degree first.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Poly = list[Fraction]
LONG = np.longdouble


def times(*factors: Poly) -> Poly:
    """Product of polynomials."""
    out = [Fraction(1)]
    for factor in factors:
        new = [Fraction(0)] * (len(out) + len(factor) - 1)
        for i, a in enumerate(out):
            for j, b in enumerate(factor):
                new[i + j] += a * b
        out = new
    return out


def over_element(f: Poly) -> Fraction:
    """Integral over [0, 1]."""
    return sum((a / (k + 1) for k, a in enumerate(f)), Fraction(0))


def at(f: Poly, x: Fraction) -> Fraction:
    """Value at a point."""
    value = Fraction(0)
    for a in reversed(f):
        value = value * x + a
    return value


X, REST = [Fraction(0), Fraction(1)], [Fraction(1), Fraction(-1)]


def orthogonal(n: int, weight: Poly) -> Poly:
    """Polynomial of degree n that is orthogonal to those of lower degree, with leading factor 1."""
    moments = [over_element(times(weight, [Fraction(0)] * k + [Fraction(1)])) for k in range(2 * n)]
    rows = [[*moments[i : i + n], -moments[i + n]] for i in range(n)]
    for k in range(n):  # Gauss-Jordan; the matrix is positive definite
        rows[k] = [a / rows[k][k] for a in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows] + [Fraction(1)]


def roots(f: Poly) -> list[Fraction]:
    """Simple roots in (0, 1), by bisection to 2^-70."""
    grid = [Fraction(k, 997) for k in range(998)]
    signs = [at(f, x) > 0 for x in grid]
    found = []
    for k in range(997):
        low, high = grid[k : k + 2]
        if signs[k] != signs[k + 1]:
            while high - low > Fraction(1, 2**70):
                middle = (low + high) / 2
                low, high = (middle, high) if (at(f, middle) > 0) == signs[k] else (low, middle)
            found.append(Fraction(round(low * 2**72), 2**72))
    return found


def root(square: Fraction) -> Fraction:
    """Square root to 70 bits."""
    return Fraction(isqrt(int(square * 2**160)), 2**80)


@cache
def basis(p: int) -> list[Poly]:
    """All functions of degree p."""
    if p == 1:
        return [REST, X]
    first = times(REST, REST, orthogonal(p - 2, times(X, REST, REST, REST, REST)))
    first = [a / first[0] for a in first]
    if p == 2:
        return [first, [2 * a for a in times(X, REST)], times(X, X)]
    second = times(X, REST, REST, orthogonal(p - 3, times(X, X, X, REST, REST, REST, REST)))
    ratio = over_element(times(first, first)) / over_element(times(second, second))
    size = root(ratio) * (1 if second[1] > 0 else -1)
    second = [size * a for a in second]
    bubble = times(X, REST, X, REST)
    nodes = roots(orthogonal(p - 3, times(bubble, bubble)))
    inner = []
    for node in nodes:
        parts = [[-other / (node - other), 1 / (node - other)] for other in nodes if other != node]
        inner.append([a / at(bubble, node) for a in times(bubble, *parts)])
    return [first, second, *inner, mirrored(second), mirrored(first)]


def mirrored(f: Poly) -> Poly:
    """The function of 1 - x."""
    out = [Fraction(0)] * len(f)
    for k, a in enumerate(f):
        for j, b in enumerate(times(*[REST] * k)):
            out[j] += a * b
    return out


def hermite(p: int, x: NDArray[np.longdouble]) -> tuple[NDArray[np.longdouble], ...]:
    """Values and slopes (len(x), p + 1) of the Hermite-like polynomials of degree p."""
    functions = basis(p)
    slopes = [[k * a for k, a in enumerate(f)][1:] for f in functions]
    points = [Fraction(float(t)) + Fraction(float(t - LONG(float(t)))) for t in x]
    return tuple(
        np.array([[_long(at(f, t)) for f in of] for t in points], LONG).reshape(len(x), p + 1)
        for of in (functions, slopes)
    )


def _long(a: Fraction) -> np.longdouble:
    high = float(a)
    return LONG(high) + LONG(float(a - Fraction(high)))
