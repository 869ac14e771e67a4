"""Three-term recurrences of many vectors on the host."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.sweep import PARALLEL_ENTRIES
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT

Array = NDArray[Any]

_PIECE = 128  # rows that a thread works on at a time


@cache  # every step needs it: do not read the sources each time
def _compiled(kind: str) -> CompiledKernel:
    lanes = ALIGNMENT // np.dtype(kind).itemsize
    return specialize(("three_term",), {"LANE_WIDTH": lanes, "REAL": kind, "PIECE": _PIECE})


def step(
    old: Array,
    product: Array,
    current: Array | None,
    coefficients: tuple[float, float, float],
    scales: Array | None = None,
    extra: tuple[Array, Array] | None = None,
) -> None:
    """Set old = scales (a product + factors extra) + b current + c old, in one pass over memory.

    Shapes: `old`, `product`, `current` (rows, width), `coefficients` (a, b, c), `scales` (rows,).
    """
    rows, width = old.shape
    module = _compiled(old.dtype.name)
    more, factors = (None, None) if extra is None else extra
    arrays = tuple(
        0 if array is None else array.ctypes.data
        for array in (product, more, factors, current, old)
    )
    threads = 1 if old.size < PARALLEL_ENTRIES else machine.get_threads()
    with LAUNCH:
        team = machine.team_of(threads)
        where = 0 if scales is None else scales.ctypes.data
        module.step(
            team,
            *arrays,
            where,
            rows,
            width // module.LANE_WIDTH,
            *(float(c) for c in coefficients),
        )
