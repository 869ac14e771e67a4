"""The level "full" on many ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from femops.operators.assembly import Summands
from femops.operators.held import Held
from femops.operators.matrices import Rows, csr_nbytes
from femops.operators.rank_assembly import Columns, assembled_rows, split_rows
from femops.operators.ranks import forward_of
from femops.operators.storage import Launches, Storage
from femops_kernels.placement import placed_array
from femops_kernels.rows import Joined, RowProduct, placed_rows


@final
@dataclass(frozen=True, eq=False)
class RankRows(Storage):
    """Rows of the matrix that the rank owns, with the essential conditions in them.

    Attributes
    ----------
    summands, held
        See `Storage`.
    """

    summands: Summands
    held: Held
    level: str = "full"

    @cached_property
    def _parts(self) -> tuple[csr_array, csr_array, Columns]:
        """The matrix, the columns that were taken out of it, and what the columns are."""
        matrix, columns = assembled_rows(self.summands, "near-optimal")
        kept, removed = split_rows(matrix, columns, self.held, self.summands[0][1].dtype)
        start, narrow = kept.indptr.astype(np.int64), kept.indices.astype(np.int32, copy=False)
        kept.indptr, kept.indices, kept.data = placed_rows(start, narrow, kept.data)
        return kept, removed, columns

    def launches(self) -> Launches:
        """One product by rows."""
        kept, _, columns = self._parts
        term = self.summands[0][1]
        joined = placed_array((len(columns.whole),), term.dtype)
        forward = forward_of(columns.space, columns.halo, term.dtype)
        given = kept.indptr, kept.indices, kept.data, term.width
        return [(1.0, RowProduct(*given, Joined(forward, columns.low, joined)))]

    def flops(self) -> int:
        """Of the products; the matrix has no zeros stored."""
        kept = self._parts[0]
        return int(2 * kept.nnz - np.count_nonzero(np.diff(kept.indptr)))

    def assembly_flops(self, method: str) -> int:
        """As of `Rows`."""
        return Rows(self.summands, self.held).assembly_flops(method)

    def moved_bytes(self) -> int:
        """Of the matrix, and of the copy of the vector with its ghosts."""
        kept, _, columns = self._parts
        return int(csr_nbytes(kept) + 2 * kept.dtype.itemsize * len(columns.whole))

    def stored_bytes(self) -> int:
        """Of the matrix and the columns taken out."""
        kept, removed, _ = self._parts
        return csr_nbytes(kept) + bool(self.held) * csr_nbytes(removed)

    def shared_bytes(self) -> int:
        """None."""
        return 0

    def holding(self, held: Held) -> RankRows:
        """With another matrix."""
        return replace(self, held=held)

    def lift(self, g: NDArray[Any]) -> NDArray[Any]:
        """By the columns taken out."""
        _, removed, columns = self._parts
        return np.asarray(removed @ columns.forward(g))
