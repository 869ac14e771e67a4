"""The plan of a sweep: chunks of elements, who owns which dof, chunk-local indices for the lanes.

See ``skeletons/chunk.py`` for how a kernel uses it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.errors import KernelValueError
from femops_kernels.lanes import WIDTHS

# What a chunk's private copies of x and y may fill: it must stay in a second-level cache beside
# the work arrays.
CHUNK_BYTES = 256 * 1024
# Below this many chunks threads would starve, so small meshes are cut finer.
FEWEST_CHUNKS = 32
_ALIGN = max(WIDTHS)

Int = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Plan:
    """Chunks of elements and the dofs they touch.

    A function of the restriction alone, never of threads.

    Attributes
    ----------
    width : int
        Slots of a lane, so elements of a batch.
    first_batch : (nchunks + 1,) int64
        Batches of chunk c are ``first_batch[c]:first_batch[c + 1]``.
    owned_start : (nchunks + 1,) int64
        Dofs first met by chunk c are ``owned_start[c]:owned_start[c + 1]``.
    foreign_start : (nchunks + 1,) int64
        Its other dofs are ``foreign_dofs[foreign_start[c]:foreign_start[c + 1]]``, ascending.
    foreign_dofs : (nforeign,) int64
    combine_start, combine_dof, combine_slot : int64 arrays
        Contributions ``combine_slot`` (positions in ``foreign_dofs``) to owned dofs, grouped by
        owner, by ascending contributing chunk inside.
    indices : (nbatch, nodes, width) uint16 or uint32
        Chunk-local dof of a node: owned ones first, then foreign ones, then one slot that padding
        elements use.
    local_size : int
        Slots of a chunk-local vector's component.
    ndofs : int
        Entries (of one component) of the vectors.
    """

    width: int
    first_batch: Int
    owned_start: Int
    foreign_start: Int
    foreign_dofs: Int
    combine_start: Int
    combine_dof: Int
    combine_slot: Int
    indices: NDArray[Any]
    local_size: int
    ndofs: int

    @property
    def nchunks(self) -> int:
        """How many chunks."""
        return len(self.first_batch) - 1

    @property
    def nbytes(self) -> int:
        """Bytes that a sweep reads of the plan itself."""
        lists = (self.foreign_dofs, self.combine_dof, self.combine_slot, self.indices)
        return int(sum(a.nbytes for a in lists))

    def local_positions(self, dofs: Int, ncomp: int) -> tuple[Int, Int]:
        """Where entries of a vector stand in the chunk-local copies.

        Parameters
        ----------
        dofs : (n,) int64
            Flat positions ``dof * ncomp + component``.
        ncomp : int
            Components of the vector.

        Returns
        -------
        start : (nchunks + 1,) int64
        positions : (m,) int64
            ``component * local_size + local dof``, grouped by chunk; m >= n because copies are
            shared.
        """
        flags = np.zeros((self.ndofs, ncomp), dtype=bool)
        flags.reshape(-1)[dofs] = True
        start, parts = np.zeros(self.nchunks + 1, dtype=np.int64), []
        for c in range(self.nchunks):
            owned = slice(self.owned_start[c], self.owned_start[c + 1])
            foreign = self.foreign_dofs[self.foreign_start[c] : self.foreign_start[c + 1]]
            local, component = np.nonzero(np.concatenate([flags[owned], flags[foreign]]))
            parts.append(component * self.local_size + local)
            start[c + 1] = start[c] + len(local)
        return start, np.concatenate(parts)


def elements_per_chunk(
    num_elements: int, dofs_per_element: float, ncomp: int, itemsize: int
) -> int:
    """Elements of a chunk, a multiple of the widest lane.

    As many as keep its copies of x and y in cache.
    """
    fit = CHUNK_BYTES / (2.0 * itemsize * ncomp * max(dofs_per_element, 1.0))
    share = -(-num_elements // FEWEST_CHUNKS)
    return max(_ALIGN, int(min(fit, share)) // _ALIGN * _ALIGN)


def first_batches(num_elements: int, width: int, chunk: int) -> Int:
    """First batch of each chunk of so many elements, and the end."""
    return -(-_chunks(num_elements, width, chunk) // width)


def make_plan(indices: Int, ndofs: int, width: int, chunk: int) -> Plan:
    """Plan for a restriction.

    Parameters
    ----------
    indices : (ne, nodes) int64
        Dof of each element's nodes; numbered by first touch, element by element.
    ndofs : int
        Entries (of one component) of the vectors.
    width : int
        Slots of a lane.
    chunk : int
        Elements of a chunk, a multiple of the width; see ``elements_per_chunk``.

    Raises
    ------
    KernelValueError
        If the dofs are not numbered by first touch, or a chunk is no multiple of the width.
    """
    element_start = _chunks(len(indices), width, chunk)
    # dofs met so far, after each element
    met = np.maximum.accumulate(indices.max(axis=1)) + 1
    owned_start = np.concatenate([[0], met[element_start[1:] - 1]])
    if owned_start[-1] != ndofs:
        raise KernelValueError(f"elements touch {owned_start[-1]} dofs, the vector has {ndofs}")
    local, foreign = _localise(indices, element_start, owned_start)
    return _plan(local, foreign, element_start, owned_start, ndofs, width)


def make_foreign_plan(indices: Int, ndofs: int, width: int, chunk: int) -> Plan:
    """Plan for a restriction to some dofs, numbered in any way: no chunk owns any.

    All contributions go to the buffer and are added to y, which another term must have written
    before.  The chunks share the dofs that were touched among them to add to.

    Parameters
    ----------
    indices, ndofs, width, chunk
        See `make_plan`.

    Raises
    ------
    KernelValueError
        If a chunk is no multiple of the width.
    """
    element_start = _chunks(len(indices), width, chunk)
    local = np.empty_like(indices)
    foreign: list[Int] = []
    for first, end in itertools.pairwise(element_start):
        dofs, inverse = np.unique(indices[first:end], return_inverse=True)
        local[first:end] = inverse.reshape(local[first:end].shape)
        foreign.append(dofs)
    return _plan(local, foreign, element_start, np.zeros_like(element_start), ndofs, width)


def _chunks(ne: int, width: int, chunk: int) -> Int:
    """First element of each chunk, and the end."""
    if chunk % width:
        raise KernelValueError(f"chunks of {chunk} elements: take a multiple of {width}")
    return np.append(np.arange(0, ne, chunk), ne)


def _plan(
    local: Int, foreign: list[Int], element_start: Int, owned_start: Int, ndofs: int, width: int
) -> Plan:
    """Plan from chunk-local numbers and each chunk's foreign dofs."""
    ne, nodes = local.shape
    foreign_start = np.concatenate([[0], np.cumsum([len(f) for f in foreign])]).astype(np.int64)
    foreign_dofs = np.concatenate(foreign) if foreign else np.zeros(0, np.int64)
    counts = np.diff(owned_start) + np.diff(foreign_start)
    first_batch = -(-element_start // width)
    local_size = -(-(int(counts.max()) + 1) // _ALIGN) * _ALIGN
    kind = np.uint16 if local_size <= 2**16 else np.uint32
    table = np.full((int(first_batch[-1]) * width, nodes), counts[-1], dtype=kind)
    # every chunk but the last is full: batches follow the elements without a gap
    table[:ne] = local
    order = np.argsort(foreign_dofs, kind="stable")
    combine_dof = foreign_dofs[order]
    cuts = owned_start
    if owned_start[-1] == 0:  # none is owned: equal shares, each dof in one
        shares = np.linspace(0, len(combine_dof), len(element_start)).astype(np.int64)
        cuts = np.append(combine_dof, ndofs)[shares]
    return Plan(
        width=width,
        first_batch=first_batch.astype(np.int64),
        owned_start=owned_start.astype(np.int64),
        foreign_start=foreign_start,
        foreign_dofs=foreign_dofs.astype(np.int64),
        combine_start=np.searchsorted(combine_dof, cuts).astype(np.int64),
        combine_dof=combine_dof.astype(np.int64),
        combine_slot=order.astype(np.int64),
        indices=np.ascontiguousarray(table.reshape(-1, width, nodes).swapaxes(1, 2)),
        local_size=local_size,
        ndofs=ndofs,
    )


def _localise(indices: Int, element_start: Int, owned_start: Int) -> tuple[Int, list[Int]]:
    """Chunk-local number of every node, and each chunk's foreign dofs."""
    local = np.empty_like(indices)
    foreign: list[Int] = []
    for c in range(len(element_start) - 1):
        part = indices[element_start[c] : element_start[c + 1]]
        first, end = owned_start[c], owned_start[c + 1]
        owned = part[part >= first] - first
        if part.max() >= end or (end > first and np.bincount(owned).min() == 0):
            raise KernelValueError("dofs are not numbered by first touch in element order")
        outside, inverse = np.unique(part[part < first], return_inverse=True)
        here = local[element_start[c] : element_start[c + 1]]
        here[...] = part - first
        here[part < first] = end - first + inverse
        foreign.append(outside)
    return local, foreign
