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
    arrays = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in numbers))
    shape, count = arrays[0].shape, arrays[0].size
    width = machine.lane_width()
    size = -(-count // width) * width
    # slots left over have the numbers of the last point, for which the law ends
    given = np.empty((law.inputs, size))
    for row, one in zip(given, arrays, strict=True):
        row[:count] = one.reshape(-1)
        row[count:] = row[count - 1 : count]
    found = np.empty((law.results, size))
    run = _compiled(law, width).run

    def work(begin: int) -> None:
        end = min(begin + _PIECE, size)
        places = [row[begin:].ctypes.data for row in (*given, *found)]
        table = np.array(places, np.int64)
        run((end - begin) // width, table.ctypes.data)

    deque(in_order(work, range(0, size, _PIECE)), maxlen=0)
    results = (row[:count].reshape(shape) for row in found)
    kinds = [one for one in numbers if isinstance(one, np.ndarray) and type(one) is not np.ndarray]
    return tuple(kinds[0].__array_wrap__(one) if kinds else one for one in results)


@cache
def _compiled(law: Law, width: int) -> CompiledKernel:
    constants = {"LANE": Lane(width), "INPUTS": law.inputs}
    return specialize(("law_on_arrays",), constants, f"{law.definition}\nLAW = {law.name}\n")
