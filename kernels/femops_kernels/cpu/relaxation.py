"""Updates of vectors in a multigrid cycle on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.sweep import PARALLEL_EFFORT
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT

Array = NDArray[Any]

_PIECE = 256  # lanes that a thread works on at a time


@cache  # on the way of every step: no look at the sources each time
def _compiled(kind: str) -> ModuleType:
    lanes = ALIGNMENT // np.dtype(kind).itemsize
    return specialize(("relaxation",), {"LANE_WIDTH": lanes, "REAL": kind, "PIECE": _PIECE})


@cache
def _directions(real: str, other: str) -> ModuleType:
    lanes = ALIGNMENT // np.dtype(real).itemsize
    return specialize(("directions",), {"LANE_WIDTH": lanes, "REAL": real, "OTHER": other})


def padded_vector(size: int, dtype: np.dtype[Any]) -> Array:
    """Zeroed vector of whole cache lines, near the threads that work on it."""
    lanes = ALIGNMENT // dtype.itemsize
    return placed_array((-(-size // lanes) * lanes,), dtype)


def step(
    old: Array,
    product: Array | None,
    right: Array | None,
    scales: Array,
    current: Array | None = None,
    factors: tuple[float, float, float, float] = (1.0, 1.0, 0.0, 0.0),
) -> None:
    """Set old = scales (a product + f right) + b current + c old, in one pass over memory.

    Parameters
    ----------
    old, product, right, scales, current : arrays
        Vectors of one type, made by `padded_vector`. Product, right and current may be left out.
    factors : (a, f, b, c)
        Old is not read if c is zero.
    """
    module = _compiled(old.dtype.name)
    vectors = tuple(
        0 if vector is None else vector.ctypes.data
        for vector in (old, product, right, scales, current)
    )
    threads = 1 if old.size < PARALLEL_EFFORT else machine.get_threads()
    with LAUNCH:
        module.step(machine.team_of(threads), vectors, old.size // module.LANE_WIDTH, *factors)


@final
class Directions:
    """Inner products and updates of vectors around a preconditioner of another type.

    Parameters
    ----------
    edges : (m + 1,) int64
        Where the segments begin in which vectors are summed, and the end.
    total : callable
        Totals (k,) of all ranks of the sums (k, m) of segments.
    real, other : dtype
        Of the vectors, and of the preconditioner's.
    """

    def __init__(
        self,
        edges: NDArray[np.int64],
        total: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        real: np.dtype[Any],
        other: np.dtype[Any],
    ) -> None:
        lanes = ALIGNMENT // real.itemsize
        self._module = _directions(real.name, other.name)
        self._edges, self._total = edges, total
        self._sums = np.zeros((2, len(edges) - 1, lanes), real)
        self._threads = 1 if edges[-1] < PARALLEL_EFFORT else 0
        self._where = edges.ctypes.data, len(edges) - 1

    def _team(self) -> int:
        return machine.team_of(self._threads or machine.get_threads())

    def _summed(self, count: int = 1) -> NDArray[np.float64]:
        return self._total(self._sums[:count].sum(axis=2, dtype=np.float64))

    def inner(self, a: Array, b: Array) -> float:
        """Inner product of a vector and one of the other type. Collective."""
        with LAUNCH:
            addresses = a.ctypes.data, b.ctypes.data
            self._module.product(self._team(), *addresses, *self._where, self._sums.ctypes.data)
        return float(self._summed()[0])

    def inners(self, a: Array, c: Array, b: Array) -> tuple[float, float]:
        """Inner products of two vectors with one of the other type. Collective, one message."""
        with LAUNCH:
            addresses, sums = (a.ctypes.data, c.ctypes.data, b.ctypes.data), self._sums.ctypes.data
            self._module.products(self._team(), *addresses, *self._where, sums)
        first, second = self._summed(2).tolist()
        return first, second

    def move(self, vectors: tuple[Array, ...], alpha: float, scale: float) -> float:
        """Update x += alpha p and r -= alpha product, set right = scale r; r.r. Collective.

        Parameters
        ----------
        vectors : (x, r, p, product, right)
        alpha, scale : float
        """
        with LAUNCH:
            addresses = tuple(vector.ctypes.data for vector in vectors)
            sums = self._sums.ctypes.data
            self._module.move(self._team(), addresses, *self._where, sums, alpha, scale)
        return float(self._summed()[0])

    def turn(self, p: Array, z: Array, beta: float, scale: float) -> None:
        """Set p = scale z + beta p; z is of the other type."""
        with LAUNCH:
            addresses = p.ctypes.data, z.ctypes.data
            self._module.turn(self._team(), *addresses, *self._where, beta, scale)
