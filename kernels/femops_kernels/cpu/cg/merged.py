"""Sweeps with the vector updates of conjugate gradients in them: tables, copies of shared dofs."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.compiled import DistributedOperator
from femops_kernels.cpu.exchange import Forward
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import (
    Application,
    LaunchSum,
    Sweep,
    address_table,
    chunk_order,
)
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.simd.lanes import Lane
from femops_kernels.skeletons.cg import merged_table as layout
from femops_kernels.skeletons.chunk import table as sweep_layout

NONE = np.zeros(0, dtype=np.int64)


def mergeable(launches: LaunchSum) -> bool:
    """True if it is one sweep over the whole of vectors that are alike."""
    sweep = launches.sweeps[0]
    return (
        len(launches.sweeps) == 1
        and isinstance(sweep, Sweep)
        and int(sweep.target.owned_start[-1]) == sweep.target.ndofs
        and np.array_equal(sweep.source.owned_start, sweep.target.owned_start)
        and np.array_equal(sweep.source.nonowned_dofs, sweep.target.nonowned_dofs)
        and np.array_equal(sweep.cleared, sweep.constrained)
    )


@final
class MergedPass:
    """Tables and vectors that ``skeletons/cg/merged.py`` needs for one solve.

    Parameters
    ----------
    launches : LaunchSum
        A mergeable one.
    vectors : (4, n + ntail) array
        x, r, p and A p; the tail is used of p alone.
    n : int
        Entries of a vector of the operator.
    inverse : (n,) array or None
        Diagonal preconditioner.
    sent : (k,) int64, optional
        Dofs whose p other ranks need: these are in the tail too.

    Attributes
    ----------
    rows, alphas, todo, sums : arrays
    addresses : (int, int, int)
        Of the first two, and how many rows there are.
    scale : float
        See ``skeletons/cg_merged.py``; the last row of the sums is that of ``merged_receive.py``.
    table : array
        Of the operator's sweep in the pass.
    shared : (m,) int64
        Dofs in the tail, ascending.
    """

    def __init__(
        self,
        launches: LaunchSum,
        vectors: NDArray[Any],
        n: int,
        inverse: NDArray[Any] | None,
        sent: NDArray[np.int64] = NONE,
    ) -> None:
        sweep = launches.sweeps[0]
        assert isinstance(sweep, Sweep)
        plan, kernel = sweep.target, sweep.kernel
        parts = pass_parts(kernel.width, kernel.dtype, use_inverse=inverse is not None)
        module = specialize(*parts)
        self.alphas, self.scale = np.ones(2), float(launches.alphas[0])
        self.todo = np.zeros(5)
        self.sums = np.zeros((2 * plan.nchunks + 1, layout.NSUMS))
        self.shared = shared_dofs(plan, sent)
        self._dtype, (x, r, p, v) = vectors.dtype, vectors
        self.table, self._kernel_arrays = _kernel_table(sweep, n, self.shared, module, r)
        self._entries = _piece_entries(plan, self.shared) | _constrained_entries(sweep, self.shared)
        self._entries |= {
            layout.KERNEL: int(sweep.row[0]),
            layout.KERNEL_TABLE: self.table,
            layout.BUFFER: int(sweep.table[sweep_layout.BUFFER]),
            layout.COEFFICIENTS: self.todo,
            layout.X: x,
            layout.R: r,
            layout.P: p,
            layout.V: v,
            layout.M: r if inverse is None else inverse,  # read, but not used without one
            layout.SUMS: self.sums,
            layout.TAIL: n,
        }
        self._table = address_table(self._entries)
        self.table[sweep_layout.BEFORE_TABLE] = self._table.ctypes.data
        self.rows = _rows(module, self._table.ctypes.data, plan.nchunks)
        self.addresses = self.rows.ctypes.data, self.alphas.ctypes.data, len(self.rows)

    def receive(self, values: NDArray[Any], positions: NDArray[np.int64]) -> None:
        """Add what other ranks have sent."""
        given = values.ctypes.data, positions.ctypes.data, len(positions)
        _receiver(self._dtype).receive.ctypes(self._table.ctypes.data, *given, 0, 0.0, 0.0)


def shared_dofs(plan: Plan, sent: NDArray[np.int64] = NONE) -> NDArray[np.int64]:
    """Dofs that chunks share, or that other ranks need; ascending."""
    return np.union1d(plan.combine_dof, sent)


def _kernel_table(
    sweep: Sweep, n: int, shared: NDArray[np.int64], module: ModuleType, r: NDArray[Any]
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
    """The operator's table as a pass needs it, and arrays that it tells the addresses of."""
    plan = sweep.target
    # a chunk reads non-owned dofs from the tail, behind which ghosts are counted
    tail, behind = n // sweep.kernel.target.ncomp, len(shared) - plan.ndofs
    at = np.searchsorted(shared, plan.nonowned_dofs)
    is_ghost = plan.nonowned_dofs >= plan.ndofs
    nonowned = tail + np.where(is_ghost, plan.nonowned_dofs + behind, at)
    nothing = np.zeros(plan.nchunks + 1, dtype=np.int64)
    table = sweep.table.copy()
    table[sweep_layout.IN_NONOWNED_DOFS] = nonowned.ctypes.data
    table[sweep_layout.IN_GHOSTS_FROM] = tail + len(shared)
    table[sweep_layout.CLEARED_START] = nothing.ctypes.data  # they are zero in p and in the tail
    table[sweep_layout.BEFORE] = module.before.address
    table[sweep_layout.BEFORE_READS] = r.ctypes.data
    return table, (nonowned, nothing)


