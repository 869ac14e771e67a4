"""Rotation of elements: the same mesh with other local axes and other vertex numbers."""

from functools import lru_cache
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from femops_meshes.mesh import Mesh, check_conforming

Ints = NDArray[np.int64]


@lru_cache
def rotations(dim: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """All 1, 4 or 24 rotations (axes, flips) of the reference element, the identity first.

    Old coordinate d is new coordinate axes[d], or one minus new coordinate axes[d] if flips[d] is
    1.
    """

    def keeps_handedness(axes: tuple[int, ...], flips: tuple[int, ...]) -> bool:
        swaps = sum(axes[i] > axes[j] for j in range(dim) for i in range(j))
        return (swaps + sum(flips)) % 2 == 0

    pairs = product(permutations(range(dim)), product((0, 1), repeat=dim))
    return tuple(pair for pair in pairs if keeps_handedness(*pair))


def turned_lattice(dim: int, p: int, axes: tuple[int, ...], flips: tuple[int, ...]) -> Ints:
    """Index ((p + 1)**dim,) of the old lexicographic node at the position of each new node."""
    new = np.indices((p + 1,) * dim).reshape(dim, -1)[::-1]
    old = np.zeros(new.shape[1], dtype=np.int64)
    for d in range(dim):
        along = new[axes[d]]
        old += (p - along if flips[d] else along) * (p + 1) ** d
    return old


def scrambled(mesh: Mesh, seed: int) -> Mesh:
    """Turn each element by a random rotation, and number the vertices at random.

    The domain, the elements, their order, and the geometry stay the same. Neighbours see shared
    edges and faces in other orientations: in 3-D all eight orientations of faces occur, as in
    meshes of other programs.
    """
    check_conforming(mesh, "halves of turned elements belong to no trees")
    rng = np.random.default_rng(seed)
    dim, p = mesh.dim, mesh.order
    turns = rotations(dim)
    chosen = rng.integers(len(turns), size=mesh.num_elements)
    nodes = np.array([turned_lattice(dim, p, *turn) for turn in turns])[chosen]
    corners = np.array([turned_lattice(dim, 1, *turn) for turn in turns])[chosen]
    number = rng.permutation(mesh.num_vertices)
    return Mesh(
        number[np.take_along_axis(mesh.elements, corners, axis=1)],
        np.take_along_axis(mesh.coordinates, nodes[:, :, None], axis=1),
        mesh.element_attributes,
        number[mesh.boundary],
        mesh.boundary_attributes,
        mesh.num_vertices,
        mesh.file_elements,
    )
