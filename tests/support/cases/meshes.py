"""Meshes for the tests of spaces, and ways to judge a space by geometry alone."""

import itertools

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

import femops
from femops import Mesh


def bend(x):
    """A smooth one-to-one map of [0, 1]^dim, curved in all directions."""
    y = x.copy()
    for i in range(len(x)):
        y[i] += 0.08 * np.sin(np.pi * x.sum(axis=0) + i) + 0.05 * x[i] * x[0]
    return y


def corner_rotations(dim):
    """All renumberings of an element's corners that keep its orientation, as index arrays."""
    corners = np.array(list(itertools.product((0, 1), repeat=dim)))[:, ::-1]
    found = []
    for axes in itertools.permutations(range(dim)):
        for flips in itertools.product((0, 1), repeat=dim):
            matrix = np.zeros((dim, dim))
            for row, (axis, flip) in enumerate(zip(axes, flips, strict=True)):
                matrix[row, axis] = -1 if flip else 1
            if np.linalg.det(matrix) > 0:
                moved = corners[:, axes] ^ np.array(flips)
                found.append(moved @ 2 ** np.arange(dim))
    return found


def scrambled_box(counts, seed, mapping=None, order=1):
    """A box whose vertices are renumbered and whose elements are turned at random."""
    rng = np.random.default_rng(seed)
    dim = len(counts)
    lines = [np.linspace(0, 1, n + 1) for n in counts]
    vertices = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, dim)
    number = np.arange(len(vertices)).reshape([n + 1 for n in counts])
    elements = []
    for cell in itertools.product(*[range(n) for n in counts]):
        corners = [
            number[tuple(c + d for c, d in zip(cell, offset[::-1], strict=True))]
            for offset in itertools.product((0, 1), repeat=dim)
        ]
        elements.append(corners)
    rotations = corner_rotations(dim)
    elements = np.array([np.array(c)[rotations[rng.integers(len(rotations))]] for c in elements])
    relabel = rng.permutation(len(vertices))
    moved = np.empty_like(vertices)
    moved[relabel] = vertices
    mesh = Mesh.from_arrays(moved, relabel[elements])
    return mesh if mapping is None else mesh.mapped(mapping, order=order)


MESHES = {
    "segment": lambda: femops.box((5,), upper=(2.0,)),
    "square": lambda: femops.box((3, 4)),
    "curved square": lambda: femops.box((3, 2), mapping=bend, order=3),
    "scrambled square": lambda: scrambled_box((3, 4), 1),
    "disc": lambda: femops.disc(2, order=3),
    "l-shape": lambda: femops.l_shape(2),
    "cube": lambda: femops.box((3, 2, 2)),
    "scrambled cube": lambda: scrambled_box((3, 2, 3), 2),
    "curved scrambled cube": lambda: scrambled_box((2, 2, 3), 3, bend, 2),
    "ball": lambda: femops.read_mesh(femops.sample("ball.mesh")),
}

PERIODIC = {
    "ring": (lambda: femops.box((4,), periodic=True), [1.0]),
    "torus": (lambda: femops.box((3, 4), periodic=True), [1.0, 1.0]),
    "band": (lambda: femops.box((3, 2), periodic=(True, False)), [1.0, 0.0]),
    "3-torus": (lambda: femops.box((3, 4, 3), periodic=True), [1.0, 1.0, 1.0]),
    "periodic sample": (lambda: femops.read_mesh(femops.sample("periodic.mesh")), [1.0, 1.0]),
    "tube": (lambda: femops.box((2, 3, 2), periodic=(False, True, False)), [0.0, 1.0, 0.0]),
}


def same_place(points, periods=None, tolerance=1e-9):
    """Pairs of rows of `points` at the same place, and the number of distinct places."""
    points = np.array(points)
    for d, period in enumerate(periods or []):
        if period:
            # nudged, so that round-off at 0 cannot end up at the period
            points[:, d] = np.mod(points[:, d] + 1e-3, period)
    pairs = cKDTree(points).query_pairs(tolerance, output_type="ndarray")
    n = len(points)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (n, n))
    return pairs, connected_components(graph, directed=False)[0]


def split_square() -> femops.Mesh:
    """Two halves of a square, which have the vertices between them twice."""
    halves = [[0, 0], [1, 0], [0, 2], [1, 2]]
    vertices = [*halves, *([x + 1, y] for x, y in halves)]
    mesh = femops.Mesh.from_arrays(vertices=vertices, elements=[[0, 1, 2, 3], [4, 5, 6, 7]])
    return mesh.with_attributes(boundary=[1, 1, 1, 1, 2, 2, 2, 2])
