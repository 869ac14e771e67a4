"""Products by a matrix in compressed rows, as work that the drivers run."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.lanes import Lane
from femops_kernels.skeletons import row_table as layout
from femops_kernels.specialize import specialize
from femops_kernels.sweep import Launch, address_table

# Entries of a chunk: some 0.4 MB, so that even small matrices are shared between threads.
CHUNK_ENTRIES = 2**15


@final
class RowProduct(Launch):
    """A matrix in compressed rows, applied by ``skeletons/csr.py``.

    Parameters
    ----------
    start : (nrows + 1,) int64
        First entry of each row.
    columns : (n,) int32
    values : (n,) float64 or float32
    width : int
        Slots of a lane.
    """

    def __init__(
        self,
        start: NDArray[np.int64],
        columns: NDArray[np.int32],
        values: NDArray[Any],
        width: int,
    ) -> None:
        self.start, self.columns, self.values = start, columns, values
        lane = Lane(width, values.dtype)
        constants = {
            "LANE": lane,
            "LANE_WIDTH": width,
            "REAL_BYTES": values.dtype.itemsize,
        }
        module = specialize(("row_table", "csr"), constants)
        ends = np.arange(CHUNK_ENTRIES, max(len(values), 1), CHUNK_ENTRIES)
        cuts = np.searchsorted(start, ends)
        self.first_row = np.unique(np.concatenate([[0], cuts, [len(start) - 1]])).astype(np.int64)
        self.table = address_table(
            {
                layout.FIRST_ROW: self.first_row,
                layout.ROW_START: start,
                layout.COLUMNS: columns,
                layout.VALUES: values,
            }
        )
        addresses = (module.sweep.address, module.combine.address, self.table.ctypes.data)
        self.row = (*addresses, len(self.first_row) - 1)
        self.work_bytes = lane.nbytes
        self.effort = values.size
