"""Updates of vectors in a multigrid cycle on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.compiled import (
    CoarsestVectors,
    Directions,
    DType,
    Factors,
    Ints,
    Totals,
    VectorUpdates,
)
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.sweep import PARALLEL_ENTRIES
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT

Array = NDArray[Any]

_PIECE = 256  # lanes that a thread works on at a time


def _step_parts(kind: str) -> Parts:
    lanes = ALIGNMENT // np.dtype(kind).itemsize
    return ("relaxation",), {"LANE_WIDTH": lanes, "REAL": kind, "PIECE": _PIECE}, ""


def _vector_parts(skeleton: str, real: str, other: str) -> Parts:
    lanes = ALIGNMENT // np.dtype(real).itemsize
    return ("segments", skeleton), {"LANE_WIDTH": lanes, "REAL": real, "OTHER": other}, ""


def cycle_parts(outer: DType, cycle: DType) -> list[Parts]:
    """Parts of the vector updates in multigrid cycles, and in conjugate gradients around them."""
    return [
        _vector_parts("directions", outer.name, cycle.name),
        _vector_parts("inner_product", outer.name, outer.name),
        _step_parts(cycle.name),
        _vector_parts("inner_product", cycle.name, cycle.name),
    ]


@cache  # every step needs it: do not read the sources each time
def _compiled(kind: str) -> CompiledKernel:
    return specialize(*_step_parts(kind))


@cache
def _vectors(skeleton: str, real: str, other: str) -> CompiledKernel:
    return specialize(*_vector_parts(skeleton, real, other))


def padded_vector(size: int, dtype: DType) -> Array:
    """Make a vector of zeros near the threads that use it, (size,) padded to whole cache lines."""
    lanes = ALIGNMENT // dtype.itemsize
    return placed_array((-(-size // lanes) * lanes,), dtype)


@final
class HostUpdates(VectorUpdates):
    """Vectors of the host and their updates in multigrid; see `VectorUpdates`."""

    xp, repeats = np, False

    def put(self, values: Array) -> Array:
        return values

    def vector(self, size: int, dtype: DType) -> Array:
        return padded_vector(size, dtype)

    def coarsest(self, size: int, dtype: DType) -> HostCoarsestVectors:
        return HostCoarsestVectors(size, dtype)

    def step(
        self,
        old: Array,
        product: Array | None,
        right: Array | None,
        scales: Array,
        current: Array | None,
        factors: Factors,
    ) -> None:
        module = _compiled(old.dtype.name)
        vectors = tuple(
            0 if vector is None else vector.ctypes.data
            for vector in (old, product, right, scales, current)
        )
        threads = 1 if old.size < PARALLEL_ENTRIES else machine.get_threads()
        with LAUNCH:
            module.step(machine.team_of(threads), *vectors, old.size // module.LANE_WIDTH, *factors)

    def directions(self, edges: Ints, total: Totals, real: DType, other: DType) -> HostDirections:
        return HostDirections(edges, total, real, other)

    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """See `VectorUpdates.repeatable`. Return ``work`` unchanged."""
        return work

    def wait(self) -> None:
        """See `VectorUpdates.wait`. The host has nothing to wait for."""


@final
class HostCoarsestVectors(CoarsestVectors):
    """Padded vectors of the coarsest level on the host; see `CoarsestVectors`."""

    def __init__(self, size: int, dtype: DType) -> None:
        self._size = size
        self.right, self.found = padded_vector(size, dtype), padded_vector(size, dtype)

    def fetch(self) -> NDArray[np.float64]:
        copy: NDArray[np.float64] = self.right[: self._size].astype(np.float64)
        return copy

    def give(self, solution: NDArray[np.float64]) -> None:
        self.found[: self._size] = solution


@final
class HostDirections(Directions):
    """Inner products and vector updates on the host, summed in segments; see `Directions`."""

    def __init__(self, edges: Ints, total: Totals, real: DType, other: DType) -> None:
        lanes = ALIGNMENT // real.itemsize
        self._types = real.name, other.name
        self._edges, self._total = edges, total  # edges: compiled code has their address
        self._sums = np.zeros((2, len(edges) - 1, lanes), real)
        self._threads = 1 if edges[-1] < PARALLEL_ENTRIES else 0
        self._where = edges.ctypes.data, len(edges) - 1

    @cached_property
    def _inner_product(self) -> CompiledKernel:
        """Inner product, compiled when first used: `_updates` often have other types."""
        return _vectors("inner_product", *self._types)

    @cached_property
    def _updates(self) -> CompiledKernel:
        return _vectors("directions", *self._types)

    def _team(self) -> int:
        return machine.team_of(self._threads or machine.get_threads())

    def _summed(self, count: int = 1) -> NDArray[np.float64]:
        return self._total(self._sums[:count].sum(axis=2, dtype=np.float64))

    def inner(self, a: Array, b: Array) -> float:
        with LAUNCH:
            addresses, sums = (a.ctypes.data, b.ctypes.data), self._sums.ctypes.data
            self._inner_product.product(self._team(), *addresses, *self._where, sums)
        return float(self._summed()[0])

    def inners(self, a: Array, c: Array, b: Array) -> tuple[float, float]:
        with LAUNCH:
            addresses, sums = (a.ctypes.data, c.ctypes.data, b.ctypes.data), self._sums.ctypes.data
            self._updates.products(self._team(), *addresses, *self._where, sums)
        first, second = self._summed(2).tolist()
        return first, second

    def move(self, vectors: tuple[Array, ...], alpha: float, scale: float) -> float:
        with LAUNCH:
            addresses = tuple(vector.ctypes.data for vector in vectors)
            sums = self._sums.ctypes.data
            self._updates.move(self._team(), *addresses, *self._where, sums, alpha, scale)
        return float(self._summed()[0])

    def turn(self, p: Array, z: Array, beta: float, scale: float) -> None:
        with LAUNCH:
            addresses = p.ctypes.data, z.ctypes.data
            self._updates.turn(self._team(), *addresses, *self._where, beta, scale)
