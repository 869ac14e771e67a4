"""Meshes of triangles and tetrahedra for tests."""

import numpy as np

import femops
from femops_meshes.mesh import Mesh


def renumbered(mesh, seed=0):
    """The same mesh with vertices numbered at random, so that elements are mirrored and turned."""
    number = np.random.default_rng(seed).permutation(mesh.num_vertices)
    return Mesh.from_arrays(
        None,
        number[mesh.elements],
        mesh.element_attributes,
        number[mesh.boundary],
        mesh.boundary_attributes,
        mesh.coordinates,
        cell="tetrahedron" if mesh.dim == 3 else None,
    )


def graded(dim, n=2):
    """Simplices of a box that is stretched, with vertices numbered at random."""
    box = femops.box((n, n + 1, n)[:dim], mapping=lambda x: x**2 + 0.1 * x[::-1] * x)
    return renumbered(box.simplices())


def curved(dim, degree=3, n=2):
    """Simplices of degree ``degree`` that are bent, with vertices numbered at random."""
    box = femops.box((n,) * dim).simplices().curved(degree)
    return renumbered(box.mapped(lambda x: x + 0.08 * np.sin(2 * x[::-1] + x)))


def periodic(dim):
    """Simplices of a box that is periodic in x, with vertices numbered at random."""
    periods = (True, False, False)[:dim]
    return renumbered(femops.box((3, 2, 2)[:dim], periodic=periods).simplices())


MESHES = {"graded": graded, "curved": curved, "periodic": periodic}


def _bent(dim, degree):
    """A box that is bent by a smooth one-to-one map, which mirrors nothing."""
    grid = femops.box((3, 2, 2)[:dim]).mapped(
        lambda x: x + 0.06 * np.sin(3.0 * x[::-1] + np.arange(len(x))[:, np.newaxis]), order=degree
    )
    return renumbered(grid.simplices(), seed=degree)


SIMPLEX_MESHES = {
    "triangles": lambda: renumbered(femops.box((3, 4)).simplices()),
    "curved triangles": lambda: _bent(2, 3),
    "disc of triangles": lambda: femops.disc(2, order=2).simplices(),
    "tetrahedra": lambda: renumbered(femops.box((2, 3, 2)).simplices()),
    "curved tetrahedra": lambda: _bent(3, 2),
    "ball of tetrahedra": lambda: femops.ball(1, order=3).simplices(),
}
