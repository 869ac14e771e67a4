"""Running compiled kernels: tables of addresses, work space, threads."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.compiled import CompiledOperator, Launch, Places
from femops_kernels.cpu import machine
from femops_kernels.cpu.kernels.kernel import SweepKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT, Data
from femops_kernels.simd.compiling import address_of_function
from femops_kernels.skeletons.chunk import table as layout

# Stored numbers from which on several threads are used. Measured with two, 8,000 take as long as
# with one, 16,000 three quarters, 60,000 two thirds; but beside a busy process, 27,000 take 1.6
# times as long, and 64,000 1.2 times. Numbers of a vector that is updated take less time each.
PARALLEL_EFFORT = 40_000
PARALLEL_ENTRIES = 80_000
DRIVER_PARTS: Parts = ("driver_loops", "driver"), {}, ""
"""Parts of the driver of all kernels."""


@final
class AlignedBuffer:
    """Grow-only memory whose address is a multiple of a cache line."""

    def __init__(self) -> None:
        self._memory, self._begin = np.empty(0, dtype=np.uint8), 0

    def address(self, nbytes: int) -> int:
        """Address of at least ``nbytes`` bytes."""
        if self._memory.nbytes < nbytes + ALIGNMENT:
            self._memory = np.zeros(nbytes + ALIGNMENT, dtype=np.uint8)
            self._begin = -(-self._memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        return self._begin


_work = AlignedBuffer()


class HostLaunch(Launch, ABC):
    """Compiled work that the host runs chunk by chunk.

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
class NoOp(HostLaunch):
    """No work: what a term is on a rank that has none of its elements."""

    on_elements = True

    def __init__(self) -> None:
        self.row, self.work_bytes, self.effort = (0, 0, 0, 0), 0, 0


class ElementSweep(HostLaunch, ABC):
    """A kernel bound to plans: work on elements, which several ranks may share.

    Attributes
    ----------
    source, target : Plan
        Of the vectors that are read and of those that are written.
    buffer : array
        Contributions to non-owned dofs, all numbers of a dof together.
    table : int64 array
        What the kernel reads its arrays from.
    ghosts_at : int
        Where in the table the address of the ghosts' values is.
    groups : int
        Tasks of a chunk.
    numbers : int
        Numbers of a dof that is written.
    """

    on_elements = True
    source: Plan
    target: Plan
    buffer: NDArray[Any]
    table: NDArray[np.int64]
    ghosts_at: int
    groups: int
    numbers: int

    @property
    def contributed(self) -> NDArray[np.int64]:
        """See `Launch.contributed`: one for each chunk that has something for the ghost."""
        return self.target.contributed


