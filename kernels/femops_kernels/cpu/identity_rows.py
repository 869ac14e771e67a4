"""Launch that sets a result to zero, but for constrained dofs, before other terms add to it."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu.sweep import HostLaunch, address_table
from femops_kernels.simd.lanes import Lane
from femops_kernels.skeletons.chunk import identity_rows_table as layout

# Entries of a chunk: half a megabyte, so that threads share large vectors only.
CHUNK_ENTRIES = 2**16


@final
class IdentityRows(HostLaunch):
    """Launch that sets ``y = 0``, and ``y[i] = keep * x[i]`` for constrained entries.

    Shapes: `constrained` (n,), `first` (nchunks + 1,).
    """

    on_elements = False

    def __init__(
        self,
        size: int,
        constrained: NDArray[np.int64],
        keep: float,
        width: int,
        dtype: np.dtype[Any],
        first: NDArray[np.int64] | None = None,
    ) -> None:
        lane = Lane(width, dtype)
        constants = {"LANE": lane, "LANE_WIDTH": width, "REAL_BYTES": dtype.itemsize}
        module = specialize(("identity_rows_table", "identity_rows"), constants)
        if first is None:
            first = np.append(np.arange(0, size, CHUNK_ENTRIES), size).astype(np.int64)
        positions = constrained if keep else constrained[:0]
        self._entries = {
            layout.FIRST_ENTRY: first,
            layout.CONSTRAINED_START: np.searchsorted(positions, first).astype(np.int64),
            layout.CONSTRAINED: positions,
            layout.KEEP: np.array([keep], dtype=dtype),
        }
        self.table = address_table(self._entries)
        addresses = (module.addresses["sweep"], module.addresses["combine"], self.table.ctypes.data)
        self.row = (*addresses, len(first) - 1)
        self.work_bytes = lane.nbytes
        self.effort = 0
