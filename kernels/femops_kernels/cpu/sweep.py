"""Sweeps: compiled kernels bound to plans and data, and the driver that runs them on threads."""

from __future__ import annotations

import itertools
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.compiled import CompiledOperator, Launch, Places
from femops_kernels.cpu import machine
from femops_kernels.cpu.exchange import Contributions
from femops_kernels.cpu.kernels import SweepKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT, Data, aligned_array
from femops_kernels.simd.runs import DofRuns
from femops_kernels.skeletons.chunk import table as layout


def turn_table(turns: NDArray[np.int64] | None, plan: Plan) -> NDArray[np.int64] | int:
    """Entries (nbatch, 7 + 5 * width) that ``batch/face_nodes.py`` reads; 0 without ``turns``.

    Where all elements of a batch lie alike, their strides are its strides. Else the batch has those
    of elements that are turned to the face, and each slot has its own.
    """
    if turns is None:
        return 0
    width, runs = plan.width, plan.runs
    slots = -(-len(turns) // width) * width
    each = np.concatenate([turns, np.repeat(turns[-1:], slots - len(turns), axis=0)])
    inwards = _direction(np.abs(each[:, 3]), runs)
    steps, apart = np.zeros_like(inwards), np.zeros(slots, dtype=np.bool_)
    mixed = _differ(each.reshape(-1, width, 4))
    packed = each
    if runs.layers:
        apart = _copied(plan)
        each, packed, steps = _layer_turns(each, inwards, apart, runs)
    first, second = (runs.p1d if runs.dim > d else 1 for d in (1, 2))  # nodes along the face
    turned = np.array([0, 1, first, first * second])
    strides = np.where(mixed[:, np.newaxis], turned, packed[::width])
    some = np.any(apart.reshape(-1, width), axis=1)
    words = mixed[:, np.newaxis], strides, inwards[::width, np.newaxis], some[:, np.newaxis]
    by_slot = each.reshape(len(mixed), -1), steps.reshape(len(mixed), -1)
    return np.concatenate([*words, *by_slot], axis=1)


def _differ(each: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for each batch (nbatch,) whose elements lie differently; (nbatch, width, 4) turns."""
    return np.asarray(np.any(each != each[:, :1], axis=(1, 2)))


def _direction(stride: NDArray[np.int64], runs: DofRuns) -> NDArray[np.int64]:
    """Direction (n,) of an element in which its nodes have a stride (n,)."""
    return np.searchsorted(runs.p1d ** np.arange(1, runs.dim), stride, side="right")


def _copied(plan: Plan) -> NDArray[np.bool_]:
    """True for each slot (nbatch * width,) whose run is a copy, or that belongs to no element."""
    owned = np.repeat(np.diff(plan.owned_start), np.diff(plan.first_batch))
    return np.asarray((plan.starts[:, 0] >= owned[:, np.newaxis]).reshape(-1))


def _layer_turns(
    turns: NDArray[np.int64],
    inwards: NDArray[np.int64],
    copied: NDArray[np.bool_],
    runs: DofRuns,
) -> tuple[NDArray[np.int64], ...]:
    """Turns (n, 4) of the layers that are read: in memory, and where they are read to.

    Nodes count from the first one of the layers. Copies have no other nodes between them, and
    neither have the lane vectors. The third result are the steps (n,) between blocks in memory.
    """
    p, dim, layers = runs.p1d, runs.dim, runs.layers
    dense = turns.copy()
    for d in range(dim):  # strides of directions above the one inwards are shorter
        below = p**d
        shorter = below // p * layers if d else below
        here = (np.abs(turns[:, 1:]) == below) & (d > inwards)[:, np.newaxis]
        dense[:, 1:] = np.where(here, np.sign(turns[:, 1:]) * shorter, dense[:, 1:])
    lengths = [p if dim > 1 else 1, p if dim > 2 else 1, layers]
    for each in (turns, dense):
        each[:, 0] = -sum(np.minimum(0, each[:, k + 1]) * (lengths[k] - 1) for k in range(3))
    in_memory = np.where(copied[:, np.newaxis], dense, turns)
    steps = np.where(copied, layers * p**inwards, p ** (inwards + 1))
    return in_memory, dense, steps


# Least count of stored numbers for several threads. Measured with two threads: 8,000 take the
# time of one thread, 16,000 three quarters of it, 60,000 two thirds. But beside a busy process,
# 27,000 take 1.6 times the time, and 64,000 1.2 times. The entries of an updated vector take less
# time each.
PARALLEL_EFFORT = 40_000
PARALLEL_ENTRIES = 80_000
DRIVER_PARTS: Parts = ("driver_loops", "driver"), {}, ""
"""Parts of the compiled driver, which runs all launches."""


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
    """Compiled work that the host runs chunk by chunk."""

    # addresses of the entry points ``sweep`` and ``combine`` and of their table; the number of
    # chunks
    row: tuple[int, int, int, int]
    work_bytes: int  # work space that a thread needs
    # count of stored numbers that the launch reads.  It decides if several threads are faster.
    effort: int


@final
class NoOp(HostLaunch):
    """Launch without work, for a rank that has none of a term's elements."""

    on_elements = True

    def __init__(self) -> None:
        self.row, self.work_bytes, self.effort = (0, 0, 0, 0), 0, 0


class ElementSweep(HostLaunch, ABC):
    """A kernel bound to plans: one rank's sweep through its elements."""

    on_elements = True
    # for each test function, the contributions to non-owned dofs that an application leaves
    left: Sequence[Contributions]
    table: NDArray[np.int64]  # addresses and sizes of the arrays that the kernel reads
    # for each field, the position in the table of the address of the ghosts' values
    ghosts_at: Sequence[int]
    with_ghosts: NDArray[np.bool_]  # (nchunks,): True for each chunk that touches ghosts
    groups: int  # number of tasks of a chunk

    def contributed(self, target: int) -> NDArray[np.int64]:
        """See `Launch.contributed`. Each chunk that touches a ghost has one contribution."""
        return self.left[target].target.contributed


@final
@dataclass(frozen=True, eq=False)
class SweepDofs:
    """Dofs of a field in x, and of a test function in y, for the vectors x and y of a sweep."""

    # source and target: plans of the field and of the test function, with the same chunks of
    # elements
    source: Plan
    target: Plan
    cleared: NDArray[np.int64]  # (n,): flat positions of the field that are read as zero
    # (n,): flat positions of the test function where the result is ``keep`` times the entry read
    constrained: NDArray[np.int64]
    keep: float  # zero where field and test function belong to different spaces
    # first_in and first_out: first entry of the field in x, and of the test function in y
    first_in: int = 0
    first_out: int = 0
    # turns_in and turns_out are (ne, 4): for kernels on faces, how the elements behind the faces
    # lie: the first node on the face in the element's order, then its neighbours along the face
    # and inwards, as differences
    turns_in: NDArray[np.int64] | None = None
    turns_out: NDArray[np.int64] | None = None


@final
class Sweep(ElementSweep):
    """A kernel bound to plans and to its quadrature data: one term of an operator.

    `functionals_of_batches` (nbatch, functionals, width): functionals of each element.  An
    application sets them.
    """

    groups = 1

    def __init__(
        self,
        kernel: SweepKernel,
        dofs: Sequence[SweepDofs],
        data: Data,
        filled: NDArray[Any] | None = None,
        effort: int = 0,
        num_elements: int = 0,
    ) -> None:
        self.num_elements = num_elements
        self.kernel, self.dofs, self.data = kernel, tuple(dofs), data
        plan = dofs[0].source
        shape = int(plan.first_batch[-1]), kernel.spec.functionals, kernel.width
        self.functionals_of_batches = aligned_array(shape, kernel.spec.dtype)
        self.left: list[Contributions] = []
        common = data_entries(data) | {
            layout.FUNCTIONALS: self.functionals_of_batches,
            layout.FILLED_AT: 0 if filled is None else filled,
            layout.BATCHES: kernel.module.addresses["batches"],
            layout.BLOCKS: len(dofs),
        }
        self._entries = [self._block(k, common) for k in range(len(dofs))]  # keeps arrays alive
        self.table = np.concatenate([address_table(entries) for entries in self._entries])
        self.ghosts_at = [k * layout.WORDS + layout.IN_GHOSTS for k in range(len(dofs))]
        plans = [plan for each in dofs for plan in (each.source, each.target)]
        module = kernel.chunk(any(plan.signed for plan in plans))
        addresses = (module.addresses["sweep"], module.addresses["combine"], self.table.ctypes.data)
        self.row = (*addresses, plan.nchunks)
        sizes_in = [each.source.local_size for each in dofs]
        sizes_out = [dofs[k].target.local_size for k in kernel.spec.blocks]
        needed = kernel.work_bytes(sizes_in, sizes_out)
        self.work_bytes = -(-needed // ALIGNMENT) * ALIGNMENT
        self.with_ghosts = np.any([plan.with_ghosts for plan in plans], axis=0)
        nbatch, rows, columns, width = data.points.shape
        self.effort = max(effort, nbatch * rows * max(columns, 1) * width)

    def _block(self, k: int, common: dict[int, Any]) -> dict[int, Any]:
        """Entries of block k of the table: field k, and its test function if it has one."""
        kernel, dofs, source = self.kernel, self.dofs[k], self.kernel.spec.sources[k]
        written = k in kernel.spec.blocks
        target = kernel.spec.targets[kernel.spec.blocks.index(k)] if written else source
        plan = dofs.target if written else _without_dofs(dofs.target)
        # padding elements, which are the last, write behind the last chunk's piece
        buffered = (len(plan.nonowned_dofs) + plan.runs.longest) * target.ncomp
        # each chunk writes its piece before any is read, so the piece lies near the chunk's thread
        buffer = np.empty(buffered, kernel.spec.dtype)
        if written:
            self.left.append(Contributions(plan, buffer, target.ncomp))
        cleared_start, cleared_at = dofs.source.local_positions(dofs.cleared, source.ncomp)
        start, positions = plan.local_positions(dofs.constrained, target.ncomp)
        size = kernel.spec.dtype.itemsize
        return plan_entries(dofs.source, plan, source.ncomp, target.ncomp) | {
            **common,
            layout.BUFFER: buffer,
            layout.CLEARED_START: cleared_start,
            layout.CLEARED: cleared_at,
            layout.CONSTRAINED_START: start,
            layout.CONSTRAINED: positions,
            layout.KEEP: np.array([dofs.keep], dtype=kernel.spec.dtype),
            layout.IN_ORIGIN: dofs.first_in * size,
            layout.OUT_ORIGIN: dofs.first_out * size,
            layout.IN_TURNS: turn_table(dofs.turns_in, dofs.source),
            layout.OUT_TURNS: turn_table(dofs.turns_out, dofs.target),
            layout.IN_HANGING: hanging_addresses(dofs.source),
            layout.OUT_HANGING: hanging_addresses(plan),
        }

    @property
    def functionals(self) -> NDArray[Any]:
        count = self.kernel.spec.functionals
        by_slot = self.functionals_of_batches.swapaxes(0, 1).reshape(count, -1)
        return by_slot[:, : self.num_elements]


def hanging_addresses(plan: Plan) -> NDArray[np.int64] | int:
    """Addresses of a plan's lists for ``batch/entities.py``; 0 if nothing hangs."""
    return 0 if plan.hanging is None else plan.hanging.addresses


def _without_dofs(plan: Plan) -> Plan:
    """Plan without dofs on the same chunks, for a field without a test function."""
    none, starts = np.zeros(0, dtype=np.int64), np.zeros_like(plan.first_batch)
    return replace(
        plan,
        owned_start=starts,
        nonowned_start=starts,
        nonowned_end=starts[:-1],
        nonowned_dofs=none,
        combine_start=starts,
        combine_dof=none,
        combine_slot=none,
        local_size=0,
    )


def data_entries(data: Data) -> dict[int, Any]:
    """Entries of a table for the data of a sweep."""
    return {
        layout.QDATA: data.points,
        layout.MODES: data.modes,
        layout.ELEMENT: data.elements,
        layout.CONSTANTS: data.constants,
    }


def plan_entries(source: Plan, target: Plan, ncomp_in: int, ncomp_out: int) -> dict[int, Any]:
    """Entries of a block of a sweep's table for its two plans. All other entries are zero."""
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
    }


def address_table(entries: dict[int, Any]) -> NDArray[np.int64]:
    """Table (n,) for compiled code, from {position: number or array}. Arrays become addresses."""
    words = [v.ctypes.data if isinstance(v, np.ndarray) else v for _, v in sorted(entries.items())]
    return np.array(words, dtype=np.int64)


class LaunchSum(CompiledOperator, ABC):
    """An operator on the host: a sum of launches with factors.

    `rows` (n, 8): for each launch its `HostLaunch.row`, its place, and the number of launches of
    its round from it on.
    """

    sweeps: tuple[HostLaunch, ...]
    alphas: NDArray[np.float64]  # (n,): factors of the launches

    def __init__(
        self, launches: Sequence[tuple[float, HostLaunch]], places: Places | None = None
    ) -> None:
        if places is None:
            places = [(0, 0, k > 0) for k in range(len(launches))]
        self.sweeps = tuple(launch for _, launch in launches)
        self.rounds = _rounds(self.sweeps, places)
        left = [each.stop - k for each in self.rounds for k in each]
        rows = [(*s.row, *p, n) for s, p, n in zip(self.sweeps, places, left, strict=True)]
        self.rows = np.array(rows, dtype=np.int64)
        self.alphas = np.array([a for a, _ in launches], dtype=np.float64)
        self.addresses = (self.rows.ctypes.data, self.alphas.ctypes.data, len(launches))
        self.work_bytes = max(s.work_bytes for s in self.sweeps)
        self._effort = sum(s.effort for s in self.sweeps)

    @property
    def shared(self) -> bool:
        """True if the launches read enough numbers for several threads to be faster."""
        return self._effort >= PARALLEL_EFFORT

    def threads(self) -> int:
        """Number of threads that an application uses: 1 unless several are faster.

        The result has the same bits for any number of threads.
        """
        return machine.get_threads() if self.shared else 1

    def workplace(self) -> tuple[int, int, int]:
        """Address of the work space, its bytes per thread, and the team that shares the work.

        Hold ``LAUNCH`` while compiled code uses them.
        """
        threads = self.threads()
        work = _work.address(self.work_bytes * threads)
        return work, self.work_bytes, machine.team_of(threads)

    def apply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        run = driver().apply
        with LAUNCH:
            run(*self.addresses, x.ctypes.data, y.ctypes.data, *self.workplace())


def _rounds(launches: Sequence[HostLaunch], places: Places) -> list[range]:
    """Group launches that go through the chunks together.

    A chunk of the second one only adds to the dofs that the same chunk of the first one sets, and
    finds them in a cache.
    """
    firsts = [0]
    for k in range(1, len(launches)):
        (_, before, _), (_, place, adds) = places[k - 1 : k + 1]
        if not (adds and place == before and _owns_same(*launches[k - 1 : k + 1])):
            firsts.append(k)
    return [range(*pair) for pair in itertools.pairwise([*firsts, len(launches)])]


def _owns_same(first: HostLaunch, second: HostLaunch) -> bool:
    """True if the chunks of two sweeps write to the same dofs, which each chunk owns.

    False for reproducible kernels. Ranks add all contributions of a sweep before the next sweep.
    """
    if not (isinstance(first, Sweep) and isinstance(second, Sweep)) or first.kernel.spec.any_width:
        return False
    written = [{k: each.dofs[k] for k in each.kernel.spec.blocks} for each in (first, second)]
    owned = [
        {(dofs.first_out, dofs.target.owned_start.tobytes()) for dofs in sweep.values()}
        for sweep in written
    ]
    all_owned = all(d.target.owned_start[-1] == d.target.ndofs for d in written[0].values())
    return bool(written[0]) and all_owned and owned[0] == owned[1]


@final
class Application:
    """One application of an operator, run launch by launch and on some chunks at a time.

    Hold ``LAUNCH`` as long as the application lasts.
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

    def _row(self, k: int) -> tuple[int, int]:
        rows, alphas = self._rows, self._alphas
        return rows.ctypes.data + k * rows.strides[0], alphas.ctypes.data + k * alphas.itemsize

    def some(self, k: int, order: NDArray[np.int64], begin: int, end: int) -> None:
        """Run a round on the chunks order[begin:end], where ``order`` is (nchunks,) int64.

        Its first launch is k.
        """
        if begin < end:
            work = self._work, self._work_bytes, self._team
            listed = order.ctypes.data + begin * order.itemsize, end - begin
            self._driver.some(*self._row(k), self.x, self.y, *work, *listed)

    def combined(self, k: int) -> None:
        """Finish the round from launch k on: add the contributions in its buffers to y."""
        self._driver.combined(*self._row(k), self.x, self.y, self._work, self._team)


def chunk_order(launches: Sequence[HostLaunch]) -> tuple[NDArray[np.int64], int]:
    """Order (ntasks,) of a round's tasks, first tasks without ghosts, and their number."""
    first = launches[0]
    if not isinstance(first, ElementSweep):
        return np.arange(first.row[3]), first.row[3]
    sweeps = [each for each in launches if isinstance(each, ElementSweep)]
    ghostly = np.repeat(np.any([each.with_ghosts for each in sweeps], axis=0), first.groups)
    return np.argsort(ghostly, kind="stable"), int(np.count_nonzero(~ghostly))


@cache  # every application needs it: do not read the sources each time
def driver() -> CompiledKernel:
    """Compiled driver, which applies sums of launches."""
    return specialize(*DRIVER_PARTS)


@cache
def driver_address() -> int:
    """Address at which compiled code calls the driver."""
    return driver().addresses["apply"]


@cache
def _pieces() -> CompiledKernel:
    """Compiled driver that runs one launch on some of its chunks."""
    return specialize(("driver_loops", "driver_pieces"), {})
