"""Conjugate gradients on the host: tables and calls of compiled loops, merged or not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.compiled import (
    CompiledOperator,
    DistributedOperator,
    Instruction,
    Reduction,
    Solve,
    SolveGroup,
    between_messages,
    segment_edges,
)
from femops_kernels.cpu import machine
from femops_kernels.cpu.exchange import Forward
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sequence import HostSequence
from femops_kernels.cpu.sweep import (
    Application,
    LaunchSum,
    Sweep,
    address_table,
    chunk_order,
    driver_address,
)
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.simd.lanes import WIDEST, Lane
from femops_kernels.skeletons.cg import cg_state as at
from femops_kernels.skeletons.cg import cg_table as layout
from femops_kernels.skeletons.cg import merged_table as merged_layout
from femops_kernels.skeletons.cg.cg_state import NSUMS
from femops_kernels.skeletons.chunk import table as sweep_layout

# Measured with a cache of 32 MB: iterations that ask take 2 to 4 % longer at 4 MB of vectors, and 0
# to 5 % less at 12 MB, 15 % less at 25 MB, 10 to 15 % less at 57 MB.
_CACHED_PART = 0.25


def launches_of(operator: CompiledOperator) -> LaunchSum:
    """The launches of an operator on the host; of a distributed one, this rank's launches."""
    local = operator.local if isinstance(operator, DistributedOperator) else operator
    assert isinstance(local, LaunchSum)
    return local


def mergeable(launches: LaunchSum) -> bool:
    """True if the launches are one sweep, and its x and y have the same dofs and chunks."""
    sweep = launches.sweeps[0]
    if len(launches.sweeps) > 1 or not isinstance(sweep, Sweep) or len(sweep.dofs) > 1:
        return False
    dofs = sweep.dofs[0]
    return (
        int(dofs.target.owned_start[-1]) == dofs.target.ndofs
        and np.array_equal(dofs.source.owned_start, dofs.target.owned_start)
        and np.array_equal(dofs.source.nonowned_dofs, dofs.target.nonowned_dofs)
        and np.array_equal(dofs.cleared, dofs.constrained)
        and not dofs.source.signed
    )


@final
class MergedSweep:
    """Tables and vectors of merged sweeps; see ``skeletons/cg/merged.py``.

    The vector p has a tail: a copy of the dofs that several chunks or ranks share.

    `vectors` (4, n + ntail): x, r, p and v.  Only p uses the tail. `sums` (m, 7): partial inner
    products.  A row for each chunk, a row for each chunk's combination, and a last row for the
    contributions of other ranks.

    Shapes: `inverse` (n,).
    """

    def __init__(
        self,
        operator: CompiledOperator,
        n: int,
        inverse: NDArray[Any] | None,
        state: NDArray[np.float64],
    ) -> None:
        self._operator, self._launches = operator, launches_of(operator)
        self._sweep = sweep = self._launches.sweeps[0]
        assert isinstance(sweep, Sweep)
        plan, kernel = sweep.dofs[0].target, sweep.kernel
        ncomp, dtype, given = kernel.spec.target.ncomp, kernel.spec.dtype, inverse is not None
        shared = np.union1d(plan.combine_dof, _sent_dofs(operator))
        length, pieces = n + len(shared) * ncomp, plan.owned_start * ncomp
        self.vectors = placed_array((4, length), dtype, pieces, axis=1)
        nbytes = self.vectors.nbytes
        parts = merged_parts(kernel.width, dtype, use_inverse=given, nbytes=nbytes)
        self._module = specialize(*parts)
        self.sums = np.zeros((2 * plan.nchunks + 1, NSUMS))
        x, r, p, v = self.vectors
        self._kernel_table, *self._kept = _kernel_table(sweep, n, shared, self._module, r)
        self._entries = _piece_entries(plan, shared) | _constrained_entries(sweep, shared)
        self._entries |= {
            merged_layout.KERNEL: int(sweep.row[0]),
            merged_layout.KERNEL_TABLE: self._kernel_table,
            merged_layout.BUFFER: int(sweep.table[sweep_layout.BUFFER]),
            merged_layout.STATE: state,
            **dict(
                zip(
                    (merged_layout.X, merged_layout.R, merged_layout.P, merged_layout.V),
                    (x, r, p, v),
                    strict=True,
                )
            ),
            merged_layout.M: r if inverse is None else inverse,  # read, but not used without one
            merged_layout.SUMS: self.sums,
            merged_layout.TAIL: n,
        }
        self._table = address_table(self._entries)
        self._kernel_table[sweep_layout.BEFORE_TABLE] = self._table.ctypes.data
        self._rows = _rows(self._module, self._table.ctypes.data, plan.nchunks)
        self._alphas, self._order = np.ones(2), chunk_order([sweep])
        self.addresses = self._rows.ctypes.data, self._alphas.ctypes.data, len(self._rows)
        if isinstance(operator, DistributedOperator):
            self._forward = _forward_of_tails(operator, n, shared, ncomp)

    def run(self) -> None:
        """Run the merged sweep on one of many ranks, while messages are on their way."""
        operator, sweep, (order, plain) = self._operator, self._sweep, self._order
        assert isinstance(operator, DistributedOperator)
        assert isinstance(sweep, Sweep)
        forward, reverse = self._forward, operator.reverses[0][0]
        half = plain // 2 if operator.overlap else 0
        with LAUNCH:
            run = Application(self._launches, 0, 0, self._rows, self._alphas)
            run.some(0, order, 0, len(order))
            forward.start(self.vectors[2].ctypes.data)
            run.some(1, order, 0, half)
            forward.finish()
            self._kernel_table[sweep_layout.IN_GHOSTS] = forward.ghosts
            run.some(1, order, plain, len(order))
            reverse.collect(sweep.left[0], more=False)
            reverse.start()
            run.some(1, order, half, plain)
            run.combined(1)
            reverse.channel.finish()
            self._receive(reverse.channel.incoming, reverse.positions)

    def _receive(self, values: NDArray[Any], positions: NDArray[np.int64]) -> None:
        """Add the contributions from other ranks at positions of v, and update the sums."""
        given = values.ctypes.data, positions.ctypes.data, len(positions)
        self._module.receive(self._table.ctypes.data, *given, 0, 0.0, 0.0)


