"""Inner products of vectors that ranks have pieces of."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.fields.reproducible import exact_totals, group_edges
from femops.spaces.base import Space
from femops.spaces.memory import segment_sums
from femops.spaces.product import Product
from femops_kernels.cg import Reduction, segment_edges

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@final
class Sums(Reduction):
    """Sums over the entries of a space's vectors, of all ranks that hold it.

    Parameters
    ----------
    space : Space or Product

    Attributes
    ----------
    edges : (m + 1,) int64
        Segments of the flat vector, which are summed by themselves; on a reproducible mesh those of
        the dofs that its element groups touch first.
    many : bool
        Whether there are several ranks, or could be: then results are those of many.
    arrays : module
        NumPy's functions for the vectors.
    """

    def __init__(self, space: Space | Product) -> None:
        self._comm, self._memory, self.arrays = space.comm, space.memory, space.memory.xp
        self._exact = space.any_width
        self.many = self._exact or self._comm.size > 1
        self.edges = group_edges(space) if self._exact else segment_edges(space.size)
        self._most = self._comm.max(len(self.edges) - 1) if self._exact else 0

    def __call__(self, partial: Floats) -> Floats:
        """Totals (k,) of the sums (k, segments) of the segments. Collective, one message."""
        if not self._exact:
            return self._comm.sum(partial.sum(axis=1))
        return exact_totals(self._comm, partial, self._most)

    def all(self, mine: bool) -> bool:
        """True if something holds on all ranks; never on a reproducible mesh. Collective."""
        return not self._exact and not self._comm.max(int(not mine))

    def dot(self, a: NDArray[Any], b: NDArray[Any]) -> float:
        """Inner product of two vectors. Collective."""
        left, right = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
        if not self.many:
            return float(left @ right)  # of a device, one number comes here
        return float(self(self._memory.partial(left, right, self.edges))[0])

    def dots(self, rows: NDArray[Any], b: NDArray[Any]) -> Floats:
        """Inner products of several vectors (k, size) with one. Collective, one reduction."""
        right = b.astype(np.float64, copy=False)
        if not self._exact:
            return self(self._memory.inner(rows, right)[:, np.newaxis])
        return self(segment_sums(rows * right, self.edges))

    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """The sum (size,) of the vectors (k, size), each times its weight."""
        if not self._exact:
            return self._memory.combined(weights, rows)
        # how a product of matrices rounds may depend on where an entry stands
        total: NDArray[Any] = np.zeros_like(rows[0])
        for weight, row in zip(weights.tolist(), rows, strict=True):
            total += weight * row
        return total

    def norm(self, a: NDArray[Any]) -> float:
        """Euclidean norm of a vector. Collective."""
        return math.sqrt(self.dot(a, a))
