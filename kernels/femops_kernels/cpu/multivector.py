"""Sweeps that apply a kernel to many vectors at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import Panels
from femops_kernels.cpu import machine
from femops_kernels.cpu.exchange import Contributions
from femops_kernels.cpu.kernels.blas import gemm_address
from femops_kernels.cpu.kernels.dense import ElementKernel
from femops_kernels.cpu.kernels.kernel import OperatorKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import ElementSweep, address_table
from femops_kernels.pointwise.qdata import ALIGNMENT, Data, aligned_array
from femops_kernels.skeletons.multivector import vector_table as layout

Ints = NDArray[np.int64]

# Tasks for each thread, so that none waits long for the others at the end.
TASKS_PER_THREAD = 2


@final
@dataclass(frozen=True, eq=False)
class VectorTerm:
    """Summand of an operator that can be bound to any number of vectors.

    Attributes
    ----------
    kernel : OperatorKernel
        Its q-function takes nothing of the geometry.
    plans : sequence of (Plan, Plan)
        For each field the plan to read it, and the plan of the test function of its block. All have
        the same chunks of elements.  Each node is a run.
    data : Data
    cleared : (n,) int64
        Flat positions of x that are read as zero.
    constrained : (n,) int64
        Flat positions where y is ``keep`` times x.
    keep : float
        Zero where the two vectors belong to different spaces.
    """

    kernel: OperatorKernel
    plans: Sequence[tuple[Plan, Plan]]
    data: Data
    cleared: Ints
    constrained: Ints
    keep: float

    @property
    def source(self) -> Plan:
        """Plan of the first field."""
        return self.plans[0][0]

    @property
    def target(self) -> Plan:
        """Plan of the first test function."""
        return self.plans[0][1]

    @property
    def targets(self) -> list[Plan]:
        """Plans of all test functions."""
        return [self.plans[k][1] for k in self.kernel.blocks]

    @cached_property
    def common(self) -> dict[int, Any]:
        """Entries of the sweep's table that all blocks have, but for the number of vectors."""
        source, target, kernel = self.source, self.target, self.kernel
        owned = target.owned_start * kernel.target.ncomp
        kept = self.constrained[self.constrained < owned[-1]]
        return {
            layout.FIRST_ELEMENT: source.first_batch,
            layout.QDATA: self.data.points,
            layout.ELEMENT: self.data.elements,
            layout.CONSTANTS: self.data.constants,
            layout.GEMM: gemm_address(kernel.dtype)[1] if isinstance(kernel, ElementKernel) else 0,
            layout.CLEARED: _flags(self.cleared, source.ndofs * kernel.source.ncomp),
            layout.CONSTRAINED: _flags(self.constrained, target.ndofs * kernel.target.ncomp),
            layout.KEPT_START: np.searchsorted(kept, owned).astype(np.int64),
            layout.KEPT: kept,
            layout.KEEP: np.array([self.keep], dtype=kernel.dtype),
            layout.TESTED: len(kernel.blocks),
        }

    @staticmethod
    def block(source: Plan, target: Plan) -> dict[int, Any]:
        """Entries of a block of the table, for a field and the test function of its block."""
        return {
            layout.IN_OWNED_START: source.owned_start,
            layout.IN_NONOWNED_START: source.nonowned_start,
            layout.IN_NONOWNED_DOFS: source.nonowned_dofs,
            layout.IN_STARTS: source.starts,
            layout.IN_GHOSTS_FROM: source.ndofs,
            layout.IN_GHOSTS: 0,
            layout.OUT_OWNED_START: target.owned_start,
            layout.OUT_NONOWNED_START: target.nonowned_start,
            layout.OUT_NONOWNED_DOFS: target.nonowned_dofs,
            layout.OUT_STARTS: target.starts,
            layout.OUT_GHOSTS_FROM: target.ndofs,
            layout.OUT_ELEMENT_START: target.batch_start,
            layout.COMBINE_START: target.combine_start,
            layout.COMBINE_DOF: target.combine_dof,
            layout.COMBINE_SLOT: target.combine_slot,
        }


