"""Updates of vectors in a multigrid cycle on the host."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.sweep import LAUNCH, PARALLEL_EFFORT
from femops_kernels.pointwise.qdata import ALIGNMENT

Array = NDArray[Any]

_PIECE = 256  # lanes that a thread works on at a time


@cache  # on the way of every step: no look at the sources each time
def _compiled(kind: str) -> ModuleType:
    lanes = ALIGNMENT // np.dtype(kind).itemsize
    return specialize(("relaxation",), {"LANE_WIDTH": lanes, "REAL": kind, "PIECE": _PIECE})


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
