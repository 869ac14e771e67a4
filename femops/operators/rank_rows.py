"""The level "full" on many ranks: each has the rows of the dofs that it owns.

A row is the sum of element matrices of all ranks that touch its dof, so the columns of some belong
to dofs that are not even ghosts of the space: a matrix has an exchange of its own.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from femops.abstract_space import Space
from femops.operators.assembly import Summands, domains, element_entries
from femops.operators.element_matrices import check_method
from femops.operators.held import Held
from femops.operators.matrices import Rows, csr_nbytes
from femops.operators.ranks import forward_of
from femops.operators.storage import Launches, Storage
from femops.parallel.halo import Halo
from femops.parallel.numbering import RankNumbering
from femops_kernels.placement import placed_array
from femops_kernels.rows import Joined, RowProduct, placed_rows

Ints = NDArray[np.int64]


@final
class Columns:
    """The dofs that the rows of a rank have columns for, by ascending number in the whole mesh.

    Parameters
    ----------
    space : Space
        Trial space.
    dofs : (n,) int64
        Numbers in the whole mesh of those that other ranks own, ascending.

    Attributes
    ----------
    whole : (m,) int64
        Flat positions in the whole vector of all columns: those of lower ranks, this rank's own, and
        those of higher ranks.
    low : int
        How many stand before its own.
    """

    def __init__(self, space: Space, dofs: Ints) -> None:
        numbering = space.numbering
        assert numbering is not None
        none = np.empty((0, 1), dtype=np.int64)
        ghosts = RankNumbering(numbering.rank, none, numbering.offsets, dofs)
        self.space, self.halo = space, Halo(ghosts, space.comm)
        ncomp, below = space.ncomp, int(np.searchsorted(dofs, space.first_dof))
        own = space.first_dof + np.arange(space.ndofs)
        joined = np.concatenate([dofs[:below], own, dofs[below:]])
        self.whole = (joined[:, np.newaxis] * ncomp + np.arange(ncomp)).reshape(-1)
        self.low = below * ncomp

    def join(self, own: NDArray[Any], ghosts: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """Put flat values of own dofs and of ghosts in the order of the columns."""
        end = self.low + len(own)
        out[: self.low], out[self.low : end], out[end:] = (
            ghosts[: self.low],
            own,
            ghosts[self.low :],
        )
        return out

    def forward(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Values of all columns, given those of this rank's own. Collective."""
        rows = flat.reshape(-1, self.space.ncomp)
        ghosts = self.halo.forward(rows).reshape(-1)
        return self.join(flat, ghosts, np.empty(len(self.whole), flat.dtype))


