"""Meshes of triangles and tetrahedra: straight and curved, with turned and mirrored elements."""

import numpy as np

import femops
from femops import Mesh


def bent(x):
    """A smooth one-to-one map of [0, 1]^dim, which mirrors nothing."""
    return x + 0.06 * np.sin(3.0 * x[::-1] + np.arange(len(x))[:, np.newaxis])


def renumbered(mesh, seed=0):
    """The mesh with its vertices in a random order, so that half of its elements are mirrored."""
    number = np.random.default_rng(seed).permutation(mesh.num_vertices)
    cell = "tetrahedron" if mesh.dim == 3 else None
    return Mesh.from_arrays(
        None,
        number[mesh.elements],
        mesh.element_attributes,
        number[mesh.boundary],
        mesh.boundary_attributes,
        mesh.coordinates,
        cell=cell,
    )


def curved(dim, degree):
    grid = femops.box((3, 2, 2)[:dim]).mapped(bent, order=degree)
    return renumbered(grid.simplices(), seed=degree)


SIMPLEX_MESHES = {
    "triangles": lambda: renumbered(femops.box((3, 4)).simplices()),
    "curved triangles": lambda: curved(2, 3),
    "disc of triangles": lambda: femops.disc(2, order=2).simplices(),
    "tetrahedra": lambda: renumbered(femops.box((2, 3, 2)).simplices()),
    "curved tetrahedra": lambda: curved(3, 2),
    "ball of tetrahedra": lambda: femops.ball(1, order=3).simplices(),
}