def _forward_of_tails(
    operator: DistributedOperator, n: int, shared: NDArray[np.int64], ncomp: int
) -> Forward:
    """The operator's forward exchange, changed to read from the tail of p."""
    forward, _ = operator.forwards[0]
    dof, component = np.divmod(forward.positions, ncomp)
    tail = n + np.searchsorted(shared, dof) * ncomp + component
    return Forward(forward.channel, np.where(forward.positions < 0, -1, tail))


def _sent_dofs(operator: CompiledOperator) -> NDArray[np.int64]:
    """Dofs of this rank that the operator's only sweep sends to other ranks."""
    if not isinstance(operator, DistributedOperator):
        return np.zeros(0, dtype=np.int64)
    (forward, _), (sweep,) = operator.forwards[0], operator.sweeps
    at = forward.positions
    return np.unique(at[at >= 0] // sweep.kernel.spec.source.ncomp)


def _kernel_table(
    sweep: Sweep, n: int, shared: NDArray[np.int64], module: CompiledKernel, r: NDArray[Any]
) -> tuple[NDArray[np.int64], ...]:
    """Copy of the sweep's table for merged sweeps, and arrays that must live as long as it."""
    plan = sweep.dofs[0].target
    # a chunk reads non-owned dofs from the tail, behind which ghosts are counted
    tail, behind = n // sweep.kernel.spec.target.ncomp, len(shared) - plan.ndofs
    at = np.searchsorted(shared, plan.nonowned_dofs)
    is_ghost = plan.nonowned_dofs >= plan.ndofs
    nonowned = tail + np.where(is_ghost, plan.nonowned_dofs + behind, at)
    nothing = np.zeros(plan.nchunks + 1, dtype=np.int64)
    table = sweep.table.copy()
    table[sweep_layout.IN_NONOWNED_DOFS] = nonowned.ctypes.data
    table[sweep_layout.IN_GHOSTS_FROM] = tail + len(shared)
    table[sweep_layout.CLEARED_START] = nothing.ctypes.data  # p and the tail are zero there
    table[sweep_layout.BEFORE] = module.addresses["before"]
    table[sweep_layout.BEFORE_READS] = r.ctypes.data
    return table, nonowned, nothing


def _piece_entries(plan: Plan, shared: NDArray[np.int64]) -> dict[int, Any]:
    """Entries of the table for the dofs of each batch, and for the shared ones of each chunk."""
    slots = np.append(np.searchsorted(plan.combine_dof, shared), len(plan.combine_dof))
    return {
        merged_layout.FIRST_BATCH: plan.first_batch,
        merged_layout.BATCH_START: plan.batch_start,
        merged_layout.SHARED_START: np.searchsorted(shared, plan.owned_start),
        merged_layout.SHARED_DOF: shared,
        merged_layout.SLOT_START: slots,
        merged_layout.SLOT: plan.combine_slot,
        merged_layout.CHUNKS: plan.nchunks,
    }


def _constrained_entries(sweep: Sweep, shared: NDArray[np.int64]) -> dict[int, Any]:
    """Entries of the table for constrained dofs. The operator multiplies them by ``KEEP``."""
    plan, constrained = sweep.dofs[0].target, sweep.dofs[0].constrained
    ncomp = sweep.kernel.spec.target.ncomp
    in_tail = np.isin(np.add.outer(shared * ncomp, np.arange(ncomp)), constrained)
    positions = np.flatnonzero(in_tail)
    return {
        merged_layout.NCOMP: ncomp,
        merged_layout.CONSTRAINED_START: np.searchsorted(constrained, plan.batch_start * ncomp),
        merged_layout.CONSTRAINED: constrained,
        merged_layout.KEPT: np.zeros(len(constrained), dtype=sweep.kernel.spec.dtype),
        merged_layout.KEEP: int(sweep.table[sweep_layout.KEEP]),
        merged_layout.TAIL_CONSTRAINED_START: np.searchsorted(
            positions, np.searchsorted(shared, plan.owned_start) * ncomp
        ),
        merged_layout.TAIL_CONSTRAINED: positions,
    }


def merged_parts(
    width: int, dtype: np.dtype[Any], *, use_inverse: bool, nbytes: int = 0
) -> tuple[tuple[str, ...], dict[str, object]]:
    """Skeletons and constants of a compiled merged sweep.

    It asks memory for the dofs that chunks share if x, r, p and v, of ``nbytes`` bytes in all, need
    more than a part of the largest cache.
    """
    constants = {
        "LANE": Lane(width, dtype),
        "LANE_WIDTH": width,
        "REAL_BYTES": dtype.itemsize,
        "USE_INVERSE": use_inverse,
        "ASK": nbytes > _CACHED_PART * _cache_bytes(),
    }
    return ("cg_state", "merged_table", "merged"), constants


@cache
def _cache_bytes() -> int:
    """Bytes of the largest cache; without end where Linux does not tell."""
    return machine.cache_bytes() or 2**62


def _rows(module: CompiledKernel, table: int, nchunks: int) -> NDArray[np.int64]:
    """Rows (2, 8) of the launches of a merged sweep: first fill the tail of p, then sweep."""
    launches, at = (("tail", "nothing"), ("sweep", "combine")), module.addresses
    rows = [(at[one], at[two], table, nchunks, 0, 0, 0, 1) for one, two in launches]
    return np.array(rows, dtype=np.int64)


@final
class ConjugateGradients(Solve):
    """Conjugate gradients on the host; see ``skeletons/cg``.

    On one rank the whole iteration is one compiled loop.  On many ranks each action is compiled,
    and Python sums the inner products between the actions.
    """

    def __init__(
        self,
        operator: CompiledOperator,
        b: NDArray[Any],
        x: NDArray[Any] | None,
        inverse: NDArray[Any] | None,
        merged: bool = False,
        sums: Reduction | None = None,
        natural: bool = False,
    ) -> None:
        self._operator, self._launches = operator, launches_of(operator)
        scale = float(self._launches.alphas[0]) if merged else 1.0
        super().__init__(np.zeros(at.STATE_SIZE), natural=natural, merged=merged, scale=scale)
        self._reduce = sums if sums is not None and sums.many else None
        one = MergedSweep(operator, len(b), inverse, self._state) if merged else None
        self._merged_sweep = one
        self._vectors = placed_array((4, len(b)), b.dtype, axis=1) if one is None else one.vectors
        self._sums = np.full((1, at.NSUMS), np.nan) if one is None else one.sums
        self._whole = [vector[: len(b)] for vector in self._vectors]
        skeletons = ("cg", "cg_alone") if self._reduce is None else ("cg_ranks",)
        self._module = specialize(*_parts(b.dtype, *skeletons))
        edges = segment_edges(len(b)) if sums is None else sums.edges
        self._partial = np.zeros((2, len(edges) - 1))
        self._entries = self._made_entries(b, inverse, edges)
        self._table = address_table(self._entries)
        self._address = self._table.ctypes.data
        self._group: Group | None = None
        self.restart(b, x)

    def _made_entries(
        self, b: NDArray[Any], inverse: NDArray[Any] | None, edges: NDArray[np.int64]
    ) -> dict[int, int | NDArray[Any]]:
        """Entries of the table, see ``cg_table.py``."""
        rows = (self._merged_sweep or self._launches).addresses
        return dict.fromkeys(range(layout.TABLE_SIZE), 0) | {
            **dict(zip((layout.ROWS, layout.ALPHAS, layout.COUNT), rows, strict=True)),
            layout.DRIVER: driver_address(),
            **dict(zip((layout.X, layout.R, layout.P, layout.V), self._whole, strict=True)),
            layout.INVERSE: b if inverse is None else inverse,  # read only if it is used
            layout.USE_INVERSE: int(inverse is not None),
            layout.EDGES: edges,
            layout.SEGMENTS: len(edges) - 1,
            layout.PARTIAL: self._partial[0],
            layout.SECOND: self._partial[1],
            layout.STATE: self._state,
            layout.SUMS: self._sums,
            layout.MORE_ROWS: len(self._sums) - 1,
        }

    def restart(self, b: NDArray[Any], x: NDArray[Any] | None) -> None:
        self._b, self._table[layout.B] = b, b.ctypes.data
        self._renew(guessed=x is not None)
        if self.merged:
            self._whole[3][:] = 0.0  # the first sweep multiplies v by zero: it must be finite
        if x is not None:
            self.x[:] = x
            self._operator.apply(self.x, self._whole[1])

    def _set(self) -> int:
        """Put the work space and the team into the table, and return the table's address.

        Hold ``LAUNCH`` while compiled code uses the table.
        """
        self._table[layout.WORK : layout.DRIVER] = self._launches.workplace()
        return self._address

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        self._state[[at.GOAL, at.LIMIT]] = tolerance, limit
        if self._reduce is not None:
            between_messages(self._state, steps, show, partial(self._act, self._reduce))
            return
        with LAUNCH:
            self._module.iterate(self._set(), steps, show)

    def _act(self, reduce: Reduction, action: int) -> NDArray[np.float64]:
        """Do an action and return its sums; see `between_messages`."""
        if action == at.SWEEP and self._merged_sweep is not None:
            self._merged_sweep.run()
            return reduce(self._sums.T)
        if action == at.SWEEP:
            _, _, p, v = self._whole
            self._operator.apply(p, v)
        with LAUNCH:
            self._module.update(self._set(), action)
        if action == at.TURN:
            return np.zeros(0)
        return reduce(self._partial[:1] if action == at.SWEEP else self._partial)

    def group(self, others: Sequence[Solve]) -> SolveGroup | None:
        """See `Solve.group`. None if threads or ranks share the work of one of the solves."""
        solves = [one for one in (self, *others) if isinstance(one, ConjugateGradients)]
        if len(solves) <= len(others) or any(one._shared() for one in solves):
            return None
        known = self._group
        if known is None or known.solves != solves or any(one._group != known for one in solves):
            known = Group(solves) if _alike_and_apart(solves) else None
        return known

    def _shared(self) -> bool:
        """True if threads or ranks share the work, or sweeps are merged."""
        alone = self._merged_sweep is None and self._reduce is None
        return not alone or self._launches.threads() > 1


def _alike_and_apart(solves: Sequence[ConjugateGradients]) -> bool:
    """True if the solves have the same dtype, and no two solves share a sweep."""
    sweeps = [sweep for one in solves for sweep in set(one._launches.sweeps)]
    return len(set(sweeps)) == len(sweeps) and len({one._b.dtype for one in solves}) == 1


@final
class Group(SolveGroup):
    """Solves on the host that run at once, each on one thread at a time; ``cg_together.py``."""

    def __init__(self, solves: list[ConjugateGradients]) -> None:
        self.solves = solves
        self._states = np.stack([one._state for one in solves])
        self._tables = np.stack([one._table for one in solves])
        for one, state, table in zip(solves, self._states, self._tables, strict=True):
            one._state, one._table, one._group = state, table, self
            one._address, table[layout.STATE] = table.ctypes.data, state.ctypes.data
        self._addresses = np.array([one._address for one in solves])
        self._fresh = self._states.copy()
        self._fresh[:, : at.GOAL] = 0.0
        self._fresh[:, at.ITERATIONS], self._fresh[:, at.RHO] = -1.0, np.inf
        self._rights = np.zeros(len(solves), dtype=np.int64)
        given = self._fresh, self._rights, 0, np.zeros(1)
        self._table, instruction = self._instruction(*given)
        self._alone = HostSequence([instruction])

    def _instruction(
        self,
        fresh: NDArray[np.float64],
        rights: NDArray[np.int64],
        limit: int,
        done: NDArray[np.float64],
        *kept: Any,
    ) -> tuple[NDArray[np.int64], Instruction]:
        """Table of the solves, see ``cg_table.py``, and the instruction that runs them."""
        entries = {
            layout.SOLVES: len(self.solves),
            layout.TABLES: self._addresses,
            layout.STATES: self._states,
            layout.FRESH_STATES: fresh,
            layout.RIGHTS: rights,
            layout.MOST: limit,
            layout.DONE: done,
        }
        table, address = address_table(entries), _together(self.solves[0]._b.dtype)
        needs = max(one._launches.work_bytes for one in self.solves)
        everything = self, table, entries, kept
        words = (table.ctypes.data,)
        return table, Instruction(address, words, needs, everything, self._whole)

    def _whole(self) -> bool:
        """True if all solves still belong to this group, and each solve runs on one thread."""
        return all(one._group is self and not one._shared() for one in self.solves)

    def restart(
        self, rights: Sequence[NDArray[Any]], relative: float, least: Sequence[float]
    ) -> None:
        for one, right in zip(self.solves, rights, strict=True):
            one._b = right
        self._rights[:] = [right.ctypes.data for right in rights]
        self._aim(self._fresh, relative, least)

    @staticmethod
    def _aim(fresh: NDArray[np.float64], relative: float, least: Sequence[float]) -> None:
        """Set the goals of the solves. If relative is not 0, the first residual sets the goal."""
        fresh[:, at.RELATIVE], fresh[:, at.LEAST], fresh[:, at.GOAL] = relative, least, least

    def advance(self, limit: int, tolerances: Sequence[float] | None = None) -> None:
        if tolerances is not None:
            self._states[:, at.GOAL], self._states[:, at.RELATIVE] = tolerances, 0.0
            self._rights[:] = [one._b.ctypes.data for one in self.solves]
        self._fresh[:, at.LIMIT] = self._states[:, at.LIMIT] = self._table[layout.MOST] = limit
        self._table[layout.FRESH_STATES] = self._fresh.ctypes.data if tolerances is None else 0
        self._alone.run()

    def instruction(
        self,
        rights: Sequence[NDArray[Any]],
        relative: float,
        least: Sequence[float],
        limit: int,
        done: NDArray[np.float64],
    ) -> Instruction:
        fresh = self._fresh.copy()
        fresh[:, at.LIMIT] = limit
        self._aim(fresh, relative, least)
        addresses = np.array([right.ctypes.data for right in rights])
        _, instruction = self._instruction(fresh, addresses, limit, done, list(rights))
        return instruction


def _parts(dtype: np.dtype[Any], *skeletons: str) -> tuple[tuple[str, ...], dict[str, object]]:
    """Skeletons and constants for the compiled code of a solve."""
    common = "cg_state", "cg_table", "decisions", "cg_vectors"
    lane = Lane(WIDEST, dtype)  # on every machine, so that sums have the same bits
    constants = {"LANE": lane, "LANE_WIDTH": WIDEST, "REAL_BYTES": dtype.itemsize}
    return (*common, *skeletons), constants


@cache
def _together(dtype: np.dtype[Any]) -> int:
    """Address of the compiled function that runs several solves at once."""
    module = specialize(*_parts(dtype, "cg", "sequence_context", "cg_together"))
    return module.addresses["solve_together"]


def solve_parts(width: int, dtype: np.dtype[Any]) -> list[Parts]:
    """Parts of the compiled code that preconditioned solves use, whatever their operator."""
    ahead = merged_parts(width, dtype, use_inverse=True), _parts(dtype, "cg", "cg_alone")
    return [(*parts, "") for parts in ahead]
