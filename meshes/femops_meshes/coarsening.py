"""Coarsening of a mesh: the coarser grid whose elements were split into those of the mesh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

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