@final
class Sweep(ElementSweep):
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

    ghosts_at, groups = layout.IN_GHOSTS, 1

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
        self.cleared, self.constrained, self.numbers = cleared, constrained, kernel.target.ncomp
        cleared_start, cleared_at = source.local_positions(cleared, kernel.source.ncomp)
        start, positions = target.local_positions(constrained, kernel.target.ncomp)
        # padding elements, which are the last, write behind the last chunk's piece
        buffered = (len(target.nonowned_dofs) + target.runs.longest) * kernel.target.ncomp
        # each chunk writes its piece before any is read: it lies near the chunk's thread
        self.buffer = np.empty(buffered, kernel.dtype)
        ncomps = kernel.source.ncomp, kernel.target.ncomp
        entries = plan_entries(source, target, *ncomps) | data_entries(data)
        entries |= {
            layout.BUFFER: self.buffer,
            layout.CLEARED_START: cleared_start,
            layout.CLEARED: cleared_at,
            layout.CONSTRAINED_START: start,
            layout.CONSTRAINED: positions,
            layout.KEEP: np.array([keep], dtype=kernel.dtype),
            layout.DENSE_IN: dense[0] if dense else 0,
            layout.DENSE_OUT: dense[1] if dense else 0,
            layout.BATCHES: kernel.module.batches.address,
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


def data_entries(data: Data) -> dict[int, Any]:
    """Entries of a table for the data of a sweep."""
    return {
        layout.QDATA: data.points,
        layout.MODES: data.modes,
        layout.ELEMENT: data.elements,
        layout.CONSTANTS: data.constants,
    }


def plan_entries(source: Plan, target: Plan, ncomp_in: int, ncomp_out: int) -> dict[int, Any]:
    """Entries of a block of a table: those of its plans; all others are zero."""
    zeros = np.zeros(source.nchunks + 1, dtype=np.int64)
    return dict.fromkeys(range(layout.WORDS), 0) | {
        layout.NCHUNKS: source.nchunks,
        layout.FIRST_BATCH: source.first_batch,
        layout.IN_LOCAL_SIZE: source.local_size,
        layout.IN_OWNED_START: source.owned_start,
        layout.IN_NONOWNED_START: source.nonowned_start,
        layout.IN_NONOWNED_DOFS: source.nonowned_dofs,
        layout.IN_STARTS: source.starts,
        layout.IN_BATCH_START: source.batch_start,
        layout.IN_PAD: source.runs.longest,
        layout.IN_NONOWNED_END: source.nonowned_end,
        layout.IN_GHOSTS_FROM: source.ndofs,
        layout.IN_COMPONENTS: ncomp_in,
        layout.OUT_LOCAL_SIZE: target.local_size,
        layout.OUT_OWNED_START: target.owned_start,
        layout.OUT_NONOWNED_START: target.nonowned_start,
        layout.OUT_STARTS: target.starts,
        layout.OUT_BATCH_START: target.batch_start,
        layout.OUT_COMPONENTS: ncomp_out,
        layout.COMBINE_START: target.combine_start,
        layout.COMBINE_DOF: target.combine_dof,
        layout.COMBINE_SLOT: target.combine_slot,
        layout.CLEARED_START: zeros,
        layout.CONSTRAINED_START: zeros,
        layout.KEEP: np.zeros(1),  # in float32 too
        layout.BLOCKS: 1,
    }


def address_table(entries: dict[int, Any]) -> NDArray[np.int64]:
    """The table of a compiled chunk: numbers, and addresses of arrays, by position from zero."""
    words = [v.ctypes.data if isinstance(v, np.ndarray) else v for _, v in sorted(entries.items())]
    return np.array(words, dtype=np.int64)


class LaunchSum(CompiledOperator, ABC):
    """A sum of launches of the host.

    Parameters
    ----------
    launches : sequence of (float, HostLaunch)
    places : Places, optional
        If omitted, all are on the whole vectors.

    Attributes
    ----------
    rows : (n, 7) int64
        Of each launch: addresses of the two entry points and of the table, the number of chunks,
        and its place.
    alphas : (n,) float64
    """

    sweeps: tuple[HostLaunch, ...]
    alphas: NDArray[np.float64]

    def __init__(
        self, launches: Sequence[tuple[float, HostLaunch]], places: Places | None = None
    ) -> None:
        if places is None:
            places = [(0, 0, k > 0) for k in range(len(launches))]
        self.sweeps = tuple(launch for _, launch in launches)
        rows = [(*s.row, *place) for s, place in zip(self.sweeps, places, strict=True)]
        self.rows = np.array(rows, dtype=np.int64)
        self.alphas = np.array([a for a, _ in launches], dtype=np.float64)
        self.addresses = (self.rows.ctypes.data, self.alphas.ctypes.data, len(launches))
        self.work_bytes = max(s.work_bytes for s in self.sweeps)
        self._effort = sum(s.effort for s in self.sweeps)

    @property
    def shared(self) -> bool:
        """True if there is so much to do that threads pay."""
        return self._effort >= PARALLEL_EFFORT

    def threads(self) -> int:
        """Number of threads to be used: more than one must be wanted, and pay.

        The result has the same bits either way.
        """
        return machine.get_threads() if self.shared else 1

    def workplace(self) -> tuple[int, int, int]:
        """Address of work space, bytes of it for each thread, and the team that shares the work.

        Hold ``LAUNCH`` while they are used.
        """
        threads = self.threads()
        work = _work.address(self.work_bytes * threads)
        return work, self.work_bytes, machine.team_of(threads)

    def apply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """See `CompiledOperator.apply`."""
        run = driver().apply
        with LAUNCH:
            run(*self.addresses, x.ctypes.data, y.ctypes.data, *self.workplace())


@final
class Application:
    """One application, piece by piece. Hold ``LAUNCH`` while it is used.

    Parameters
    ----------
    launches : LaunchSum
    x, y : int
        Addresses of the vectors.
    rows, alphas : arrays, optional
        What is launched, and factors, if they are not those of the sum.
    """

    def __init__(
        self,
        launches: LaunchSum,
        x: int,
        y: int,
        rows: NDArray[np.int64] | None = None,
        alphas: NDArray[np.float64] | None = None,
    ) -> None:
        self._driver, self.x, self.y = _pieces(), x, y
        self._work, self._work_bytes, self._team = launches.workplace()
        self._rows = launches.rows if rows is None else rows
        self._alphas = launches.alphas if alphas is None else alphas

    def _row(self, k: int) -> tuple[int, float]:
        return self._rows.ctypes.data + k * self._rows.strides[0], self._alphas[k]

    def some(self, k: int, order: NDArray[np.int64], begin: int, end: int) -> None:
        """Launch k on the chunks order[begin:end]."""
        if begin < end:
            work = self._work, self._work_bytes, self._team
            listed = order.ctypes.data + begin * order.itemsize, end - begin
            self._driver.some(*self._row(k), self.x, self.y, *work, *listed)

    def combined(self, k: int) -> None:
        """Finish launch k: add what its chunks left in the buffer."""
        self._driver.combined(*self._row(k), self.x, self.y, self._work, self._team)


def chunk_order(launch: HostLaunch) -> tuple[NDArray[np.int64], int]:
    """Tasks of a launch, those without ghosts first, and how many these are."""
    if not isinstance(launch, ElementSweep):
        return np.arange(launch.row[3]), launch.row[3]
    ghostly = np.repeat(launch.source.with_ghosts | launch.target.with_ghosts, launch.groups)
    return plain_first(ghostly)


def plain_first(ghostly: NDArray[np.bool_]) -> tuple[NDArray[np.int64], int]:
    """Order of chunks in which those without ghosts come first, and the number of these."""
    return np.argsort(ghostly, kind="stable"), int(np.count_nonzero(~ghostly))


@cache  # on the way of every application: no look at the sources each time
def driver() -> ModuleType:
    """Compiled driver of all kernels."""
    return specialize(*DRIVER_PARTS)


@cache
def driver_address() -> int:
    """Address of the driver, for compiled code."""
    return address_of_function(driver().apply)


@cache
def _pieces() -> ModuleType:
    """Compiled driver of single launches, on some of their chunks."""
    return specialize(("driver_loops", "driver_pieces"), {})
