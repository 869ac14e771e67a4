"""Running compiled kernels: tables of addresses, work space, threads."""

from __future__ import annotations

import threading
from abc import ABC
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.kernel import SweepKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.pointwise.qdata import ALIGNMENT, Data
from femops_kernels.skeletons.chunk import table as layout

# Stored numbers below which threads cost more than they save (about 0.05 ms of work).
PARALLEL_EFFORT = 2**15
# A team of threads runs one loop at a time, and a sweep's buffer serves one application at a time.
LAUNCH = threading.RLock()


@final
class AlignedBuffer:
    """Grow-only memory whose address is a multiple of a cache line."""

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.uint8)

    def address(self, nbytes: int) -> int:
        """Address of at least ``nbytes`` bytes."""
        if self._memory.nbytes < nbytes + ALIGNMENT:
            self._memory = np.zeros(nbytes + ALIGNMENT, dtype=np.uint8)
        return -(-self._memory.ctypes.data // ALIGNMENT) * ALIGNMENT


_work = AlignedBuffer()


class Launch(ABC):
    """Compiled work that `Terms` runs chunk by chunk.

    Attributes
    ----------
    row : (int, int, int, int)
        Addresses of the entry points ``sweep`` and ``combine`` and of their table; the number of
        chunks.
    work_bytes : int
        Work space that a thread needs.
    effort : int
        Stored numbers that are read, by which it is judged whether threads pay.
    """

    row: tuple[int, int, int, int]
    work_bytes: int
    effort: int


@final
class Idle(Launch):
    """No work: what a term is on a rank that has none of its elements."""

    def __init__(self) -> None:
        self.row, self.work_bytes, self.effort = (0, 0, 0, 0), 0, 0


@final
class Sweep(Launch):
    """A kernel bound to plans and to its quadrature data: one term of an operator.

    Parameters
    ----------
    kernel : SweepKernel
    source, target : Plan
        Of the vector that is read and of the one that is written; of the same chunks of elements.
    data : Data
    cleared : (n,) int64
        Flat positions of the vector read that count as zero.
    constrained : (n,) int64
        Flat positions of the vector written where the result is ``keep`` times the entry read.
    keep : float
        Zero where the two vectors belong to different spaces.
    dense : (array, array), optional
        Dense bases of field and test function, for a kernel that reads them.
    """

    def __init__(
        self,
        kernel: SweepKernel,
        source: Plan,
        target: Plan,
        data: Data,
        cleared: NDArray[np.int64],
        constrained: NDArray[np.int64],
        keep: float,
        dense: tuple[NDArray[Any], ...] = (),
    ) -> None:
        self.kernel, self.source, self.target, self.data = kernel, source, target, data
        self.cleared, self.constrained = cleared, constrained
        cleared_start, cleared_at = source.local_positions(cleared, kernel.source.ncomp)
        start, positions = target.local_positions(constrained, kernel.target.ncomp)
        # padding elements, which are the last, write behind the last chunk's piece
        buffered = (len(target.foreign_dofs) + target.runs.longest) * kernel.target.ncomp
        # each chunk writes its piece before any is read: it lies near the chunk's thread
        self.buffer = np.empty(buffered, kernel.dtype)
        entries = _plan_entries(source, target) | {
            layout.QDATA: data.points,
            layout.MODES: data.modes,
            layout.ELEMENT: data.elements,
            layout.CONSTANTS: data.constants,
            layout.BUFFER: self.buffer,
            layout.CLEARED_START: cleared_start,
            layout.CLEARED: cleared_at,
            layout.CONSTRAINED_START: start,
            layout.CONSTRAINED: positions,
            layout.KEEP: np.array([keep], dtype=kernel.dtype),
            layout.DENSE_IN: dense[0] if dense else 0,
            layout.DENSE_OUT: dense[1] if dense else 0,
            layout.BATCHES: kernel.module.batches.address,
            layout.BEFORE: 0,
            layout.BEFORE_TABLE: 0,
            layout.BEFORE_READS: 0,
        }
        self._entries = entries  # keeps the arrays alive
        self.table = address_table(entries)
        module = kernel.chunk()
        addresses = (module.sweep.address, module.combine.address, self.table.ctypes.data)
        self.row = (*addresses, source.nchunks)
        needed = kernel.work_bytes(source.local_size, target.local_size)
        self.work_bytes = -(-needed // ALIGNMENT) * ALIGNMENT
        nbatch, rows, columns, width = data.points.shape
        self.effort = nbatch * rows * max(columns, 1) * width


def _plan_entries(source: Plan, target: Plan) -> dict[int, Any]:
    return {
        layout.NCHUNKS: source.nchunks,
        layout.FIRST_BATCH: source.first_batch,
        layout.IN_LOCAL_SIZE: source.local_size,
        layout.IN_OWNED_START: source.owned_start,
        layout.IN_FOREIGN_START: source.foreign_start,
        layout.IN_FOREIGN_DOFS: source.foreign_dofs,
        layout.IN_STARTS: source.starts,
        layout.IN_BATCH_START: source.batch_start,
        layout.IN_PAD: source.runs.longest,
        layout.IN_FOREIGN_END: source.foreign_end,
        layout.IN_GHOSTS_FROM: source.ndofs,
        layout.IN_GHOSTS: 0,
        layout.OUT_LOCAL_SIZE: target.local_size,
        layout.OUT_OWNED_START: target.owned_start,
        layout.OUT_FOREIGN_START: target.foreign_start,
        layout.OUT_STARTS: target.starts,
        layout.OUT_BATCH_START: target.batch_start,
        layout.COMBINE_START: target.combine_start,
        layout.COMBINE_DOF: target.combine_dof,
        layout.COMBINE_SLOT: target.combine_slot,
    }


def address_table(entries: dict[int, Any]) -> NDArray[np.int64]:
    """The table of a compiled chunk: numbers, and addresses of arrays, by position from zero."""
    words = [v.ctypes.data if isinstance(v, np.ndarray) else v for _, v in sorted(entries.items())]
    return np.array(words, dtype=np.int64)


@final
class Terms:
    """A sum of launches with factors, ready to be run: ``y = sum_i alpha_i A_i x``.

    Parameters
    ----------
    sweeps : sequence of (float, Launch)
    places : sequence of (int, int, bool), optional
        For launches on pieces of x and y: where in x and y they begin, bytes, and whether the
        result is added to what earlier ones left there.  If omitted, all are on the whole vectors.

    Attributes
    ----------
    rows : (n, 7) int64
        Of each term: addresses of the two entry points and of the table, the number of chunks, and
        its place.
    alphas : (n,) float64
    """

    def __init__(
        self,
        sweeps: Sequence[tuple[float, Launch]],
        places: Sequence[tuple[int, int, bool]] | None = None,
    ) -> None:
        if places is None:
            places = [(0, 0, k > 0) for k in range(len(sweeps))]
        self.sweeps = tuple(sweep for _, sweep in sweeps)
        rows = [(*s.row, *place) for (_, s), place in zip(sweeps, places, strict=True)]
        self.rows = np.array(rows, dtype=np.int64)
        self.alphas = np.array([a for a, _ in sweeps], dtype=np.float64)
        self.addresses = (self.rows.ctypes.data, self.alphas.ctypes.data, len(sweeps))
        self.work_bytes = max(s.work_bytes for _, s in sweeps)
        self._effort = sum(s.effort for _, s in sweeps)

    def threads(self) -> int:
        """How many threads are to be used: more than one must be wanted, and pay.

        The result has the same bits either way.
        """
        return 1 if self._effort < PARALLEL_EFFORT else machine.get_threads()

    def workplace(self) -> tuple[int, int, int]:
        """Address of work space, bytes of it for each thread, and the team that shares the work.

        Hold ``LAUNCH`` while they are used.
        """
        threads = self.threads()
        work = _work.address(self.work_bytes * threads)
        return work, self.work_bytes, machine.team_of(threads)

    def apply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Overwrite y by the sum of the terms applied to x.

        Both are contiguous and of the kernels' type.
        """
        run = driver().apply
        with LAUNCH:
            run(*self.addresses, x.ctypes.data, y.ctypes.data, *self.workplace())


@cache  # on the way of every application: no look at the sources each time
def driver() -> ModuleType:
    """Compiled driver of all kernels."""
    return specialize(("driver",), {})
