"""Laws, and functions that a trace expresses and that are equal to them."""

import numpy as np

import femops
from femops.numba import law


@law(results=1)
def root(g):
    """The solution of x³ + x = g, by Newton's method."""
    x = g / (1.0 + abs(g) ** (2.0 / 3.0))
    for _ in range(100):
        step = (x**3 + x - g) / (3.0 * x**2 + 1.0)
        x -= step
        if abs(step) <= 1e-14 * abs(x):
            break
    return x


def cardano(g):
    """The same by Cardano's formula, which a trace expresses."""
    s = np.sqrt(27.0) / 2 * g
    return 2 / np.sqrt(3.0) * np.sinh(np.sign(s) * np.log(abs(s) + np.hypot(s, 1.0)) / 3)


@law
def pair(a, b):
    if a > b:
        return a * b, a - b
    return a * a, 2.0 * b


def branches(a, b):
    return femops.where(a > b, a * b, a * a), femops.where(a > b, a - b, 2.0 * b)


def mesh_of(dim, n=4):
    return femops.box((n, 3, 3)[:dim], mapping=lambda x: x + 0.04 * np.sin(3 * x[::-1]))


def reaction(root, pair):
    """A residual, with one function or the other."""

    def function(u, x, kappa):
        first, second = pair(u, kappa)
        return {"value": root(2 * u) + first, "grad": (1 + second**2) * u.grad}

    return function


def close(found, expected, tol=1e-13):
    assert np.abs(found - expected).max() <= tol * np.abs(expected).max()
