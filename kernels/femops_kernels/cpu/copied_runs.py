"""Runs of dofs that the chunks of a plan copy; see `femops_kernels.cpu.plan`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cpu.numbering import set_local_numbers
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.runs import DofRuns

Int = NDArray[np.int64]


@final
@dataclass(frozen=True)
class CopiedRuns:
    """Runs of one length that chunks copy, in the order of the elements."""

    rows: Int  # (n, length): dofs of each run
    # chunk, element and run are (n,)
    chunk: Int
    element: Int
    run: Int

    def distinct(self, names: Int) -> tuple[Int, Int]:
        """First of all runs with one name (k,), by ascending names, and each run's place (n,)."""
        at, inverse = np.unique(names, return_index=True, return_inverse=True)[1:]
        if not self._agree(at, inverse):
            # a face that is seen in two orders has one first dof, two layers have two first dofs
            second = min(1, self.rows.shape[1] - 1)
            keys = [self.rows[:, -1], self.rows[:, second], names]
            order = np.lexsort(keys)
            new = np.ones(len(names), dtype=bool)
            new[1:] = np.any([np.diff(key[order]) for key in keys], axis=0)
            at, inverse = order[new], np.empty_like(order)
            inverse[order] = np.cumsum(new) - 1
            if not self._agree(at, inverse):
                raise KernelValueError(
                    "runs of dofs begin and end alike and differ between: take shorter runs"
                )
        return at, inverse

    def _agree(self, at: Int, inverse: Int) -> bool:
        return np.array_equal(self.rows[at[inverse]], self.rows)


def copied_runs(
    indices: Int, element_start: Int, owned_start: Int, runs: DofRuns, local: Int
) -> list[CopiedRuns]:
    """Return the runs that chunks copy, one table for each length.

    ``local`` (ne, runs) gets the numbers of `set_local_numbers`. They are negative for these runs.
    """
    set_local_numbers(indices, element_start, owned_start, runs, local)
    element, run = np.nonzero(local < 0)
    chunk = np.repeat(np.arange(len(element_start) - 1), np.diff(element_start))[element]
    sizes, found = np.array([len(nodes) for nodes in runs.nodes]), []
    for size in np.unique(sizes):
        columns = np.flatnonzero(sizes == size)
        these = np.flatnonzero(sizes[run] == size)
        nodes = np.array([runs.nodes[k] for k in columns])[np.searchsorted(columns, run[these])]
        rows = indices[element[these, np.newaxis], nodes]
        found.append(CopiedRuns(rows, chunk[these], element[these], run[these]))
    return found


def copies(
    found: list[CopiedRuns],
    element_start: Int,
    owned_start: Int,
    numbers: int,
    apart: int | None,
    local: Int,
) -> tuple[Int, Int]:
    """Dofs that chunks copy, chunk by chunk, and the start of each chunk's: (n,), (nchunks + 1,).

    If ``apart`` is None, elements of a chunk with the same run share a copy of it, and copies are
    ordered by dof.  Else each element has its own copies, ordered by element, and those of ghosts
    (dofs from ``apart`` on) come last.  Dofs are below ``numbers``.  The chunk-local number of the
    first dof of each run is stored in ``local``.
    """
    lengths = np.diff(element_start)
    stride = max(numbers, 2 * int(lengths.max(initial=0))) + 1
    kept, names = [], []
    for each in found:
        heads = each.rows[:, 0]
        if apart is None:
            at, inverse = each.distinct(each.chunk * stride + heads)
        else:
            at = inverse = np.arange(len(heads))
            heads = each.element - element_start[each.chunk]
            heads = heads + lengths[each.chunk] * (each.rows[:, 0] >= apart)
        kept.append((at, inverse))
        names.append(each.chunk[at] * stride + heads[at])
    name = np.concatenate(names)
    length = np.repeat([each.rows.shape[1] for each in found], [len(some) for some in names])
    order = np.argsort(name, kind="stable")
    starts, ends = np.empty_like(name), np.cumsum(length[order])
    starts[order] = ends - length[order]
    first = np.searchsorted(name[order], np.arange(len(element_start)) * stride)
    chunk_start = np.append(0, ends)[first].astype(np.int64)
    copies, done = np.empty(chunk_start[-1], dtype=np.int64), 0
    owned = np.diff(owned_start)
    for each, (at, inverse) in zip(found, kept, strict=True):
        mine, done = starts[done : done + len(at)], done + len(at)
        copies[mine[:, np.newaxis] + np.arange(each.rows.shape[1])] = each.rows[at]
        offset = (owned - chunk_start[:-1])[each.chunk]
        local[each.element, each.run] = offset + mine[inverse]
    return copies, chunk_start
