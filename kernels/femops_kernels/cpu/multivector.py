"""Sweeps that apply a kernel to many vectors at once."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops_kernels.compiled import Panels
from femops_kernels.cpu import machine
from femops_kernels.cpu.exchange import Contributions
from femops_kernels.cpu.kernels import ElementKernel, OperatorKernel
from femops_kernels.cpu.plan import Plan
from femops_kernels.cpu.sweep import ElementSweep, SweepDofs, address_table, hanging_addresses
from femops_kernels.pointwise.qdata import ALIGNMENT, Data, aligned_array
from femops_kernels.skeletons.multivector import vector_table as layout

_MKL = ("libmkl_rt.so.2", "libmkl_rt.so.1", "mkl_rt.2.dll", "libmkl_rt.2.dylib")


@cache
def gemm_address(kind: DTypeLike) -> tuple[str, int]:
    """Name of the BLAS library, and the address of its ``dgemm`` or ``sgemm``."""
    name = {8: "dgemm", 4: "sgemm"}[np.dtype(kind).itemsize]
    for library in _MKL:
        for path in (Path(sys.prefix) / "lib" / library, Path(library)):
            try:
                mkl = ctypes.CDLL(str(path))
            except OSError:
                continue
            return "MKL", int(ctypes.cast(getattr(mkl, f"{name}_"), ctypes.c_void_p).value or 0)
    return "SciPy", _scipy_address(name)


def _scipy_address(name: str) -> int:
    """Address of a function of SciPy's BLAS, which SciPy keeps for programs in Cython."""
    capsule = import_module("scipy.linalg.cython_blas").__pyx_capi__[name]
    read_name = ctypes.pythonapi.PyCapsule_GetName
    read_name.restype, read_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(read(capsule, read_name(capsule)) or 0)


Ints = NDArray[np.int64]

# Tasks for each thread, so that none waits long for the others at the end.
TASKS_PER_THREAD = 2


@final
@dataclass(frozen=True, eq=False)
class VectorTerm:
    """Summand of an operator that can be bound to any number of vectors."""

    kernel: OperatorKernel  # its q-function takes nothing of the geometry
    # for each field of the kernel, with the test function of its block.  Each node is a run.
    dofs: Sequence[SweepDofs]
    data: Data

    @property
    def source(self) -> Plan:
        """Plan of the first field."""
        return self.dofs[0].source

    @property
    def targets(self) -> list[Plan]:
        """Plans of all test functions."""
        return [self.dofs[k].target for k in self.kernel.spec.blocks]

    @cached_property
    def entries(self) -> list[dict[int, Any]]:
        """Entries of each block of the table that do not depend on the number of vectors."""
        kernel = self.kernel
        tested = dict(zip(kernel.spec.blocks, kernel.spec.targets, strict=True))
        by_blas = isinstance(kernel, ElementKernel)
        gemm = gemm_address(kernel.spec.dtype)[1] if by_blas else 0
        common = {
            layout.FIRST_ELEMENT: self.source.first_batch,
            layout.QDATA: self.data.points,
            layout.ELEMENT: self.data.elements,
            layout.CONSTANTS: self.data.constants,
            layout.GEMM: gemm,
            layout.BLOCKS: len(self.dofs),
        }
        return [
            common
            | _fields_entries(dofs, side.ncomp)
            | _tests_entries(dofs, tested[k].ncomp if k in tested else 0, kernel.spec.dtype)
            for k, (dofs, side) in enumerate(zip(self.dofs, kernel.spec.sources, strict=True))
        ]


def _fields_entries(dofs: SweepDofs, ncomp: int) -> dict[int, Any]:
    """Entries of a block for the field."""
    source = dofs.source
    return {
        layout.IN_OWNED_START: source.owned_start,
        layout.IN_NONOWNED_START: source.nonowned_start,
        layout.IN_NONOWNED_DOFS: source.nonowned_dofs,
        layout.IN_STARTS: source.starts,
        layout.IN_GHOSTS_FROM: source.ndofs,
        layout.IN_GHOSTS: 0,
        layout.CLEARED: _flags(dofs.cleared, source.ndofs * ncomp),
        layout.IN_HANGING: hanging_addresses(source),
    }