@final
@dataclass(frozen=True, eq=False)
class RankRows(Storage):
    """This rank's rows of the matrix, with the essential conditions in them.

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
        matrix, columns = self._assembled("near-optimal")
        kept, removed = self._split(matrix, columns)
        start, narrow = kept.indptr.astype(np.int64), kept.indices.astype(np.int32, copy=False)
        kept.indptr, kept.indices, kept.data = placed_rows(start, narrow, kept.data)
        return kept, removed, columns

    def _assembled(self, method: str) -> tuple[csr_array, Columns]:
        """Rows of the matrix, float64, without essential conditions, with columns as there are."""
        check_method(method)
        rows = [_domain_rows(group, method) for group in domains(self.summands)]
        whole = functools.reduce(operator.add, rows)
        space = self.summands[0][1].spaces[0]
        dofs = np.unique(whole.indices.astype(np.int64) // space.ncomp)
        first = space.first_dof
        columns = Columns(space, dofs[(dofs < first) | (dofs >= first + space.ndofs)])
        at = np.searchsorted(columns.whole, whole.indices)
        shape = (whole.shape[0], len(columns.whole))
        return csr_array((whole.data, at, whole.indptr), shape=shape), columns

    def _split(self, matrix: csr_array, columns: Columns) -> tuple[csr_array, csr_array]:
        """What is kept, and the columns taken out in the rows that stay."""
        held, dtype = self.held, self.summands[0][1].dtype
        entries = matrix.tocoo()
        flags = np.zeros(self.summands[0][1].spaces[0].size)
        flags[held.columns] = 1.0
        out = columns.forward(flags)[entries.col] > 0.0
        stays = ~np.isin(entries.row, held.rows) & (entries.data != 0.0)
        kept, removed = stays & ~out, stays & out
        row, col, data = entries.row[kept], entries.col[kept], entries.data[kept]
        if held.identity:
            row = np.concatenate([row, held.rows])
            col = np.concatenate([col, columns.low + held.rows])
            data = np.concatenate([data, np.full(len(held.rows), held.identity)])
        taken = entries.data[removed], (entries.row[removed], entries.col[removed])
        parts = (data, (row, col)), taken
        return tuple(coo_array(p, shape=matrix.shape).tocsr().astype(dtype) for p in parts)  # type: ignore[return-value]

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
        return csr_nbytes(kept) + 2 * kept.dtype.itemsize * len(columns.whole)

    def stored_bytes(self) -> int:
        """Of the matrix and the columns taken out."""
        return csr_nbytes(self._parts[0]) + bool(self.held) * csr_nbytes(self._parts[1])

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

    def matrix(self, method: str) -> csr_array:
        """This rank's rows, with the columns of the whole vector."""
        return rank_matrix(self.summands, self.held, method)


def rank_matrix(summands: Summands, held: Held, method: str) -> csr_array:
    """This rank's rows (size, global size) of the matrix with essential conditions. Collective."""
    storage = RankRows(summands, held)
    matrix, columns = storage._assembled(method)
    kept = storage._split(matrix, columns)[0]
    space = columns.space
    shape = (kept.shape[0], space.global_ndofs * space.ncomp)
    return csr_array((kept.data, columns.whole[kept.indices], kept.indptr), shape=shape)


def _domain_rows(summands: Summands, method: str) -> csr_array:
    """This rank's rows of integrals over the same elements, with the columns of the whole vector.

    Entries are summed in the order of the elements of the whole mesh, if parts are consecutive.
    """
    trial, test = summands[0][1].spaces
    rows, columns, values = element_entries(summands, method)
    whole = _whole_positions(trial)[columns]
    own = rows < test.size
    parts = [(rows[own], whole[own], values[own])]
    if test.halo is not None:
        theirs = rows[~own] - test.size, whole[~own], values[~own]
        parts += _sent_to_owners(test, test.halo, *theirs)
    row, col, data = (np.concatenate(column) for column in zip(*parts, strict=True))
    shape = (test.size, trial.global_ndofs * trial.ncomp)
    return csr_array(coo_array((data, (row, col)), shape=shape).tocsr())


def _sent_to_owners(
    test: Space, halo: Halo, rows: Ints, columns: Ints, values: NDArray[Any]
) -> list[tuple[Ints, Ints, NDArray[Any]]]:
    """Entries in rows of ghosts, counted from the first of them, go to the owners; what arrives."""
    ncomp, mine = test.ncomp, {}
    for rank, (first, stop) in halo.receive.items():
        mine[rank] = np.flatnonzero((rows >= first * ncomp) & (rows < stop * ncomp)), first * ncomp
    at = test.comm.exchange({r: rows[here] - first for r, (here, first) in mine.items()})
    to = test.comm.exchange({r: columns[here] for r, (here, _) in mine.items()})
    numbers = test.comm.exchange({r: values[here] for r, (here, _) in mine.items()})
    return [
        (halo.send[rank][at[rank] // ncomp] * ncomp + at[rank] % ncomp, to[rank], numbers[rank])
        for rank in at
    ]


def _whole_positions(space: Space) -> Ints:
    """Flat position in the whole vector of every entry of an l_vec."""
    assert space.numbering is not None
    dofs = space.numbering.whole
    return np.asarray(np.add.outer(dofs * space.ncomp, np.arange(space.ncomp)).reshape(-1))
