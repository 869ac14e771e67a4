"""Sequences of operations on vectors of the host that one call of compiled code does."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.compiled import Instruction
from femops_kernels.cpu import machine
from femops_kernels.cpu.sweep import (
    PARALLEL_ENTRIES,
    AlignedBuffer,
    LaunchSum,
    driver_address,
)
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT
from femops_kernels.simd.lanes import Lane
from femops_kernels.skeletons.sequence import sequence_context as context
from femops_kernels.skeletons.sequence import sequence_table as layout

Term = tuple[NDArray[Any], float, int]
"""Summand: a vector, its factor, and the number of a scalar that is another factor, or -1."""

_work = AlignedBuffer()


@final
class HostSequence:
    """Instructions that compiled code does one after the other."""

    def __init__(
        self, instructions: Sequence[Instruction], scalars: NDArray[np.float64] | None = None
    ) -> None:
        self._kept = list(instructions), scalars
        self._rows = np.zeros((len(instructions), context.ROW_SIZE), dtype=np.int64)
        numbers = self._rows.view(np.float64)
        for row, floats, one in zip(self._rows, numbers, instructions, strict=True):
            row[context.FUNCTION] = one.function
            for k, word in enumerate(one.words, context.SECONDS + 1):
                (floats if isinstance(word, float) else row)[k] = word
        needed = max(one.work_bytes for one in instructions)
        self._work_bytes = -(-needed // ALIGNMENT) * ALIGNMENT
        self._context = np.zeros(context.CONTEXT_SIZE, dtype=np.int64)
        self._context[context.SCALARS] = 0 if scalars is None else scalars.ctypes.data
        self._context[context.DRIVE] = driver_address()
        self._context[[context.CLOCK, context.CLOCK_NAME]] = _clock()
        self._where = self._rows.ctypes.data, self._context.ctypes.data
        self._run, self._threads = _compiled(np.dtype(np.float64)).run, machine.get_threads()

    def run(self, begin: int = 0) -> int:
        """Do the instructions from number ``begin`` on."""
        rows, shared = self._where
        threads = machine.get_threads()
        with LAUNCH:
            work = _work.address(self._work_bytes * threads)
            place = work, self._work_bytes, threads, machine.team_of(threads)
            self._context[context.SPACE : context.DRIVE] = place
            return int(self._run(rows, begin, len(self._rows), shared))

    @property
    def stale(self) -> bool:
        """True if the compiled sequence no longer matches the solves or the number of threads."""
        instructions, _ = self._kept
        known = all(one.current is None or one.current() for one in instructions)
        return not known or self._threads != machine.get_threads()

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Seconds (n,) spent with each instruction so far; zeros on systems without a clock."""
        times: NDArray[np.float64] = self._rows.view(np.float64)[:, context.SECONDS]
        return times


def sum_instruction(out: NDArray[Any], terms: Sequence[Term]) -> Instruction:
    """Instruction that sets a vector to a sum of vectors.

    Shapes: `out` (n,).
    """
    rows = np.zeros((len(terms), layout.TERM_SIZE), dtype=np.int64)
    for row, (vector, factor, scalar) in zip(rows, terms, strict=True):
        row[[layout.VECTOR, layout.STRIDE]] = vector.ctypes.data, _step(vector)
        row.view(np.float64)[layout.FACTOR] = factor
        row[layout.SCALAR] = scalar
    shared = int(out.size * len(terms) >= PARALLEL_ENTRIES)
    words = rows.ctypes.data, len(terms), out.ctypes.data, _step(out), out.size, shared
    kept = rows, out, [vector for vector, _, _ in terms]
    return Instruction(_compiled(out.dtype).addresses["combine"], words, kept=kept)


def application_instruction(launches: LaunchSum, x: NDArray[Any], y: NDArray[Any]) -> Instruction:
    """Instruction that sets y to an operator applied to x, both (n,)."""
    words = *launches.addresses, x.ctypes.data, y.ctypes.data, int(launches.shared)
    address = _compiled(np.dtype(np.float64)).addresses["apply"]
    return Instruction(address, words, launches.work_bytes, (launches, x, y))


def least_instruction(values: NDArray[Any], count: int, scalar: int) -> Instruction:
    """Instruction that sets a scalar to the least of ``count`` numbers, or to NaN if one is NaN.

    Shapes: `values` (nbatch, width).
    """
    step = values.strides[0] // values.itemsize
    words = values.ctypes.data, step, values.shape[1], scalar, count
    return Instruction(_compiled(values.dtype).addresses["least"], words, kept=values)


def demand_instruction(scalar: int, factor: float, least: int, other: float) -> Instruction:
    """Instruction that ends the sequence unless factor * scalar >= other * least.

    ``scalar`` and ``least`` are the numbers of two scalars in the sequence.
    """
    words = scalar, float(factor), least, float(other)
    return Instruction(_compiled(np.dtype(np.float64)).addresses["require"], words)


def blocks_instruction(blocks: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> Instruction:
    """Instruction that multiplies x by a block-diagonal matrix and stores the result in y.

    Shapes: `blocks` (m, n, n), `x`, `y` (m n,).
    """
    columns = np.ascontiguousarray(blocks.swapaxes(1, 2))
    m, n, _ = blocks.shape
    shared = int(blocks.size >= PARALLEL_ENTRIES)
    words = columns.ctypes.data, n, m, x.ctypes.data, y.ctypes.data, shared
    return Instruction(_compiled(x.dtype).addresses["multiply_blocks"], words, kept=(columns, x, y))


def _step(vector: NDArray[Any]) -> int:
    """Stride of a vector, counted in numbers."""
    return vector.strides[0] // vector.itemsize if vector.size > 1 else 1


@cache
def _compiled(dtype: np.dtype[Any]) -> CompiledKernel:
    skeletons = "sequence_context", "sequence_table", "sequence"
    constants = {"LANE": Lane(2, dtype), "REAL_BYTES": dtype.itemsize}
    return specialize(skeletons, constants)


@cache
def _clock() -> tuple[int, int]:
    """Address of the system's ``clock_gettime``, and the clock to pass to it.

    Both are 0 on a system that lacks the function.
    """
    if not hasattr(time, "CLOCK_MONOTONIC"):
        return 0, 0
    function = ctypes.CDLL(None).clock_gettime
    return ctypes.cast(function, ctypes.c_void_p).value or 0, time.CLOCK_MONOTONIC
