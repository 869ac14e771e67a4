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
