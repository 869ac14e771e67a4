"""Numbers that kernels read besides vectors and indices, with elements in the lanes of batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes of a cache line."""


def _nothing() -> NDArray[np.float64]:
    return np.zeros(0)


@final
@dataclass(frozen=True, eq=False)
class Data:
    """Numbers that a kernel reads besides vectors and indices."""

    # (nbatch, points, n, width): numbers at each quadrature point, see `store_interleaved`, of
    # the kernel's ``data_dtype``. A kernel of element matrices has (nbatch, rows, columns,
    # width).  All arrays below have the kernel's ``dtype``.
    points: NDArray[Any]
    # (nbatch, n, width): numbers of each element
    elements: NDArray[Any] = field(default_factory=_nothing)
    # (nbatch, dim, g1d**dim, width): legendre coefficients of each element's coordinates; for
    # kernels by tables (nbatch, 1, modes, width), see ``map_table.py``
    modes: NDArray[Any] = field(default_factory=_nothing)
    # (n,): numbers that are the same in all elements
    constants: NDArray[Any] = field(default_factory=_nothing)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the Legendre coefficients, which belong to the mesh."""
        return sum(a.nbytes for a in (self.points, self.elements, self.constants))


def aligned_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Make an array of zeros of any shape that starts on a cache line."""
    kind = np.dtype(dtype)
    count = prod(shape)  # np.prod takes several microseconds
    memory = np.zeros(count * kind.itemsize + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array: NDArray[Any] = memory[start : start + count * kind.itemsize].view(kind)
    return array.reshape(shape)


def store_interleaved(out: NDArray[Any], values: NDArray[Any], first: int) -> None:
    """Write quadrature data of consecutive elements into the layout of kernels.

    Shapes: `out` (nbatch, points, n, width), `values` (m, points, n).
    """
    width = out.shape[-1]
    for slot in range(width):
        start = (slot - first) % width
        part = values[start::width]
        batch = (first + start) // width
        out[batch : batch + len(part), :, :, slot] = part


def element_values(qdata: NDArray[Any], ne: int) -> NDArray[Any]:
    """Quadrature data (ne, points, n) from the layout of kernels, see `store_interleaved`."""
    nbatch, points, n, width = qdata.shape
    return np.moveaxis(qdata, -1, 1).reshape(nbatch * width, points, n)[:ne]
