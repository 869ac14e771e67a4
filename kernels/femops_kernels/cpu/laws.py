"""Laws at points whose numbers are in arrays."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.in_order import in_order
from femops_kernels.laws.law import Law
from femops_kernels.simd.lanes import Lane

_PIECE = 2**12  # points that a thread works on at a time


def evaluated(law: Law, *numbers: Any) -> tuple[NDArray[np.float64], ...]:
    """Results of a law for arrays or numbers, which are broadcast; all have the same shape."""
    given = [np.asarray(one, dtype=np.float64) for one in numbers]
    shapes = {one.shape for one in given}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    found = [np.empty(shape) for _ in range(law.results)]
    rows = [one.reshape(-1) for one in found]
    fixed = [one.size == 1 for one in given]
    columns = [
        np.full(_PIECE, one.reshape(-1)[0])
        if alone
        else np.ascontiguousarray(
            one if one.shape == shape else np.broadcast_to(one, shape)
        ).reshape(-1)
        for one, alone in zip(given, fixed, strict=True)
    ]
    width = machine.lane_width()
    run = _compiled(law, width).run

    def work(begin: int) -> None:
        end = min(begin + _PIECE, rows[0].size)
        count, whole = end - begin, (end - begin) // width * width
        inputs = [
            column if alone else column[begin:end]
            for column, alone in zip(columns, fixed, strict=True)
        ]
        outputs = [row[begin:end] for row in rows]
        _run(run, inputs, outputs, whole // width)
        if whole < count:  # slots left over have the numbers of the last point
            last = np.minimum(np.arange(whole, whole + width), count - 1)
            tails = [np.empty(width) for _ in outputs]
            _run(run, [one[last] for one in inputs], tails, 1)
            for one, tail in zip(outputs, tails, strict=True):
                one[whole:] = tail[: count - whole]

    if rows[0].size <= _PIECE:  # in this thread, without further ado
        work(0)
    else:
        deque(in_order(work, range(0, rows[0].size, _PIECE)), maxlen=0)
    kinds = [one for one in numbers if isinstance(one, np.ndarray) and type(one) is not np.ndarray]
    return tuple(kinds[0].__array_wrap__(one) if kinds else one for one in found)


def _run(run: Any, inputs: list[Any], outputs: list[Any], lanes: int) -> None:
    places = [one.__array_interface__["data"][0] for one in (*inputs, *outputs)]
    table = np.array(places, np.int64)
    run(lanes, table.ctypes.data)


@cache
def _compiled(law: Law, width: int) -> CompiledKernel:
    constants = {"LANE": Lane(width), "INPUTS": law.inputs}
    return specialize(("law_on_arrays",), constants, f"{law.definition}\nLAW = {law.name}\n")
