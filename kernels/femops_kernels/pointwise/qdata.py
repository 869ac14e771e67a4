"""Inputs of kernels besides vectors and indices, by lanes."""

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
    """The numbers that a kernel reads besides vectors and indices, of its type.

    Attributes
    ----------
    points : (nbatch, points, n, width) array
        Stored at each point, see ``interleave``, of the type of the kernel's data; of element
        matrices (nbatch, rows, columns, width).
    elements : (nbatch, n, width) array
        Constant in an element.
    modes : (nbatch, dim, g1d**dim, width) array
        Modes of the geometry.
    constants : (n,) array
    """

    points: NDArray[Any]
    elements: NDArray[Any] = field(default_factory=_nothing)
    modes: NDArray[Any] = field(default_factory=_nothing)
    constants: NDArray[Any] = field(default_factory=_nothing)

    @property
    def nbytes(self) -> int:
        """Bytes of all but the modes, which are the mesh's."""
        return sum(a.nbytes for a in (self.points, self.elements, self.constants))


def aligned_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeroed array that starts on a cache line."""
    kind = np.dtype(dtype)
    count = prod(shape)  # NumPy's takes several microseconds
    memory = np.zeros(count * kind.itemsize + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array: NDArray[Any] = memory[start : start + count * kind.itemsize].view(kind)
    return array.reshape(shape)


def interleave(values: NDArray[Any], width: int, dtype: Any) -> NDArray[Any]:
    """Quadrature data by lanes.

    Parameters
    ----------
    values : (ne, points, n) array
    width : int

    Returns
    -------
    (nbatch, points, n, width) array
        Slots past the last element are zero.
    """
    ne, points, n = values.shape
    out = aligned_array((-(-ne // width), points, n, width), dtype)
    store_interleaved(out, values, 0)
    return out


def store_interleaved(out: NDArray[Any], values: NDArray[Any], first: int) -> None:
    """Write the quadrature data of elements ``first, first + 1, ...`` into an interleaved array."""
    width = out.shape[-1]
    for slot in range(width):
        start = (slot - first) % width
        part = values[start::width]
        batch = (first + start) // width
        out[batch : batch + len(part), :, :, slot] = part


def element_values(qdata: NDArray[Any], ne: int) -> NDArray[Any]:
    """Quadrature data by element, (ne, points, n): the inverse of ``interleave``."""
    nbatch, points, n, width = qdata.shape
    return np.moveaxis(qdata, -1, 1).reshape(nbatch * width, points, n)[:ne]