def _piece_entries(plan: Plan, shared: NDArray[np.int64]) -> dict[int, Any]:
    """Entries of the table: the dofs that batches meet first, and which of these are shared."""
    slots = np.append(np.searchsorted(plan.combine_dof, shared), len(plan.combine_dof))
    return {
        layout.FIRST_BATCH: plan.first_batch,
        layout.BATCH_START: plan.batch_start,
        layout.SHARED_START: np.searchsorted(shared, plan.owned_start),
        layout.SHARED_DOF: shared,
        layout.SLOT_START: slots,
        layout.SLOT: plan.combine_slot,
        layout.CHUNKS: plan.nchunks,
    }


def _constrained_entries(sweep: Sweep, shared: NDArray[np.int64]) -> dict[int, Any]:
    """Entries of the table for constrained dofs, which the operator multiplies by one number."""
    plan, ncomp, constrained = sweep.target, sweep.kernel.target.ncomp, sweep.constrained
    in_tail = np.isin(np.add.outer(shared * ncomp, np.arange(ncomp)), constrained)
    positions = np.flatnonzero(in_tail)
    return {
        layout.NCOMP: ncomp,
        layout.CONSTRAINED_START: np.searchsorted(constrained, plan.batch_start * ncomp),
        layout.CONSTRAINED: constrained,
        layout.KEPT: np.zeros(len(constrained), dtype=sweep.kernel.dtype),
        layout.KEEP: int(sweep.table[sweep_layout.KEEP]),
        layout.TAIL_CONSTRAINED_START: np.searchsorted(
            positions, np.searchsorted(shared, plan.owned_start) * ncomp
        ),
        layout.TAIL_CONSTRAINED: positions,
    }


def pass_parts(
    width: int, dtype: np.dtype[Any], *, use_inverse: bool
) -> tuple[tuple[str, ...], dict[str, object]]:
    """Skeletons and constants of the compiled pass."""
    constants = {
        "LANE": Lane(width, dtype),
        "LANE_WIDTH": width,
        "REAL_BYTES": dtype.itemsize,
        "USE_INVERSE": use_inverse,
    }
    return ("merged_table", "merged_sums", "merged"), constants


@cache
def _receiver(dtype: np.dtype[Any]) -> ModuleType:
    """Compiled code that adds what other ranks have sent."""
    constants = {"LANE": Lane(2, dtype)}
    return specialize(("merged_table", "merged_sums", "merged_receive"), constants)


def _rows(module: ModuleType, table: int, nchunks: int) -> NDArray[np.int64]:
    """The two launches of a pass: of the tails, and of the chunks."""
    launches = ((module.tail, module.nothing), (module.sweep, module.combine))
    rows = [(one.address, two.address, table, nchunks, 0, 0, 0) for one, two in launches]
    return np.array(rows, dtype=np.int64)


def owned_pieces(launches: LaunchSum) -> NDArray[np.int64]:
    """Where in a vector the piece of each chunk begins, and the end."""
    sweep = launches.sweeps[0]
    assert isinstance(sweep, Sweep)
    return sweep.target.owned_start * sweep.kernel.target.ncomp


def tail_length(launches: LaunchSum, sent: NDArray[np.int64] = NONE) -> int:
    """Number of entries of a vector that chunks share, or that other ranks need."""
    sweep = launches.sweeps[0]
    assert isinstance(sweep, Sweep)
    return len(shared_dofs(sweep.target, sent)) * sweep.kernel.target.ncomp


@final
class RankPass:
    """One pass of ``skeletons/merged.py``, while messages are on their way.

    Parameters
    ----------
    operator : DistributedOperator
        A mergeable one.
    launches : LaunchSum
        What this rank has of it.
    vectors, n, inverse
        See `MergedPass`.
    """

    def __init__(
        self,
        operator: DistributedOperator,
        launches: LaunchSum,
        vectors: NDArray[Any],
        n: int,
        inverse: NDArray[Any] | None,
    ) -> None:
        sweep = launches.sweeps[0]
        assert isinstance(sweep, Sweep)
        forward, self._reverse = operator.forwards[0][0], operator.reverses[0][0]
        self._sweep, self._operator, self._launches = sweep, operator, launches
        self._merged = one = MergedPass(launches, vectors, n, inverse, sent_dofs(operator))
        self.todo, self.sums, self.scale = one.todo, one.sums, one.scale
        ncomp = sweep.kernel.source.ncomp
        dof, component = np.divmod(forward.positions, ncomp)
        tail = n + np.searchsorted(one.shared, dof) * ncomp + component
        self._forward = Forward(forward.channel, np.where(forward.positions < 0, -1, tail))
        self._p, self._order = vectors[2], chunk_order(sweep)

    def run(self) -> None:
        """Updates, operator and sums; ``todo`` says what, ``sums`` has what came of it."""
        one, (order, plain) = self._merged, self._order
        half = plain // 2 if self._operator.overlap else 0
        with LAUNCH:
            run = Application(self._launches, 0, 0, one.rows, one.alphas)
            run.some(0, order, 0, len(order))
            self._forward.start(self._p.ctypes.data)
            run.some(1, order, 0, half)
            self._forward.finish()
            one.table[sweep_layout.IN_GHOSTS] = self._forward.ghosts
            run.some(1, order, plain, len(order))
            self._reverse.collect(self._sweep, more=False)
            self._reverse.start()
            run.some(1, order, half, plain)
            run.combined(1)
            self._reverse.channel.finish()
            one.receive(self._reverse.channel.incoming, self._reverse.positions)


def sent_dofs(operator: DistributedOperator) -> NDArray[np.int64]:
    """Dofs whose values other ranks need, of an operator of one sweep."""
    (forward, _), (sweep,) = operator.forwards[0], operator.sweeps
    at = forward.positions
    return np.unique(at[at >= 0] // sweep.kernel.source.ncomp)
