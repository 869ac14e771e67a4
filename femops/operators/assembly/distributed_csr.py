"""Assembled matrices on many ranks: each rank has the rows of the dofs that it owns.

A row sums element matrices of all ranks that touch its dof. So a row may have columns that are
neither owned dofs nor ghosts of its rank.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from femops.operators.assembly.csr import (
    Cells,
    domains,
    element_cells,
    element_entries,
    flat,
)
from femops.operators.integrals.coefficients import check_values
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.term import Sum
from femops.parallel.halo import Halo
from femops.parallel.numbering import RankNumbering
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace

Ints = NDArray[np.int64]


@final
class Columns:
    """Columns of a rank's matrix rows, in ascending order of the global numbers of their dofs.

    `whole` (m,): flat position of each column in the global vector. Columns of lower ranks come
    first, then this rank's columns, then columns of higher ranks.

    Shapes: `dofs` (n,).
    """

    def __init__(self, space: Space, dofs: Ints) -> None:
        numbering = space.numbering
        assert numbering is not None
        ghosts = RankNumbering(numbering.rank, (), numbering.offsets, dofs)
        self.space, self.halo = space, Halo(ghosts, space.comm)
        ncomp, below = space.ncomp, int(np.searchsorted(dofs, space.first_dof))
        own = space.first_dof + np.arange(space.ndofs)
        joined = np.concatenate([dofs[:below], own, dofs[below:]])
        self.whole = (joined[:, np.newaxis] * ncomp + np.arange(ncomp)).reshape(-1)
        self.low = below * ncomp

    def join(self, own: NDArray[Any], ghosts: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """Write flat values of owned dofs and ghosts to ``out`` (m,), in column order."""
        end = self.low + len(own)
        out[: self.low], out[self.low : end], out[end:] = (
            ghosts[: self.low],
            own,
            ghosts[self.low :],
        )
        return out

    def forward(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the values (m,) of all columns from the flat values of owned dofs. Collective."""
        rows = flat.reshape(-1, self.space.ncomp)
        ghosts = self.halo.forward(rows).reshape(-1)
        return self.join(flat, ghosts, np.empty(len(self.whole), flat.dtype))


def assembled_rows(summands: Sum, cells: Cells = element_cells) -> tuple[csr_array, Columns]:
    """Assemble the rank's rows in float64, without essential conditions. Collective.

    Return the rows, and the dofs of their columns. ``cells`` is described in `assemble_csr`.
    """
    groups = domains(flat(summands))
    whole = functools.reduce(operator.add, [_domain_rows(group, cells) for group in groups])
    space = summands.first.spaces[0]
    dofs, first = np.unique(whole.indices.astype(np.int64) // space.ncomp), space.first_dof
    columns = Columns(space, dofs[(dofs < first) | (dofs >= first + space.ndofs)])
    at = np.searchsorted(columns.whole, whole.indices)
    shape = (whole.shape[0], len(columns.whole))
    return csr_array((whole.data, at, whole.indptr), shape=shape), columns


def split_rows(
    matrix: csr_array, columns: Columns, constraints: Constraints, dtype: np.dtype[Any]
) -> tuple[csr_array, csr_array]:
    """Split a rank's rows into the kept and the removed matrix of `split`. Collective."""
    entries = matrix.tocoo()
    flags = np.zeros(columns.space.size)
    flags[constraints.columns] = 1.0
    out = columns.forward(flags)[entries.col] > 0.0
    stays = ~np.isin(entries.row, constraints.rows) & (entries.data != 0.0)
    kept, removed = stays & ~out, stays & out
    diagonal = constraints.rows if constraints.identity else constraints.rows[:0]
    row = np.concatenate([entries.row[kept], diagonal])
    col = np.concatenate([entries.col[kept], columns.low + diagonal])
    data = np.concatenate([entries.data[kept], np.full(len(diagonal), constraints.identity)])
    check_values("entries of the matrix", entries.data, dtype)
    taken = entries.data[removed], (entries.row[removed], entries.col[removed])
    first, second = (
        csr_array(coo_array(part, shape=matrix.shape).tocsr().astype(dtype))
        for part in ((data, (row, col)), taken)
    )
    return first, second


def rank_matrix(summands: Sum, constraints: Constraints, cells: Cells = element_cells) -> csr_array:
    """Assemble the rank's rows (size, global size) with essential conditions. Collective."""
    matrix, columns = assembled_rows(summands, cells)
    kept = split_rows(matrix, columns, constraints, summands.first.dtype)[0]
    space = columns.space
    shape = (kept.shape[0], space.global_ndofs * space.ncomp)
    return csr_array((kept.data, columns.whole[kept.indices], kept.indptr), shape=shape)


def _domain_rows(summands: Sum, cells: Cells) -> csr_array:
    """Matrix rows (size, global size) of this rank, of integrals over the same elements.

    If each rank's elements are consecutive, entries are summed in the order of the global mesh.
    """
    trial, test = summands.first.trial, summands.first.test
    rows, columns, values = element_entries(summands, cells)
    whole = _whole_positions(trial)[columns]
    own = rows < test.size
    parts = [(rows[own], whole[own], values[own])]
    if test.halo is not None:
        theirs = rows[~own] - test.size, whole[~own], values[~own]
        parts += _sent_to_owners(test, test.halo, *theirs)
    row, col, data = (np.concatenate(column) for column in zip(*parts, strict=True))
    shape = (test.size, trial.volume.global_ndofs * trial.ncomp)
    return csr_array(coo_array((data, (row, col)), shape=shape).tocsr())


def _sent_to_owners(
    test: DomainSpace, halo: Halo, rows: Ints, columns: Ints, values: NDArray[Any]
) -> list[tuple[Ints, Ints, NDArray[Any]]]:
    """Send matrix entries in rows of ghosts to their owners.

    Shapes: returned (rows, columns, values).
    """
    ncomp, comm, mine = test.ncomp, test.volume.comm, {}
    for rank, (first, stop) in halo.receive.items():
        mine[rank] = np.flatnonzero((rows >= first * ncomp) & (rows < stop * ncomp)), first * ncomp
    at = comm.exchange({r: rows[here] - first for r, (here, first) in mine.items()})
    to = comm.exchange({r: columns[here] for r, (here, _) in mine.items()})
    numbers = comm.exchange({r: values[here] for r, (here, _) in mine.items()})
    return [
        (halo.send[rank][at[rank] // ncomp] * ncomp + at[rank] % ncomp, to[rank], numbers[rank])
        for rank in at
    ]


def _whole_positions(space: DomainSpace) -> Ints:
    """Flat position in the global vector of each entry of an l_vec, (n,)."""
    assert space.numbering is not None
    dofs = space.numbering.whole
    return np.asarray(np.add.outer(dofs * space.ncomp, np.arange(space.ncomp)).reshape(-1))
