"""Running a kernel on many vectors at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cpu import machine
from femops_kernels.cpu.kernels.kernel import SweepKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import HostLaunch, address_table
from femops_kernels.pointwise.qdata import ALIGNMENT, Data
from femops_kernels.skeletons.multivector import vector_table as layout

Ints = NDArray[np.int64]

# Tasks for each thread, so that none waits long for the others at the end.
TASKS_PER_THREAD = 2


def fewest_vectors(width: int) -> int:
    """Vectors that one sweep takes at least: the slots of a lane."""
    return width


@final
@dataclass(frozen=True, eq=False)
class VectorTerm:
    """A term of an operator, ready for any number of vectors.

    Attributes
    ----------
    kernel : SweepKernel
        It is given nothing of the geometry.
    source, target : Plan
        Of the vector that is read and of the one that is written, where each node is a run; of the
        same chunks of elements.
    data : Data
    cleared : (n,) int64
        Flat positions of a vector read that count as zero.
    constrained : (n,) int64
        Flat positions of a vector written where the result is ``keep`` times the entry read.
    keep : float
        Zero where the two vectors belong to different spaces.
    """

    kernel: SweepKernel
    source: Plan
    target: Plan
    data: Data
    cleared: Ints
    constrained: Ints
    keep: float

    @cached_property
    def entries(self) -> dict[int, Any]:
        """The part of a table that does not depend on the number of vectors."""
        source, target, kernel = self.source, self.target, self.kernel
        owned = target.owned_start * kernel.target.ncomp
        kept = self.constrained[self.constrained < owned[-1]]
        return {
            layout.FIRST_ELEMENT: source.first_batch,
            layout.QDATA: self.data.points,
            layout.ELEMENT: self.data.elements,
            layout.CONSTANTS: self.data.constants,
            layout.IN_OWNED_START: source.owned_start,
            layout.IN_NONOWNED_START: source.nonowned_start,
            layout.IN_NONOWNED_DOFS: source.nonowned_dofs,
            layout.IN_STARTS: source.starts,
            layout.IN_GHOSTS_FROM: source.ndofs,
            layout.IN_GHOSTS: 0,
            layout.CLEARED: _flags(self.cleared, source.ndofs * kernel.source.ncomp),
            layout.OUT_OWNED_START: target.owned_start,
            layout.OUT_NONOWNED_START: target.nonowned_start,
            layout.OUT_NONOWNED_DOFS: target.nonowned_dofs,
            layout.OUT_STARTS: target.starts,
            layout.OUT_GHOSTS_FROM: target.ndofs,
            layout.OUT_ELEMENT_START: target.batch_start,
            layout.CONSTRAINED: _flags(self.constrained, target.ndofs * kernel.target.ncomp),
            layout.COMBINE_START: target.combine_start,
            layout.COMBINE_DOF: target.combine_dof,
            layout.COMBINE_SLOT: target.combine_slot,
            layout.KEPT_START: np.searchsorted(kept, owned).astype(np.int64),
            layout.KEPT: kept,
            layout.KEEP: np.array([self.keep], dtype=kernel.dtype),
        }

    def buffer_bytes(self, nvec: int) -> int:
        """Bytes of the buffer for some number of vectors."""
        rows = len(self.target.nonowned_dofs) * self.kernel.target.ncomp
        return rows * nvec * self.kernel.dtype.itemsize


def _flags(positions: Ints, size: int) -> Any:
    """For each entry of a vector whether it is one of some positions, or 0 where there are none."""
    if not len(positions):
        return 0
    flags = np.zeros(size, dtype=np.uint8)
    flags[positions] = 1
    return flags


@final
class VectorSweep(HostLaunch):
    """A term bound to a number of vectors: the rows of x and y follow each other without a gap.

    Parameters
    ----------
    term : VectorTerm
    nvec : int
        Numbers of a row, at least `fewest_vectors`.
    """

    on_elements = True

    def __init__(self, term: VectorTerm, nvec: int) -> None:
        kernel = self.kernel = term.kernel
        self.term, self.source, self.target, self.nvec = term, term.source, term.target, nvec
        row = nvec * kernel.dtype.itemsize
        chunks, blocks = term.source.nchunks, -(-nvec // kernel.width)
        # the last block overlaps the one before it, so one group has both
        wanted = -(-TASKS_PER_THREAD * machine.max_threads() // chunks)
        groups = max(1, min(wanted, blocks // 2)) if machine.max_threads() > 1 else 1
        rows = len(term.target.nonowned_dofs) * kernel.target.ncomp
        self.buffer = np.empty(rows * nvec, kernel.dtype)
        entries = term.entries | {
            layout.NGROUPS: groups,
            layout.NVEC: nvec,
            layout.ROW_BYTES: row,
            layout.BUFFER: self.buffer,
            layout.ZEROS: np.zeros(nvec, kernel.dtype),
        }
        self._entries = entries  # keeps the arrays alive
        self.table = address_table(entries)
        module = kernel.multivector
        addresses = (module.sweep.address, module.combine.address, self.table.ctypes.data)
        self.row = (*addresses, chunks * groups)
        self.work_bytes = self._work_bytes(row)
        nbatch, points, numbers, width = term.data.points.shape
        self.effort = nbatch * points * max(numbers, 1) * width * nvec

    def _work_bytes(self, row: int) -> int:
        """Bytes of a thread's work space; see ``skeletons/multivector/multivector.py``."""
        kernel, module = self.kernel, self.kernel.multivector
        lanes = int(module.NUMBER_LANES) + int(module.WORK_LANES)
        needed = row + lanes * kernel.width * kernel.dtype.itemsize + 2 * module.LISTS + ALIGNMENT
        return int(-(-needed // ALIGNMENT) * ALIGNMENT)
