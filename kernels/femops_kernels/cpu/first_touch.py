"""Arrays that lie near the threads that work on them.

Where a machine has several memories (NUMA nodes), the system puts a page into the memory of the
processor whose thread first writes the page.  So the driver of the sweeps first writes zeros into
the arrays that a sweep reads, with the same chunks on the same threads.  Any thread may fill the
arrays later.  The pages stay where they are.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops_kernels.cpu import machine, sweep
from femops_kernels.cpu.identity_rows import IdentityRows
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import aligned_array

# Rows of a part if the caller passes no edges. The segments of ``skeletons/cg/`` are as long.
_EVEN = 4096
_WORD = np.dtype(np.float64)
_NONE = np.zeros(0, dtype=np.int64)


def placed_array(
    shape: tuple[int, ...],
    dtype: DTypeLike,
    edges: NDArray[np.int64] | None = None,
    axis: int = 0,
) -> NDArray[Any]:
    """Zeroed array that starts on a cache line. The thread that uses a part first touches it.

    With one thread, and for arrays too small for several threads, no page is touched.

    Shapes: `edges` (nchunks + 1,).
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    if not _shared_out(nbytes):
        return aligned_array(shape, kind)
    if edges is None:
        edges = np.append(np.arange(0, shape[axis], _EVEN), shape[axis])
    memory = _untouched(-(-nbytes // _WORD.itemsize) * _WORD.itemsize)
    row = kind.itemsize * math.prod(shape[axis + 1 :])
    for k in range(math.prod(shape[:axis])):
        _touch(memory, (k * shape[axis] + edges) * row)
    array: NDArray[Any] = memory[:nbytes].view(kind)
    return array.reshape(shape)


def placed(array: NDArray[Any], edges: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Copy an array to a `placed_array` of the same shape. Return a small array itself."""
    if not _shared_out(array.nbytes):
        return array
    copy = placed_array(array.shape, array.dtype, edges)
    copy[...] = array
    return copy


def placed_plan(plan: Plan) -> Plan:
    """Copy of the plan whose lists lie in the memory of the threads that read them."""
    return replace(
        plan,
        nonowned_dofs=placed(plan.nonowned_dofs, plan.nonowned_start),
        combine_dof=placed(plan.combine_dof, plan.combine_start),
        combine_slot=placed(plan.combine_slot, plan.combine_start),
        starts=placed(plan.starts, plan.first_batch),
    )


def _shared_out(nbytes: int) -> bool:
    """True if several threads work on an array of ``nbytes`` bytes."""
    return nbytes >= _WORD.itemsize * sweep.PARALLEL_ENTRIES and machine.get_threads() > 1


def _untouched(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed memory fresh from the system. Memory of ``malloc`` may have been touched before."""
    private: dict[str, int] = {}
    if hasattr(mmap, "MAP_PRIVATE"):  # or a forked child would write into its parent's
        private["flags"] = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, nbytes, **private)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes for an array: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy asks for its own
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


def _touch(memory: NDArray[np.uint8], begins: NDArray[np.int64]) -> None:
    """Write zeros to the memory with the parallel driver; chunks start at the bytes ``begins``.

    A word that two chunks share belongs to the first of them.
    """
    cuts = -(-begins // _WORD.itemsize)
    zero = IdentityRows(int(cuts[-1]), _NONE, 0.0, machine.lane_width(_WORD), _WORD, cuts)
    row, factor = np.array([*zero.row, 0, 0, 0, 1], dtype=np.int64), np.ones(1)
    addresses = row.ctypes.data, factor.ctypes.data, 1
    with LAUNCH:
        team = machine.team_of(machine.get_threads(), strict=True)
        sweep.driver().apply(*addresses, 0, memory.ctypes.data, 0, 0, team)
