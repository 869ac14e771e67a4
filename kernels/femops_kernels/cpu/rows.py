"""Launches that multiply vectors by a matrix in compressed rows."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu.exchange import Forward
from femops_kernels.cpu.first_touch import placed
from femops_kernels.cpu.sweep import HostLaunch, address_table
from femops_kernels.simd.lanes import Lane
from femops_kernels.skeletons.chunk import row_table as layout

# Entries of a chunk: some 0.4 MB, so that even small matrices are shared between threads.
CHUNK_ENTRIES = 2**15


def _first_rows(start: NDArray[np.int64], entries: int) -> NDArray[np.int64]:
    """First row of each chunk, then the number of rows: (nchunks + 1,)."""
    cuts = np.searchsorted(start, np.arange(CHUNK_ENTRIES, max(entries, 1), CHUNK_ENTRIES))
    return np.unique(np.concatenate([[0], cuts, [len(start) - 1]])).astype(np.int64)


def placed_rows(
    start: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    """Copy a matrix in compressed rows to memory near the threads of a `RowProduct`.

    Shapes: `start`, `columns`, `values` (nrows + 1,).
    """
    rows = _first_rows(start, len(values))
    entries = start[rows]
    rows[-1] += 1  # one start more than there are rows
    return placed(start, rows), placed(columns, entries), placed(values, entries)


@final
@dataclass(frozen=True, eq=False)
class GatheredVector:
    """Input vector of a rank's rows: entries of lower ranks, its own, those of higher ranks."""

    forward: Forward  # exchange that brings the entries of other ranks
    low: int  # number of entries of lower ranks
    values: NDArray[Any]  # (n,): memory of the vector, which `fill` sets

    def fill(self, x: int) -> int:
        """Copy the ghosts, and the entries at address ``x``, to `values`. Return its address."""
        ghosts, width = self.forward.channel.incoming, self.values.itemsize
        end = len(self.values) - (len(ghosts) - self.low)
        self.values[: self.low], self.values[end:] = ghosts[: self.low], ghosts[self.low :]
        start = self.values.ctypes.data
        ctypes.memmove(start + self.low * width, x, (end - self.low) * width)
        return start


@final
class RowProduct(HostLaunch):
    """Launch that multiplies a vector by a matrix in compressed rows; ``skeletons/chunk/csr.py``.

    Shapes: `start` (nrows + 1,), `columns` (n,), `values` (n,).
    """

    on_elements = False

    def __init__(
        self,
        start: NDArray[np.int64],
        columns: NDArray[np.int32],
        values: NDArray[Any],
        width: int,
        joined: GatheredVector | None = None,
        nvec: int = 1,
    ) -> None:
        self.joined, self.forward = joined, None if joined is None else joined.forward
        self.start, self.columns, self.values = start, columns, values
        lane = Lane(width, values.dtype)
        constants = {
            "LANE": lane,
            "LANE_WIDTH": width,
            "REAL_BYTES": values.dtype.itemsize,
        }
        module = specialize(("row_table", "csr" if nvec == 1 else "csr_rows"), constants)
        self.first_row = _first_rows(start, len(values))
        self.table = address_table(
            {
                layout.FIRST_ROW: self.first_row,
                layout.ROW_START: start,
                layout.COLUMNS: columns,
                layout.VALUES: values,
                layout.ROW_BYTES: nvec * values.dtype.itemsize,
                layout.NVEC: nvec,
            }
        )
        addresses = (module.addresses["sweep"], module.addresses["combine"], self.table.ctypes.data)
        self.row = (*addresses, len(self.first_row) - 1)
        self.work_bytes = lane.nbytes
        self.effort = values.size * nvec
