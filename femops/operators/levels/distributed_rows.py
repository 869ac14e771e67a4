"""The level "full" on many ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.operators.assembly.distributed_csr import Columns, assembled_rows, split_rows
from femops.operators.execution.backend import Step
from femops.operators.execution.ranks import forward_of
from femops.operators.levels.matrices import CompressedRows, placed_csr
from femops_kernels.compiled import ONE, Panels
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.rows import GatheredVector, RowProduct


@final
@dataclass(frozen=True, eq=False)
class RankRows(CompressedRows):
    """Data of the level "full": the matrix rows of the dofs that this rank owns."""

    @cached_property
    def _rows(self) -> tuple[csr_array, csr_array, Columns]:
        """The matrix, the constrained columns removed from it, and the dofs of its columns."""
        matrix, columns = assembled_rows(self.summands)
        kept, removed = split_rows(matrix, columns, self.constraints, self.summands.first.dtype)
        return placed_csr(kept), removed, columns

    @property
    def _parts(self) -> tuple[csr_array, csr_array]:
        return self._rows[:2]

    def steps(self, panels: Panels = ONE) -> list[Step]:
        """A single step: the product with the rows."""
        kept, _, columns = self._rows
        term = self.summands.first
        nvec = panels.nvec
        given, gathered = (kept.indptr, kept.indices, kept.data, term.row_width), None
        if columns.space.comm.max(columns.halo.ghosts):
            joined = placed_array((len(columns.whole) * nvec,), term.dtype)
            forward = forward_of(columns.space, columns.halo, term.dtype, nvec)
            gathered = GatheredVector(forward, columns.low * nvec, joined)
        return [Step(1.0, RowProduct(*given, gathered, nvec), *self.sides, True)]

    def moved_bytes(self) -> int:
        """See `LevelData.moved_bytes`: the matrix, and the copy of the vector with its ghosts."""
        kept, _, columns = self._rows
        return int(super().moved_bytes() + 2 * kept.dtype.itemsize * len(columns.whole))

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """See `LevelData.lift`. Multiplies by the removed columns."""
        _, removed, columns = self._rows
        return np.asarray(removed @ columns.forward(g))
