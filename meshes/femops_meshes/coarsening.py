"""Coarsening of a mesh: the coarser grid whose elements were split into those of the mesh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.coordinates.mapping import gauss_lobatto, lagrange_matrix, tensor_apply
from femops_meshes.topology.entities import outward_corners

Ints = NDArray[np.int64]
Halves = NDArray[np.int8]


@final
@dataclass(frozen=True, eq=False)
class Coarsening:
    """Positions of the elements of a mesh in the elements of a coarser grid.

    A coarsening has vertex numbers and no coordinates, so it stays valid if the mesh is moved.
    """

    # shape (nc, 2**dim) int64: vertex numbers of the coarse elements, lexicographic corners
    elements: Ints
    num_vertices: int  # number of coarse vertices
    parent: Ints  # shape (ne,) int64: the coarse element of each element of the mesh
    # low and high: shape (ne, dim) int8: begin and end of the element in its coarse element, in
    # each direction: 0 at the low end, 1 in the middle, 2 at the high end
    low: Halves
    high: Halves
    coarser: Coarsening | None = None  # the coarsening of the coarse elements, or None
    # whether the elements are the halves of the coarse ones because a mesh was refined
    split: bool = False

    def reordered(self, order: Ints) -> Coarsening:
        """Coarsening of some or all elements in another order (n,): new element i is order[i]."""
        parts = self.parent[order], self.low[order], self.high[order]
        return replace(self, parent=parts[0], low=parts[1], high=parts[2])

    def children(self) -> Ints | None:
        """Elements (nc, 2**dim) in the halves of each coarse element, lexicographic.

        None if a coarse element is not halved in all directions.
        """
        dim = self.low.shape[1]
        place = (self.parent << dim) + (self.low.astype(np.int64) << np.arange(dim)).sum(axis=1)
        order = np.argsort(place, kind="stable")
        expected = np.arange(len(self.elements) << dim)
        halves = bool((self.high - self.low == 1).all())
        return (
            order.reshape(-1, 2**dim) if halves and np.array_equal(place[order], expected) else None
        )

    def weights(self, elements: Ints, corners: Ints) -> NDArray[np.float64]:
        """Weights (n, 2**dim) of the coarse element's corners for multilinear interpolation."""
        dim = self.low.shape[1]
        up = corners[:, np.newaxis] >> np.arange(dim) & 1
        ends = np.where(up, self.high[elements], self.low[elements]) / 2.0
        result = np.ones((len(elements), 2**dim))
        for of in range(2**dim):
            for d in range(dim):
                result[:, of] *= ends[:, d] if of >> d & 1 else 1.0 - ends[:, d]
        return result


def halved(
    elements: Ints, num_vertices: int, count: int, dim: int, coarser: Coarsening | None
) -> Coarsening:
    """Coarsening of a mesh whose elements are the halves of `count` coarse elements.

    The 2**dim parts of a coarse element are consecutive and lexicographic.
    """
    children = np.arange(2**dim)[:, np.newaxis] >> np.arange(dim) & 1
    low = np.tile(children.astype(np.int8), (count, 1))
    parent = np.repeat(np.arange(count, dtype=np.int64), 2**dim)
    return Coarsening(elements, num_vertices, parent, low, low + np.int8(1), coarser, split=True)


def on_halves(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Join numbers at nodes of halves, which agree where halves meet, to those of coarse elements.

    Shapes: `parts` (nc, 2**dim, n**dim, ...), the result (nc, (2 n - 1)**dim, ...), lexicographic.
    """
    count, halves, nodes, *rest = parts.shape
    dim = halves.bit_length() - 1
    n = round(nodes ** (1.0 / dim))
    whole = np.empty((count, *(2 * n - 1,) * dim, *rest), parts.dtype)  # z, y, x
    for half, index in enumerate(product(range(2), repeat=dim)):
        at = tuple(slice(k * (n - 1), k * (n - 1) + n) for k in index)
        whole[(slice(None), *at)] = parts[:, half].reshape(count, *(n,) * dim, *rest)
    return whole.reshape(count, (2 * n - 1) ** dim, *rest)


def on_blocks(parts: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """As `on_halves` for n points inside the halves: (nc, 2**dim, n**dim) to (nc, (2 n)**dim)."""
    count, halves, _ = parts.shape
    dim = halves.bit_length() - 1
    axes = [axis for d in range(dim) for axis in (1 + d, 1 + dim + d)]
    whole = parts.reshape(count, *(2,) * dim, *(n,) * dim).transpose(0, *axes)
    return whole.reshape(count, (2 * n) ** dim)


def coarse_mesh(mesh: Any) -> tuple[Any, Ints] | None:
    """Mesh of the coarse elements of a mesh, and the elements (nc, 2**dim) in the halves of each.

    The geometry has the mesh's degree if that has all nodes of the halves where they are, as after
    `Mesh.refine`, else twice that degree, through their corners. An element has the attribute of
    its first half. None if the mesh has no coarser one all of whose elements are halved.
    """
    coarsening = mesh.whole_coarser
    children = None if coarsening is None else coarsening.children()
    if coarsening is None or children is None:
        return None
    whole = on_halves(mesh.coordinates[children])
    g = round(mesh.coordinates.shape[1] ** (1.0 / mesh.dim)) - 1
    ends = gauss_lobatto(g + 1)[0]
    places = np.concatenate([ends / 2.0, 0.5 + ends[1:] / 2.0])
    size = np.ptp(mesh.coordinates, axis=(0, 1)).max(initial=0.0)
    for degree in (g, 2 * g):
        nodes = gauss_lobatto(degree + 1)[0]
        coordinates = tensor_apply([lagrange_matrix(places, nodes)] * mesh.dim, whole)
        again = tensor_apply([lagrange_matrix(nodes, places)] * mesh.dim, coordinates)
        if abs(again - whole).max(initial=0.0) <= 1e-12 * size:
            break
    faces = mesh.topology.boundary_faces
    numbers = np.stack([coarsening.parent[faces[:, 0]], faces[:, 1]], axis=1)
    kept = np.sort(np.unique(numbers, axis=0, return_index=True)[1])
    made = replace(
        mesh,
        elements=coarsening.elements,
        coordinates=coordinates,
        element_attributes=mesh.element_attributes[children[:, 0]],
        boundary=outward_corners(coarsening.elements, numbers[kept]),
        boundary_attributes=mesh.boundary_attributes[kept],
        num_vertices=coarsening.num_vertices,
        file_elements=np.arange(len(children)),
        coarser=coarsening.coarser,
        forest=None,
    )
    return made, children
