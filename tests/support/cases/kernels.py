"""What kernels are tried on: meshes, coefficients, and a space with its oracle."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, final

import numpy as np

import femops
from support.oracles.naive import Array, Oracle


def bend(x: Array) -> Array:
    """A smooth map that bends everything, one to one on [0, 1]^dim.

    Products of coordinates see to it that no element of its multilinear interpolant is affine.
    """
    y = x.copy()
    for d in range(len(x)):
        y[d] += 0.07 * np.sin(2.5 * x[d - 1] + d) + 0.04 * x[d] ** 2 + 0.06 * x[d] * x[d - 1]
    return y


def shear(x: Array) -> Array:
    """An affine map that is neither orthogonal nor of unit determinant."""
    matrix = np.diag([1.5, 0.8, 1.1][: len(x)]) + 0.3 * np.triu(np.ones((len(x), len(x))), 1)
    return matrix @ x


def wave(x: Array) -> Array:
    """A bend with the period of [0, 1]^dim."""
    y = x.copy()
    for d in range(len(x)):
        y[d] += 0.04 * np.sin(2 * np.pi * x[d - 1] + d)
    return y


def turned(mesh: femops.Mesh, seed: int = 5) -> femops.Mesh:
    """The mesh with its elements shuffled, and each turned at random (the orientation kept)."""
    dim, ne = mesh.dim, mesh.num_elements
    rng = np.random.default_rng(seed)
    choices = []
    for axes, flips in itertools.product(
        itertools.permutations(range(dim)), itertools.product((False, True), repeat=dim)
    ):
        if np.linalg.det(np.eye(dim)[list(axes)]) * (-1) ** sum(flips) > 0:
            choices.append((axes, tuple(d for d in range(dim) if flips[d])))

    def turn(grid: Array, how: tuple[Any, Any]) -> Array:
        axes, flips = how
        return np.flip(grid.transpose(*axes, *range(dim, grid.ndim)), flips)

    g = mesh.order + 1
    elements, coordinates = [], []
    for e in rng.permutation(ne):
        how = choices[rng.integers(len(choices))]
        elements.append(turn(mesh.elements[e].reshape((2,) * dim), how).ravel())
        grid = mesh.coordinates[e].reshape(*(g,) * dim, dim)
        coordinates.append(turn(grid, how).reshape(-1, dim))
    return femops.Mesh.from_arrays(None, np.array(elements), coordinates=np.array(coordinates))


COUNTS = {
    "one": [(1,), (1, 1), (1, 1, 1)],
    "few": [(5,), (3, 3), (3, 1, 1)],
    "many": [(37,), (7, 5), (3, 3, 3)],
    "blocks": [(150,), (13, 11), (6, 5, 5)],  # several of 16
}


@cache
def make_mesh(kind: str, dim: int, size: str) -> femops.Mesh:
    """A mesh of a kind; ``one`` element, an odd number of them fewer than lanes, or more."""
    counts = COUNTS[size][dim - 1]
    if kind == "box":
        return femops.box(counts, upper=(2.0, 1.0, 0.5)[:dim])
    if kind == "sheared":
        return femops.box(counts, mapping=shear)
    if kind == "multilinear":
        return femops.box(counts, mapping=bend)
    if kind == "curved":
        return femops.box(counts, order=3, mapping=bend)
    if kind == "periodic":
        around = tuple(n >= 3 for n in counts)
        return femops.box(counts, order=2, periodic=around, mapping=wave)
    return make_unstructured(dim, size)


def make_unstructured(dim: int, size: str) -> femops.Mesh:
    """A curved disc or ball (in 1-D a segment with uneven elements), shuffled and turned."""
    if dim == 1:
        return turned(femops.box(COUNTS[size][0], order=2, mapping=bend))
    if dim == 2:
        return turned(femops.disc({"few": 1, "many": 3, "blocks": 5}[size]))
    return turned(femops.ball({"few": 1, "many": 2, "blocks": 3}[size], order=2))


def smooth(x: Array) -> Array:
    """A positive scalar coefficient."""
    return 1.5 + 0.5 * np.sin(2 * x[0] + 1) + 0.3 * x[-1] ** 2


def diagonal(x: Array) -> Array:
    """A positive diagonal (dim, ...)."""
    return np.stack([smooth(x) * (d + 1) + 0.1 * x[d] ** 2 for d in range(len(x))])


def tensor(x: Array) -> Array:
    """A symmetric positive definite tensor (dim, dim, ...), full and varying."""
    dim = len(x)
    result = np.zeros((dim, dim, *x.shape[1:]))
    for i, j in itertools.product(range(dim), repeat=2):
        result[i, j] = smooth(x) + i if i == j else 0.2 * np.cos(x[0] + i * j) + 0.1 * (i + j)
    return result


def random_vector(space: Any, dtype: str, seed: int = 11) -> Array:
    """Normal random numbers in the shape of an l_vec."""
    return np.random.default_rng(seed).standard_normal(space.shape).astype(dtype)


@final
class Problem:
    """A turned, curved mesh of a few chunks, its space of degree 3 and the oracle."""

    def __init__(self, ncomp: int = 1) -> None:
        self.mesh = turned(femops.box((7, 5), order=2, mapping=bend))
        self.space = femops.H1(self.mesh, 3, ncomp=ncomp)
        self.oracle = Oracle(self.mesh.coordinates, self.space.restriction.indices, ncomp=ncomp)
        self.mass, self.diffusion = femops.mass(self.space, smooth), femops.diffusion(self.space)
        self.dense_mass = self.oracle.mass(smooth)
        self.dense_diffusion = self.oracle.diffusion()
        self.u = random_vector(self.space, "float64")


def kernels(A: Any) -> list[str]:
    """What applies an operator."""
    return [type(sweep.kernel).__name__ for sweep in A.compiled.sweeps]
