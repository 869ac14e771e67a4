"""Panels of a MultiVector: their types and widths, and the columns in use."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.errors import VectorError
from femops_common.arguments import dtype_of, shown
from femops_kernels.pointwise.qdata import ALIGNMENT

Array = NDArray[Any]
TYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float64, np.complex64, np.complex128))

# Most bytes of a row. Rows of a multiple of 512 bytes would compete for the same sets of a cache.
_ROW_BYTES = 448


def panel_width(nvec: int, dtype: DTypeLike) -> int:
    """Number of columns of a panel for ``nvec`` vectors. It fills complete cache lines."""
    kind = np.dtype(dtype)
    most = _ROW_BYTES // kind.itemsize
    line = ALIGNMENT // kind.itemsize
    each = -(-nvec // -(-nvec // most))  # the same for all panels, as far as possible
    return -(-each // line) * line


def check_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Convert a user's ``dtype`` to the type of a MultiVector."""
    kind = dtype_of(dtype)
    if kind is None or kind not in TYPES:
        asked = shown(dtype) if kind is None else kind
        raise VectorError(
            f"vectors of type {asked} were asked for: take float64, float32, complex128 or "
            "complex64"
        )
    return kind


def count(value: Any, what: str) -> int:
    """Convert a user's number of vectors or columns to an int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise VectorError(f"{what} = {value!r}: give a whole number >= 1")
    return int(value)


def is_number(factor: Any) -> bool:
    """True if the factor is a number by which vectors can be multiplied."""
    return isinstance(factor, int | float | complex | np.number) and not isinstance(factor, bool)


def type_with(dtype: np.dtype[Any], other: Any) -> np.dtype[Any]:
    """Result type of a combination of vectors with panels or a number, by NumPy's rules."""
    kind: np.dtype[Any] = np.result_type(dtype, getattr(other, "dtype", other))
    return kind


def used(panels: Array, nvec: int) -> tuple[Array, ...]:
    """Views of panels (npanels, size, width), without the spare columns after the last vector."""
    npanels, _, width = panels.shape
    last = nvec - (npanels - 1) * width
    return (panels,) if last == width else (panels[:-1], panels[-1, :, :last])


def rows_of(panels: Array, nvec: int, rows: slice) -> Array:
    """Rows (rows, nvec) of all vectors. A view if there is one panel, else a copy."""
    part = panels[:, rows]
    joined = np.moveaxis(part, 0, 1).reshape(part.shape[1], part.shape[0] * part.shape[2])
    return joined[:, :nvec]


def set_rows(panels: Array, rows: slice, values: Array) -> None:
    """Overwrite rows of all vectors by an array (rows, nvec)."""
    width = panels.shape[2]
    for k, panel in enumerate(panels):
        part = values[:, k * width : (k + 1) * width]
        panel[rows, : part.shape[1]] = part


def combine(xp: ModuleType, work: str, a: Array, b: Any, out: Array, nvec: int) -> None:
    """Overwrite the vectors of ``out`` with ``work(a, b)``. Spare columns do not change.

    Shapes: `a`, `out` (npanels, size, width), `b` (npanels, size, width).
    """
    others = used(b, nvec) if hasattr(b, "shape") and b.shape else (b, b)
    for mine, other, result in zip(used(a, nvec), others, used(out, nvec), strict=False):
        getattr(xp, work)(mine, other, out=result)


def small_matrix(matrix: ArrayLike, nvec: int) -> Array:
    """Convert a user's matrix of linear combinations to an array (nvec, m)."""
    small = np.asarray(matrix)
    if small.ndim != 2 or len(small) != nvec or not small.shape[1]:
        raise VectorError(
            f"a matrix of shape {small.shape} cannot combine {nvec} vectors: give one of shape "
            f"({nvec}, m)"
        )
    return small
