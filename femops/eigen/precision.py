"""Type of the numbers in filters: float32 where that costs no accuracy."""

from __future__ import annotations

from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from femops.eigen.filters import Interval
from femops.eigen.inverse import Inverse
from femops.eigen.pencil import Pencil
from femops.errors import SolverError
from femops.fields.panels import panel_width
from femops.solvers.multigrid.precision import SINGLE
from femops_meshes.arguments import dtype_of

_FEWEST = 2**18  # entries of the vectors: below, compiling kernels in float32 takes longer
_MARGIN = 16.0
_LARGE = 1e20  # eigenvalues up to this are in the range of float32 with a margin
_OUT_OF_RANGE = (
    "filter_dtype is float32, and numbers of A or M do not fit into it, or the mesh is "
    "reproducible: leave filter_dtype out"
)
_MOST_LEFT = 0.05  # part of a residual that a filter in float32 may leave


@final
class FilterPrecision:
    """Choice between float32 and the type of A, for each filter.

    A filter changes an eigenvector by its residual alone, so round-off is relative to the residual.
    It enters in each step at the upper end of the spectrum: what a filter leaves of a residual is
    at least the precision times the largest eigenvalue over the gap.
    """

    def __init__(self, pencil: Pencil, asked: DTypeLike | None) -> None:
        self.pencil, self.dtype = pencil, pencil.A.dtype
        kind = None if asked is None else dtype_of(asked)
        if asked is not None and kind not in (SINGLE, pencil.A.dtype):
            raise SolverError(f"filter_dtype = {asked!r}: give float32, or leave it out")
        self._asked, self._dropped = kind, False
        if kind == SINGLE != pencil.A.dtype and self._short is None:
            raise SolverError(_OUT_OF_RANGE)

    @cached_property
    def _short(self) -> Pencil | None:
        return self.pencil.in_float32()

    def of(
        self, inverse: Inverse, vectors: int, interval: Interval, value: float
    ) -> tuple[Inverse, float]:
        """Choose the type of a filter. Collective."""
        gap = max(interval.cut - value, float(np.finfo(float).tiny))
        left = _MARGIN * float(np.finfo(SINGLE).eps) * (interval.upper - interval.lowest) / gap
        short = self._short if self._wanted(vectors, left) else None
        if short is not None and not 1.0 / _LARGE < interval.radius < _LARGE:
            if self._asked is not None:
                raise SolverError(_OUT_OF_RANGE)
            short = None
        self.dtype = self.pencil.A.dtype if short is None else SINGLE
        return (inverse, 0.0) if short is None else (inverse.of(short), left)

    def drop(self) -> None:
        """Take the type of A from now on, unless the user has asked for float32."""
        self._dropped = True

    def _wanted(self, vectors: int, left: float) -> bool:
        if self._asked is not None or self.pencil.A.dtype == SINGLE:
            return bool(self._asked == SINGLE != self.pencil.A.dtype)
        narrower = _row_bytes(vectors, SINGLE) < _row_bytes(vectors, self.pencil.A.dtype)
        large = self.pencil.count * vectors >= _FEWEST
        return not self._dropped and left <= _MOST_LEFT and narrower and large


def _row_bytes(vectors: int, kind: np.dtype[Any]) -> int:
    """Bytes of the entries of a dof in the panels of so many vectors."""
    width = panel_width(vectors, kind)
    return -(-vectors // width) * width * kind.itemsize