def _flags(positions: Ints, size: int) -> Any:
    """Array (size,) with 1 at the positions and 0 elsewhere; the number 0 without positions."""
    if not len(positions):
        return 0
    flags = np.zeros(size, dtype=np.uint8)
    flags[positions] = 1
    return flags


def _buffer(plan: Plan, numbers: int, kernel: OperatorKernel) -> NDArray[Any]:
    """Room for contributions to non-owned dofs, so many numbers for each."""
    return aligned_array((len(plan.nonowned_dofs) * numbers,), kernel.dtype)


@final
class VectorSweep(ElementSweep):
    """A term bound to a number of vectors. The rows of x and y are contiguous.

    Parameters
    ----------
    term : VectorTerm
    panels : Panels
        Each panel has at least as many vectors as a lane has slots.
    strides : (int, int), optional
        Rows from one panel of x, and of y, to the next.  Needed only if the vectors belong to a
        product of spaces.
    """

    def __init__(
        self, term: VectorTerm, panels: Panels, strides: tuple[int, int] | None = None
    ) -> None:
        kernel, nvec = term.kernel, panels.nvec
        self.term, self.groups = term, self._groups(term, panels)
        self.kernel, row = kernel, nvec * term.kernel.dtype.itemsize
        ncomp_in, ncomp_out = kernel.source.ncomp, kernel.target.ncomp
        self.left = [
            Contributions(
                plan, _buffer(plan, nvec * panels.count * ncomp_out, kernel), nvec * ncomp_out
            )
            for plan in term.targets
        ]
        self.with_ghosts = np.any([p.with_ghosts for pair in term.plans for p in pair], axis=0)
        if strides is None:
            strides = term.source.ndofs * ncomp_in, term.target.ndofs * ncomp_out
        common = term.common | {
            layout.NGROUPS: self.groups,
            layout.PANEL_GROUPS: self.groups // panels.count,
            layout.NVEC: nvec,
            layout.ROW_BYTES: row,
            layout.IN_PANEL_BYTES: row * strides[0],
            layout.OUT_PANEL_BYTES: row * strides[1],
            layout.ZEROS: aligned_array((nvec,), kernel.dtype),
            layout.BUFFER: 0,
            layout.BUFFER_PANEL_BYTES: 0,
        }
        self._entries = [common | term.block(*pair) for pair in term.plans]  # keeps arrays alive
        for k, left in zip(kernel.blocks, self.left, strict=True):
            rows = len(left.target.nonowned_dofs) * ncomp_out
            self._entries[k] |= {layout.BUFFER: left.buffer, layout.BUFFER_PANEL_BYTES: row * rows}
        self.table = np.concatenate([address_table(entries) for entries in self._entries])
        self.ghosts_at = [k * layout.WORDS + layout.IN_GHOSTS for k in range(len(term.plans))]
        entries_at = (
            kernel.multivector.addresses["sweep"],
            kernel.vector_sums().addresses["combine"],
        )
        self.row = (*entries_at, self.table.ctypes.data, term.source.nchunks * self.groups)
        self.work_bytes = self._work_bytes(row)
        self.effort = term.data.points.size * nvec * panels.count

    @staticmethod
    def _groups(term: VectorTerm, panels: Panels) -> int:
        """Number of groups into which the vectors are cut, so that all threads have work.

        The last SIMD vector of a row overlaps the one before it, so one group has both.
        """
        threads = machine.max_threads()
        if threads == 1:
            return panels.count
        wanted = -(-TASKS_PER_THREAD * threads // (term.source.nchunks * panels.count))
        most = -(-panels.nvec // term.kernel.width) // 2
        return panels.count * max(1, min(wanted, most))

    def _work_bytes(self, row: int) -> int:
        """Bytes of a thread's work space; see ``skeletons/multivector``."""
        kernel, module = self.kernel, self.kernel.multivector
        lanes = (module.NUMBER_LANES + module.WORK_LANES) * kernel.width * kernel.dtype.itemsize
        if isinstance(kernel, ElementKernel):
            lanes = (module.ROWS_IN + module.ROWS_OUT) * row
        needed = row + lanes + 2 * module.LISTS + ALIGNMENT
        return int(-(-needed // ALIGNMENT) * ALIGNMENT)
