"""Merged sweeps: sweeps that also do the vector updates of conjugate gradients."""

from __future__ import annotations

from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.compiled import CompiledOperator, DistributedOperator
from femops_kernels.cpu import machine
from femops_kernels.cpu.exchange import Forward
from femops_kernels.cpu.first_touch import placed_array
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
            layout.KERNEL: int(sweep.row[0]),
            layout.KERNEL_TABLE: self._kernel_table,
            layout.BUFFER: int(sweep.table[sweep_layout.BUFFER]),
            layout.STATE: state,
            **dict(zip((layout.X, layout.R, layout.P, layout.V), (x, r, p, v), strict=True)),
            layout.M: r if inverse is None else inverse,  # read, but not used without one
            layout.SUMS: self.sums,
            layout.TAIL: n,
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
        layout.FIRST_BATCH: plan.first_batch,
        layout.BATCH_START: plan.batch_start,
        layout.SHARED_START: np.searchsorted(shared, plan.owned_start),
        layout.SHARED_DOF: shared,
        layout.SLOT_START: slots,
        layout.SLOT: plan.combine_slot,
        layout.CHUNKS: plan.nchunks,
    }


def _constrained_entries(sweep: Sweep, shared: NDArray[np.int64]) -> dict[int, Any]:
    """Entries of the table for constrained dofs. The operator multiplies them by ``KEEP``."""
    plan, constrained = sweep.dofs[0].target, sweep.dofs[0].constrained
    ncomp = sweep.kernel.spec.target.ncomp
    in_tail = np.isin(np.add.outer(shared * ncomp, np.arange(ncomp)), constrained)
    positions = np.flatnonzero(in_tail)
    return {
        layout.NCOMP: ncomp,
        layout.CONSTRAINED_START: np.searchsorted(constrained, plan.batch_start * ncomp),
        layout.CONSTRAINED: constrained,
        layout.KEPT: np.zeros(len(constrained), dtype=sweep.kernel.spec.dtype),
        layout.KEEP: int(sweep.table[sweep_layout.KEEP]),
        layout.TAIL_CONSTRAINED_START: np.searchsorted(
            positions, np.searchsorted(shared, plan.owned_start) * ncomp
        ),
        layout.TAIL_CONSTRAINED: positions,
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
