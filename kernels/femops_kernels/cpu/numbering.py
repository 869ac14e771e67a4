"""Chunk-local numbers of dofs, by compiled code.

``skeletons/chunk/numbering.py`` is the code.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.simd.runs import DofRuns

Ints = NDArray[np.int64]

PARALLEL_ENTRIES = 2**15
"""Entries of a table from which several threads work on it."""


@cache
def _compiled() -> CompiledKernel:
    return specialize(("numbering",), {})


def set_local_numbers(
    indices: Ints, element_start: Ints, owned_start: Ints, runs: DofRuns, local: Ints
) -> None:
    """Set ``local`` to the number of each run's first dof among those that its chunk owns.

    The number is negative for the runs that a chunk copies: those of dofs that another chunk owns,
    and those whose dofs do not follow each other. Layers of an element are read where they are, or
    are copied without the nodes between. Their dofs need not follow each other.

    Shapes: `indices` (ne, n), `element_start`, `owned_start` (nchunks + 1,), `local` (ne, runs).
    """
    sizes = [0, *accumulate(nodes.size for nodes in runs.nodes)]
    lists = element_start, owned_start, sizes, np.concatenate(runs.nodes)
    given = [np.ascontiguousarray(a, dtype=np.int64) for a in lists]
    if indices.strides[1] != indices.itemsize:  # as where columns were chosen
        indices = np.ascontiguousarray(indices)
    stride = indices.strides[0] // indices.itemsize
    sides = len(element_start) - 1, indices.ctypes.data, stride, len(runs.nodes), not runs.layers
    threads = 1 if indices.size < PARALLEL_ENTRIES else machine.get_threads()
    with LAUNCH:
        addresses = [table.ctypes.data for table in (*given, local)]
        _compiled().local_numbers(machine.team_of(threads), *sides, *addresses)
