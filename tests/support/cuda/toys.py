"""Kernels to try what runs kernels, and their launches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.cuda.host_device import HostDevice

THREADS = 32

FAULTS = ("none", "barrier", "unset", "shared", "array", "blocks", "early", "lines", "shift")
"""What can go wrong in `NEIGHBOURS`: a barrier is missing, a number in shared memory is not set, an
entry after shared memory is written, one after an array is read, blocks add to one number without
atomics, threads end before a barrier, or are at different ones, a shift has no meaning."""

NEIGHBOURS = """\
using T = double;
struct Arguments { const T* x; T* y; T* sum; int n; int fault; };
ENTRY(32, 2, Arguments) {
    enum { NONE, BARRIER, UNSET, SHARED, ARRAY, BLOCKS, EARLY, LINES, SHIFT };
    T* shared = reinterpret_cast<T*>(dynamic_shared());
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (a.fault != UNSET || t != 7) shared[t] = i < a.n ? a.x[i] : T(0);
    if (a.fault == SHARED && t == 0) shared[blockDim.x] = 1;
    if (a.fault == ARRAY && i == a.n - 1) shared[t] += a.x[i + 1];
    if (a.fault == SHIFT && t == 0) shared[0] += a.n << (a.n + 30);
    if (a.fault == EARLY && t == 3) return;
    if (a.fault == LINES && t == 3) {
        __syncthreads();
    } else if (a.fault != BARRIER) {
        __syncthreads();
    }
    const T sum = shared[(t + 1) % blockDim.x] + shared[(t + blockDim.x - 1) % blockDim.x];
    if (i < a.n) a.y[i] = sum;
    if (a.fault == BLOCKS) {
        if (t == 0) *a.sum += sum;
    } else {
        atomicAdd(a.sum, sum);
    }
}
"""
"""Of each entry of x the sum of those beside it in its block; and the sum of these."""


def neighbours(
    device: HostDevice, x: NDArray[np.float64], fault: str = "none"
) -> tuple[NDArray[np.float64], float]:
    """What the kernel computes."""
    y, total = np.full_like(x, np.nan), np.zeros(1)
    pointers: list[tuple[str, Any]] = [(name, np.uint64) for name in ("x", "y", "sum")]
    numbers: list[tuple[str, Any]] = [(name, np.int32) for name in ("n", "fault")]
    arguments = np.zeros((), np.dtype([*pointers, *numbers], align=True))
    for name, array in (("x", x), ("y", y), ("sum", total)):
        arguments[name] = device.address(array)
    arguments["n"], arguments["fault"] = len(x), FAULTS.index(fault)
    blocks = -(-len(x) // THREADS)
    device.function(NEIGHBOURS).launch(blocks, THREADS, 8 * THREADS, arguments)
    return y, float(total[0])


def expected(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same by NumPy."""
    blocks = np.zeros(-(-len(x) // THREADS) * THREADS)
    blocks[: len(x)] = x
    rows = blocks.reshape(-1, THREADS)
    return (np.roll(rows, 1, axis=1) + np.roll(rows, -1, axis=1)).ravel()[: len(x)]
