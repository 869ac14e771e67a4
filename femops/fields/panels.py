"""Panels of many vectors: their types and widths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.errors import VectorError
from femops_kernels.pointwise.qdata import ALIGNMENT
from femops_meshes.arguments import dtype_of, shown

TYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.complex64, np.complex128))

# Rows of so many bytes that are not a multiple of 512 do not meet in the same sets of a cache.
_ROW_BYTES = 448


def panel_width(nvec: int, dtype: DTypeLike) -> int:
    """Columns of a panel for so many vectors, as kernels like them: whole cache lines, not many."""
    kind = np.dtype(dtype)
    most = _ROW_BYTES // kind.itemsize
    line = ALIGNMENT // kind.itemsize
    each = -(-nvec // -(-nvec // most))  # of panels that are about the same
    return -(-each // line) * line


def check_type(dtype: DTypeLike) -> np.dtype[Any]:
    """The type of many vectors, if they can have it.

    Raises
    ------
    VectorError
    """
    kind = dtype_of(dtype)
    if kind is None or kind not in TYPES:
        asked = shown(dtype) if kind is None else kind
        raise VectorError(
            f"vectors of type {asked} were asked for: take float64, float32, complex128 or "
            "complex64"
        )
    return kind


def count(value: Any, what: str) -> int:
    """A number of vectors, or of columns.

    Raises
    ------
    VectorError
        It is no whole number >= 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise VectorError(f"{what} = {value!r}: give a whole number >= 1")
    return int(value)


def small_matrix(matrix: ArrayLike, nvec: int) -> NDArray[Any]:
    """A matrix (nvec, m) that combines so many vectors.

    Raises
    ------
    VectorError
        It has another shape.
    """
    small = np.asarray(matrix)
    if small.ndim != 2 or len(small) != nvec or not small.shape[1]:
        raise VectorError(
            f"a matrix of shape {small.shape} is to combine {nvec} vectors: it needs ({nvec}, m)"
        )
    return small