def _tests_entries(dofs: SweepDofs, ncomp: int, dtype: np.dtype[Any]) -> dict[int, Any]:
    """Entries of a block for the test function; without components there is none."""
    target, constrained = dofs.target, dofs.constrained[: None if ncomp else 0]
    owned = target.owned_start * ncomp
    kept = constrained[constrained < owned[-1]]
    return {
        layout.OUT_OWNED_START: target.owned_start,
        layout.OUT_NONOWNED_START: target.nonowned_start,
        layout.OUT_NONOWNED_DOFS: target.nonowned_dofs,
        layout.OUT_STARTS: target.starts,
        layout.OUT_GHOSTS_FROM: target.ndofs,
        layout.OUT_ELEMENT_START: target.batch_start,
        layout.OUT_COMPONENTS: ncomp,
        layout.CONSTRAINED: _flags(constrained, target.ndofs * ncomp),
        layout.COMBINE_START: target.combine_start,
        layout.COMBINE_DOF: target.combine_dof,
        layout.COMBINE_SLOT: target.combine_slot,
        layout.KEPT_START: np.searchsorted(kept, owned).astype(np.int64),
        layout.KEPT: kept,
        layout.KEEP: np.array([dofs.keep], dtype=dtype),
        layout.OUT_HANGING: hanging_addresses(target),
    }


def _flags(positions: Ints, size: int) -> Any:
    """Array (size,) with 1 at the positions and 0 elsewhere; the number 0 without positions."""
    if not len(positions):
        return 0
    flags = np.zeros(size, dtype=np.uint8)
    flags[positions] = 1
    return flags


def _buffer(plan: Plan, numbers: int, kernel: OperatorKernel) -> NDArray[Any]:
    """Buffer for contributions to non-owned dofs, with ``numbers`` entries for each dof."""
    return aligned_array((len(plan.nonowned_dofs) * numbers,), kernel.spec.dtype)


@final
class VectorSweep(ElementSweep):
    """A term bound to a number of vectors. The rows of x and y are contiguous."""

    def __init__(self, term: VectorTerm, panels: Panels) -> None:
        kernel, nvec = term.kernel, panels.nvec
        self.term, self.groups = term, self._groups(term, panels)
        self.kernel, row = kernel, nvec * kernel.spec.dtype.itemsize
        self.left = [
            Contributions(
                plan, _buffer(plan, side.ncomp * panels.count * nvec, kernel), nvec * side.ncomp
            )
            for plan, side in zip(term.targets, kernel.spec.targets, strict=True)
        ]
        plans = [plan for dofs in term.dofs for plan in (dofs.source, dofs.target)]
        self.with_ghosts = np.any([plan.with_ghosts for plan in plans], axis=0)
        self._entries = self._blocks(panels, row)  # keeps arrays alive
        self.table = np.concatenate([address_table(entries) for entries in self._entries])
        self.ghosts_at = [k * layout.WORDS + layout.IN_GHOSTS for k in range(len(term.dofs))]
        entries_at = (
            kernel.multivector.addresses["sweep"],
            kernel.vector_sums().addresses["combine"],
        )
        self.row = (*entries_at, self.table.ctypes.data, term.source.nchunks * self.groups)
        self.work_bytes = self._work_bytes(row)
        self.effort = term.data.points.size * nvec * panels.count

    def _blocks(self, panels: Panels, row: int) -> list[dict[int, Any]]:
        """Entries of each block of the table; ``row`` is the number of bytes of a row."""
        term, kernel = self.term, self.kernel
        common = {
            layout.NGROUPS: self.groups,
            layout.PANEL_GROUPS: self.groups // panels.count,
            layout.NVEC: panels.nvec,
            layout.ROW_BYTES: row,
            layout.IN_PANEL_BYTES: row * term.source.ndofs * kernel.spec.source.ncomp,
            layout.OUT_PANEL_BYTES: row * term.targets[0].ndofs * kernel.spec.target.ncomp,
            layout.ZEROS: aligned_array((panels.nvec,), kernel.spec.dtype),
            layout.BUFFER: 0,
            layout.BUFFER_PANEL_BYTES: 0,
        }
        blocks = [
            entries
            | common
            | {layout.IN_ORIGIN: dofs.first_in * row, layout.OUT_ORIGIN: dofs.first_out * row}
            for entries, dofs in zip(term.entries, term.dofs, strict=True)
        ]
        for k, left, side in zip(kernel.spec.blocks, self.left, kernel.spec.targets, strict=True):
            rows = len(left.target.nonowned_dofs) * side.ncomp
            blocks[k] |= {layout.BUFFER: left.buffer, layout.BUFFER_PANEL_BYTES: row * rows}
        return blocks

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
        lane = kernel.width * kernel.spec.dtype.itemsize
        lanes = (module.NUMBER_LANES + module.WORK_LANES) * lane
        if isinstance(kernel, ElementKernel):
            lanes = (module.ROWS_IN + module.ROWS_OUT) * row
        needed = row + lanes + 2 * module.LISTS + ALIGNMENT
        return int(-(-needed // ALIGNMENT) * ALIGNMENT)
