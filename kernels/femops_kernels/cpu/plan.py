"""The plan of a sweep: chunks of elements, the dofs that each chunk owns, chunk-local numbers.

``skeletons/chunk/chunk.py`` is the code that reads a plan.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.lanes import WIDTHS
from femops_kernels.simd.runs import DofRuns

Ints = NDArray[np.int64]

PARALLEL_ENTRIES = 2**15
"""Entries of a table from which several threads work on it."""


@cache
def _compiled() -> CompiledKernel:
    return specialize(("numbering",), {})


def set_local_numbers(
    indices: Ints, element_start: Ints, owned_start: Ints, runs: DofRuns, local: Ints
) -> None:
    """Set ``local`` to the number of each run's first dof among those that its chunk owns.

    The number is negative for the runs that a chunk copies: those of dofs that another chunk owns,
    and those whose dofs do not follow each other. Layers of an element are read where they are, or
    are copied without the nodes between. Their dofs need not follow each other.

    Shapes: `indices` (ne, n), `element_start`, `owned_start` (nchunks + 1,), `local` (ne, runs).
    """
    sizes = [0, *accumulate(nodes.size for nodes in runs.nodes)]
    lists = element_start, owned_start, sizes, np.concatenate(runs.nodes)
    given = [np.ascontiguousarray(a, dtype=np.int64) for a in lists]
    if indices.strides[1] != indices.itemsize:  # as where columns were chosen
        indices = np.ascontiguousarray(indices)
    stride = indices.strides[0] // indices.itemsize
    sides = len(element_start) - 1, indices.ctypes.data, stride, len(runs.nodes), not runs.layers
    threads = 1 if indices.size < PARALLEL_ENTRIES else machine.get_threads()
    with LAUNCH:
        addresses = [table.ctypes.data for table in (*given, local)]
        _compiled().local_numbers(machine.team_of(threads), *sides, *addresses)


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
            if not self._agree(at, inverse):  # they begin and end alike and differ between
                whole = np.column_stack([names, self.rows])
                found = np.unique(whole, axis=0, return_index=True, return_inverse=True)
                at, inverse = found[1], found[2].reshape(-1)  # a column in NumPy 2.0.0
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


@final
@dataclass(frozen=True, eq=False)
class HangingBatches:
    """Hanging entities of batches, as ``skeletons/batch/entities.py`` describes them."""

    starts: Int  # (nbatch + 1,): first entity of each batch, and their number
    entities: Int  # (n,): slot + 2**8 code + 2**24 half, by ascending elements
    nodes: Int  # (m, 3)
    codes: Int  # (codes, 6)
    # part_starts, parts: the same of faces of which elements have a part
    part_starts: Int
    parts: Int
    runs: Int  # (r, 2)

    @classmethod
    def of(cls, hanging: Int, parts: Int, ne: int, width: int, runs: DofRuns) -> HangingBatches:
        """Batches of ``width`` elements; ``hanging``, ``parts`` (n, 3): element, code and half."""
        batches, p = np.arange(-(-ne // width) + 1), runs.p1d
        starts = np.searchsorted(hanging[:, 0] // width, batches)
        part_starts = np.searchsorted(parts[:, 0] // width, batches)
        table = _Codes(runs, width)
        for code in np.unique(hanging[:, 1]).tolist():
            table.add(code, code)
        for code in np.unique(parts[:, 1]).tolist():
            for layer in range(p):
                table.add(3**runs.dim + code * p + layer, code, layer)
        entities = hanging @ (0, 2**8, 2**24) + hanging[:, 0] % width
        faces = (3**runs.dim + parts[:, 1] * p) * 2**8 + parts[:, 2] * 2**24 + parts[:, 0] % width
        nodes, of_runs = (np.array(rows, dtype=np.int64) for rows in (table.nodes, table.runs))
        return cls(starts, entities, nodes, table.codes, part_starts, faces, of_runs)

    @cached_property
    def addresses(self) -> Int:
        """Addresses of the arrays."""
        arrays = (
            *(self.starts, self.entities, self.nodes, self.codes),
            *(self.part_starts, self.parts, self.runs),
        )
        return np.array([array.ctypes.data for array in arrays], dtype=np.int64)


class _Codes:
    """Nodes and runs of entities, for `HangingBatches`."""

    def __init__(self, runs: DofRuns, width: int) -> None:
        self._of, self._width, self._dim, self._p = runs, width, runs.dim, runs.p1d
        self.codes = np.zeros((3**runs.dim * (1 + runs.p1d), 6), dtype=np.int64)
        self.nodes: list[tuple[int, int, int]] = []
        self.runs: list[tuple[int, int]] = []
        self._begin = np.cumsum([0, *map(len, runs.nodes)]).tolist()
        self._place = {
            int(node): (run, place)
            for run, nodes in enumerate(runs.nodes)
            for place, node in enumerate(nodes)
        }

    def add(self, row: int, code: int, layer: int | None = None) -> None:
        """Add an entity and its boundary, or a layer of an element along a face."""
        p, digits = self._p, [code // 3**d % 3 for d in range(self._dim)]
        along = [d for d, t in enumerate(digits) if t == 1]
        first = sum(p**d * (p - 1) for d, t in enumerate(digits) if t == 2)
        if layer is not None:
            first = layer * p ** next(d for d, t in enumerate(digits) if t != 1)
        a, b = along[0], along[-1]
        count = 1 if a == b else p
        found = [first + i * p**a + j * p**b for j in range(count) for i in range(p)]
        runs = [*range(len(self._of.nodes))]
        if layer is None:
            runs = [*dict.fromkeys(self._place[node][0] for node in found)]
        self.codes[row] = count, a, b, len(self.nodes), len(self.runs), len(runs)
        for node in found:
            run, place = self._place[node]
            self.nodes.append((run * self._width, place, self._begin[run] + place))
        self.runs += [(run * self._width, self._begin[run]) for run in runs]


# Most bytes of a chunk's dofs in x and y: they must stay in a second-level cache beside the work
# arrays.
CHUNK_BYTES = 512 * 1024
# Fewest chunks of a large mesh: small meshes get smaller chunks, so that all threads have work.
FEWEST_CHUNKS = 16
_ALIGN = max(WIDTHS)


@final
@dataclass(frozen=True)
class Plan:
    """Chunks of elements and the dofs they touch.

    The plan depends on the restriction alone, never on the number of threads.
    """

    width: int  # slots of a SIMD vector, which is the number of elements of a batch
    first_batch: Int  # (nchunks + 1,): batches of chunk c are ``first_batch[c]:first_batch[c + 1]``
    # (nchunks + 1,): dofs that chunk c touches first, and owns, are
    # ``owned_start[c]:owned_start[c + 1]``
    owned_start: Int
    # (nbatch + 1,): dofs that batch b touches first are ``batch_start[b]:batch_start[b + 1]``
    batch_start: Int
    # (nchunks + 1,): chunk c copies the dofs ``nonowned_dofs[nonowned_start[c]:nonowned_start[c +
    # 1]]``: runs that another chunk owns, and runs that an element has in another order than
    # their numbers
    nonowned_start: Int
    # (nchunks,): position in ``nonowned_dofs`` of each chunk's first ghost.  Ghosts are its last
    # copies.
    nonowned_end: Int
    nonowned_dofs: Int  # (nnonowned,): ~dof for a copy with the opposite sign
    # combine_start, combine_dof and combine_slot: contributions to owned dofs: dof
    # ``combine_dof[i]`` gets the number at position ``combine_slot[i]`` of ``nonowned_dofs``.
    # They are grouped by owner, and for each dof ordered by contributing chunk. A contribution that
    # is subtracted has the complement of its position; so in ``ghost_slot``.
    combine_start: Int
    combine_dof: Int
    combine_slot: Int
    ghost_start: Int  # (n + 1,)
    # contributions to ghost g are ``ghost_slot[ghost_start[g]:ghost_start[g + 1]]``, by ascending
    # chunk: positions in ``nonowned_dofs``
    ghost_slot: Int
    # (nbatch, nruns, width): chunk-local number of the first dof of each run.  A chunk numbers
    # its owned dofs first, then its copies of non-owned dofs, then a run for the padding
    # elements.
    starts: NDArray[Any]
    local_size: int  # most chunk-local numbers of any chunk, rounded up to whole cache lines
    # entries (of one component) of the vectors.  Dofs from this number on are ghosts: other ranks
    # send their values, and get the contributions to them.
    ndofs: int
    runs: DofRuns
    hanging: HangingBatches | None = None  # on locally refined meshes

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return len(self.first_batch) - 1

    @property
    def ghosts(self) -> int:
        """Number of ghosts."""
        return len(self.ghost_start) - 1

    @property
    def signed(self) -> bool:
        """True if chunks have copies with the opposite sign."""
        return bool(self.nonowned_dofs.min(initial=0) < 0)

    @property
    def with_ghosts(self) -> NDArray[np.bool_]:
        """True for each chunk (nchunks,) that touches ghosts."""
        return np.asarray(self.nonowned_end < self.nonowned_start[1:])

    @property
    def contributed(self) -> Int:
        """Ghost number (n,) of each contribution that chunks leave for other ranks, ascending."""
        return np.repeat(np.arange(self.ghosts), np.diff(self.ghost_start))

    @property
    def number_bytes(self) -> int:
        """Bytes of a chunk-local number."""
        return int(self.starts.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of the plan's lists, which each sweep reads."""
        lists = (self.nonowned_dofs, self.combine_dof, self.combine_slot, self.starts)
        return int(sum(a.nbytes for a in lists))

    def local_positions(self, dofs: Int, ncomp: int) -> tuple[Int, Int]:
        """Positions of some entries of a vector in each chunk's local numbering.

        Shapes: `dofs` (n,), `start` (nchunks + 1,), `positions` (m,).
        """
        flags = np.zeros((self.ndofs + self.ghosts, ncomp), dtype=bool)
        flags.reshape(-1)[dofs] = True
        # places among the copies of all chunks
        copied, component = np.nonzero(flags[_plain(self.nonowned_dofs)])
        cuts = np.searchsorted(copied, self.nonowned_start)
        first = np.searchsorted(dofs, self.owned_start * ncomp)
        owned_size = np.diff(self.owned_start)
        copied += np.repeat(owned_size - self.nonowned_start[:-1], np.diff(cuts))
        copied = copied * ncomp + component
        parts = [np.zeros(0, dtype=np.int64)]
        for c in range(self.nchunks):
            parts.append(dofs[first[c] : first[c + 1]] - self.owned_start[c] * ncomp)
            parts.append(copied[cuts[c] : cuts[c + 1]])
        lengths = np.diff(first) + np.diff(cuts)
        return np.append(0, np.cumsum(lengths)), np.concatenate(parts)


