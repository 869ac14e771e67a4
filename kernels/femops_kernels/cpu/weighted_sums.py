"""Weighted sums and three-term recurrences of vectors on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.compiled import DType, WeightedSum
from femops_kernels.cpu import machine
from femops_kernels.cpu.sweep import PARALLEL_ENTRIES
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT

_BLOCK = 4  # lanes for which a thread reads the tables once
_PIECE = 64  # blocks that a thread works on at a time
_ROW = 12  # numbers of a sum in the kernel's tables; the terms begin behind three of them


@cache  # every step needs it: do not read the sources each time
def _compiled(dtype: DType) -> CompiledKernel:
    constants = {"LANE_WIDTH": ALIGNMENT // dtype.itemsize, "REAL": dtype.name}
    constants |= {"PIECE": _PIECE, "BLOCK": _BLOCK, "ROW": _ROW}
    return specialize(("weighted_sums",), constants)


def set_sums(sums: Sequence[WeightedSum]) -> None:
    """Set vectors to weighted sums, one after the other in one pass over memory."""
    out, table, weights = sums[0][0], list[list[int]](), list[list[float]]()
    for result, terms, mean in sums:
        share, kept = (0.0, 0) if mean is None else (mean[0], mean[1].ctypes.data)
        unused = _ROW - 3 - len(terms)
        vectors = [vector.ctypes.data for _, vector in terms]
        table.append([result.ctypes.data, kept, len(terms), *vectors, *[0] * unused])
        weights.append([0.0, share, 0.0, *[weight for weight, _ in terms], *[0.0] * unused])
    tables = np.array(table, np.int64), np.array(weights, out.dtype)
    threads = 1 if out.size < PARALLEL_ENTRIES else machine.get_threads()
    with LAUNCH:
        team = machine.team_of(threads)
        places = (each.ctypes.data for each in tables)
        _compiled(out.dtype).set_sums(team, *places, len(sums), out.size)


Array = NDArray[Any]

_ROWS = 128  # rows that a thread works on at a time


@cache  # every step needs it: do not read the sources each time
def _compiled_step(kind: str) -> CompiledKernel:
    lanes = ALIGNMENT // np.dtype(kind).itemsize
    return specialize(("three_term",), {"LANE_WIDTH": lanes, "REAL": kind, "PIECE": _ROWS})


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
    module = _compiled_step(old.dtype.name)
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
