"""Launches that multiply a vector by a sparse matrix on a device."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.cuda.operator.sweep import DeviceLaunch, DeviceNoOp
from femops_kernels.device import Device

SLICE = 32  # rows of a slice: the threads of a warp have a row each and read together

Ints = NDArray[np.int64]


@final
class DeviceRowProduct(DeviceLaunch):
    """Launch that multiplies by a matrix in slices of rows (sliced ELLPACK); see ``rows.cuh``.

    Shapes: `start` (nrows + 1,), `columns` (n,), `values` (n,).
    """

    on_elements, overwrites = False, True

    def __init__(
        self, device: Device, start: Ints, columns: NDArray[np.int32], values: NDArray[Any]
    ) -> None:
        fields = {"x": "const T*", "y": "T*", "starts": "const long long*", "alpha": "T"}
        fields |= {"columns": "const int*", "values": "const T*", "count": "long long"}
        layout = Layout(fields | {"add": "int"}, values.dtype)
        count = len(start) - 1
        self._arrays = [device.upload(array) for array in slices(start, columns, values)]
        arrays = dict(zip(("starts", "columns", "values"), self._arrays, strict=True))
        self._packed = layout.pack(device, x=None, y=None, alpha=0.0, add=0, count=count, **arrays)
        text = simple_text(layout, values.dtype, "rows", SLICE=SLICE)
        self._function, self._blocks = device.function(text), -(-count // SIMPLE_THREADS)

    def launch(self, x: int, y: int, alpha: float, *, add: bool) -> None:
        packed = copied(self._packed)
        packed["x"], packed["y"], packed["alpha"], packed["add"] = x, y, alpha, add
        self._function.launch(self._blocks, SIMPLE_THREADS, 0, packed)

    def diagonal(self) -> DeviceNoOp:
        """See `DeviceLaunch.diagonal`. A sparse matrix is no term on elements."""
        return DeviceNoOp()


def slices(
    start: Ints, columns: NDArray[np.int32], values: NDArray[Any]
) -> tuple[Ints, NDArray[np.int32], NDArray[Any]]:
    """Convert compressed rows to slices of `SLICE` rows.

    The rows of a slice are padded to equal length with zeros in column 0.

    Shapes: `start`, `columns`, `values` (nrows + 1,), `starts` (nslices + 1,), `columns`, `values`
    (m,).
    """
    lengths = np.diff(start)
    count = -(-len(lengths) // SLICE)
    padded = np.zeros(count * SLICE, dtype=np.int64)
    padded[: len(lengths)] = lengths
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(padded.reshape(-1, SLICE).max(axis=1, initial=0) * SLICE, out=starts[1:])
    row = np.repeat(np.arange(len(lengths)), lengths)
    at = starts[row // SLICE] + (np.arange(len(columns)) - start[row]) * SLICE + row % SLICE
    padded_columns = np.zeros(starts[-1], np.int32)
    padded_values = np.zeros(starts[-1], values.dtype)
    padded_columns[at], padded_values[at] = columns, values
    return starts, padded_columns, padded_values