def elements_per_chunk(
    num_elements: int,
    dofs_per_element: float,
    ncomp: int,
    itemsize: int,
    chunk_bytes: int = CHUNK_BYTES,
) -> int:
    """Number of elements of a chunk, a multiple of the widest lane.

    The chunk's dofs in x and y fill at most ``chunk_bytes``, so that they stay in cache.
    """
    fit = chunk_bytes / (2.0 * itemsize * ncomp * max(dofs_per_element, 1.0))
    share = -(-num_elements // FEWEST_CHUNKS)
    return max(_ALIGN, int(min(fit, share)) // _ALIGN * _ALIGN)


def equal_chunks(num_elements: int, chunk: int) -> Int:
    """First element of each chunk of ``chunk`` elements, then their number: (nchunks + 1,)."""
    return np.append(np.arange(0, num_elements, chunk), num_elements)


def make_plan(
    indices: Int,
    ndofs: int,
    width: int,
    element_start: Int,
    runs: DofRuns,
    ghosts: int = 0,
    num_touched: Int | None = None,
    flipped: NDArray[np.bool_] | None = None,
) -> Plan:
    """Plan of a restriction whose dofs are numbered by first touch.

    ``flipped``: where an element's dof is minus the dof; never in the first that touches the dof.

    Shapes: `indices` (ne, nodes), `element_start` (nchunks + 1,), `num_touched` (ne,), `flipped`
    (ne, nodes).
    """
    if num_touched is None:
        _check(indices, element_start, width, ndofs + ghosts)
        num_touched = _num_touched(indices, ndofs, element_start)
    owned_start = np.concatenate([[0], num_touched[element_start[1:] - 1]])
    if owned_start[-1] != ndofs:
        raise KernelValueError(f"elements touch {owned_start[-1]} dofs, the vector has {ndofs}")
    sizes = ndofs, ghosts
    if flipped is not None:
        indices = _mirrored(indices, flipped, sizes)
    given = indices, element_start, owned_start, num_touched, sizes, width, runs
    return _plan(*given, signed=flipped is not None)


def _mirrored(indices: Int, flipped: NDArray[np.bool_], sizes: tuple[int, int]) -> Int:
    """Numbers (ne, nodes): owned dofs, owned dofs with minus signs, ghosts, ghosts with minus."""
    ndofs, ghosts = sizes
    there = indices >= ndofs
    numbers: Int = indices + ndofs * there + np.where(there, ghosts, ndofs) * flipped
    return numbers


def _signed(numbers: Int, sizes: tuple[int, int]) -> Int:
    """Dofs of numbers (n,) that `_mirrored` made; ~dof for a minus sign."""
    ndofs, ghosts = sizes
    there = numbers >= 2 * ndofs
    size, first = np.where(there, ghosts, ndofs), np.where(there, 2 * ndofs, 0)
    dofs = numbers - first
    minus = dofs >= size
    dofs = dofs - minus * size + there * ndofs
    return np.where(minus, ~dofs, dofs)


def _plain(dofs: Int) -> Int:
    """Dofs (n,) without the complements that stand for signs."""
    return np.maximum(dofs, ~dofs)


def _num_touched(indices: Int, ndofs: int, element_start: Int) -> Int:
    """Number of dofs (ne,) that each element and all before it touch. See `make_plan`."""
    num_touched, end = np.empty(len(indices), dtype=np.int64), 0
    for begin, stop in itertools.pairwise(element_start):
        part, first = indices[begin:stop], end
        part = np.where(part < ndofs, part, -1)
        num_touched[begin:stop] = np.maximum(np.maximum.accumulate(part.max(axis=1)) + 1, first)
        end = int(num_touched[stop - 1])
        touched = np.zeros(end - first + 1, dtype=bool)  # the dofs before in one
        touched[np.maximum(part - first, -1)] = True
        if not touched[:-1].all():
            raise KernelValueError("dofs are not numbered by first touch in element order")
    return num_touched


def make_nonowned_plan(
    indices: Int,
    ndofs: int,
    width: int,
    element_start: Int,
    runs: DofRuns,
    ghosts: int = 0,
    *,
    apart: bool = False,
    even: bool = False,
) -> Plan:
    """Plan of a restriction whose dofs have any numbers. Chunks own no dofs.

    Chunks write all contributions to the buffer.  Then each chunk adds the contributions to its
    share of the touched dofs to y.  Another term must have set y before.

    Shapes: `indices` (ne, nodes).
    """
    _check(indices, element_start, width, ndofs + ghosts)
    none, num_touched = np.zeros_like(element_start), np.zeros(len(indices))
    return _plan(
        indices, element_start, none, num_touched, (ndofs, ghosts), width, runs, apart, even
    )


def make_owned_plan(
    indices: Int,
    ndofs: int,
    width: int,
    element_start: Int,
    owned_start: Int,
    runs: DofRuns,
    ghosts: int = 0,
    *,
    even: bool = False,
) -> Plan:
    """Plan of a restriction whose chunks own given ranges of dofs.

    Chunks add to their own dofs where they are, and write other contributions to the buffer.
    Another term must have set y before. Several restrictions with the same ranges may add to one
    vector in one sweep. If dofs belong to no chunk, contributions must be shared out evenly.

    Shapes: `indices` (ne, nodes), `owned_start` (nchunks + 1,).
    """
    _check(indices, element_start, width, ndofs + ghosts)
    num_touched = np.zeros(len(indices))
    sizes = ndofs, ghosts
    return _plan(indices, element_start, owned_start, num_touched, sizes, width, runs, even=even)


def _check(indices: Int, element_start: Int, width: int, numbers: int) -> None:
    if indices.max(initial=-1) >= numbers:
        raise KernelValueError(f"elements touch dof {indices.max()}, there are {numbers}")
    if np.any(element_start[:-1] % width):
        raise KernelValueError(
            f"chunks begin at elements {element_start[:-1].tolist()}: take multiples of {width}"
        )


def _plan(
    indices: Int,
    element_start: Int,
    owned_start: Int,
    num_touched: NDArray[Any],
    sizes: tuple[int, int],
    width: int,
    runs: DofRuns,
    apart: bool = False,
    even: bool = False,
    signed: bool = False,
) -> Plan:
    """Plan of a restriction whose chunk c owns the dofs owned_start[c]:owned_start[c + 1].

    The elements up to element e touch ``num_touched[e]`` dofs.  ``sizes`` are the numbers of dofs
    and of ghosts.
    """
    ne, (ndofs, _), kinds = len(indices), sizes, 2 if signed else 1
    first_batch = -(-element_start // width)
    local = np.empty((first_batch[-1] * width, len(runs.nodes)), dtype=np.int64)
    found = copied_runs(indices, element_start, owned_start, runs, local[:ne])
    nonowned_dofs, nonowned_start = copies(
        found, element_start, owned_start, kinds * sum(sizes), ndofs if apart else None, local
    )
    owner = np.repeat(np.arange(len(owned_start) - 1), np.diff(nonowned_start))
    inside = np.bincount(owner[nonowned_dofs < kinds * ndofs], minlength=len(owned_start) - 1)
    if signed:
        nonowned_dofs = _signed(nonowned_dofs, sizes)
    counts = np.diff(owned_start) + np.diff(nonowned_start)
    # every chunk but the last is full: batches follow the elements without a gap
    local[ne:] = counts[-1] if ne else 0
    # whole cache lines, so that the array behind a copy begins with one
    local_size = -(-(int(counts.max(initial=0)) + runs.longest) // _ALIGN) * _ALIGN
    kind = np.uint16 if local_size <= 2**16 else np.uint32
    last = np.minimum(np.arange(1, first_batch[-1] + 1) * width, ne) - 1
    return Plan(
        width=width,
        first_batch=first_batch.astype(np.int64),
        owned_start=owned_start.astype(np.int64),
        batch_start=np.append(0, num_touched[last]).astype(np.int64),
        nonowned_start=nonowned_start,
        nonowned_end=nonowned_start[:-1] + inside,
        nonowned_dofs=nonowned_dofs.astype(np.int64),
        **_sums(nonowned_dofs, owned_start, sizes, even),
        starts=local.reshape(-1, width, local.shape[1]).swapaxes(1, 2).astype(kind, order="C"),
        local_size=local_size,
        ndofs=ndofs,
        runs=runs,
    )


def _sums(
    nonowned_dofs: Int, owned_start: Int, sizes: tuple[int, int], even: bool
) -> dict[str, Any]:
    """Fields of a `Plan` that say which entries of the buffer are added to which dofs."""
    ndofs, ghosts = sizes
    plain = _plain(nonowned_dofs)
    order = np.argsort(plain, kind="stable")
    slots, dofs = order.astype(np.int64), plain[order].astype(np.int64)
    slots = np.where(nonowned_dofs[order] < 0, ~slots, slots)
    own = int(np.searchsorted(dofs, ndofs))
    return {
        "combine_start": _shares(dofs[:own], owned_start, ndofs, even),
        "combine_dof": dofs[:own].copy(),
        "combine_slot": slots[:own].copy(),
        "ghost_start": np.searchsorted(dofs[own:], ndofs + np.arange(ghosts + 1)),
        "ghost_slot": slots[own:].copy(),
    }


def _shares(dofs: Int, owned_start: Int, ndofs: int, even: bool) -> Int:
    """First position of each chunk's share of ``dofs``, the ascending dofs with contributions."""
    cuts = owned_start
    if even:
        cuts = np.linspace(0, ndofs, len(owned_start)).astype(np.int64)
    elif owned_start[-1] == 0:  # no chunk owns dofs: equal shares, and each dof in one share alone
        places = np.linspace(0, len(dofs), len(owned_start)).astype(np.int64)
        cuts = np.append(dofs, ndofs)[places]
    return np.searchsorted(dofs, cuts).astype(np.int64)
