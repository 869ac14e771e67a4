"""Inner products of vectors that are distributed over ranks."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.fields.reproducible import exact_totals, group_edges
from femops.spaces.base import Space
from femops.spaces.memory import segment_sums
from femops.spaces.product import Product
from femops_kernels.compiled import Reduction, segment_edges

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@final
class Sums(Reduction):
    """Sums over the entries of a space's vectors, on all ranks of the space.

    `edges` (m + 1,): bounds of the segments of the flat vector. Each segment is summed separately.
    On a reproducible mesh a segment has the dofs that one element group touches first.
    """

    def __init__(self, space: Space | Product) -> None:
        self._comm, self._memory, self.arrays = space.comm, space.memory, space.memory.xp
        self._space = space
        self._exact = space.any_width
        self.many = self._exact or self._comm.size > 1
        self.edges = group_edges(space) if self._exact else segment_edges(space.size)
        self._most = self._comm.max(len(self.edges) - 1) if self._exact else 0

    def __call__(self, partial: Floats) -> Floats:
        """Sum partial results (k, segments) over segments and ranks to (k,). Collective."""
        if not self._exact:
            return self._comm.sum(partial.sum(axis=1))
        return exact_totals(self._comm, partial, self._most)

    def all(self, mine: bool) -> bool:
        """True if ``mine`` is true on all ranks. False on a reproducible mesh. Collective."""
        return not self._exact and not self._comm.max(int(not mine))

    def dot(self, a: NDArray[Any], b: NDArray[Any]) -> float:
        """Inner product of two vectors (size,). Collective."""
        left, right = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
        if not self.many:
            return float(left @ right)  # a device sends one number to the host
        return float(self(self._memory.partial(left, right, self.edges))[0])

    def dots(self, rows: NDArray[Any], b: NDArray[Any]) -> Floats:
        """Inner products (k,) of several vectors (k, size) with one vector. Collective."""
        right = b.astype(np.float64, copy=False)
        if not self._exact:
            return self(self._memory.inner(rows, right)[:, np.newaxis])
        return self(segment_sums(rows * right, self.edges))

    def combined(self, weights: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
        """Linear combination (size,) of the rows (k, size) with the weights (k,)."""
        if not self._exact:
            return self._memory.combined(weights, rows)
        # how a product of matrices rounds may depend on where an entry stands
        total: NDArray[Any] = np.zeros_like(rows[0])
        for weight, row in zip(weights.tolist(), rows, strict=True):
            total += weight * row
        return total

    def norm(self, a: NDArray[Any]) -> float:
        """Euclidean norm of a vector (size,). Collective."""
        return math.sqrt(self.dot(a, a))

    def of_fields(self, a: NDArray[Any], b: NDArray[Any]) -> dict[str, tuple[float, float]]:
        """Norms of each field's part of two vectors; empty except on a product. Collective."""
        space, found = self._space, dict[str, tuple[float, float]]()
        if isinstance(space, Product):
            for name, V in space.spaces.items():
                part, sums = space.slice(name), Sums(V)
                found[name] = sums.norm(a[part]), sums.norm(b[part])
        return found
