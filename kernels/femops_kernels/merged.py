"""Sweeps with the vector updates of conjugate gradients in them: tables, copies of shared dofs."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.kernel import SweepKernel
from femops_kernels.lanes import Lane
from femops_kernels.plan import Plan
from femops_kernels.skeletons import merged_table as layout
from femops_kernels.skeletons import table as sweep_layout
from femops_kernels.specialize import specialize
from femops_kernels.sweep import Sweep, Terms, address_table

_NONE = np.zeros(0, dtype=np.int64)


def mergeable(terms: Terms) -> bool:
    """Whether it is one sweep over the whole of vectors that are alike."""
    sweep = terms.sweeps[0]
    return (
        len(terms.sweeps) == 1
        and isinstance(sweep, Sweep)
        and int(sweep.target.owned_start[-1]) == sweep.target.ndofs
        and np.array_equal(sweep.source.owned_start, sweep.target.owned_start)
        and np.array_equal(sweep.source.foreign_dofs, sweep.target.foreign_dofs)
    )


@final
class MergedPass:
    """What ``skeletons/merged.py`` needs for one solve.

    Parameters
    ----------
    terms : Terms
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
        See ``skeletons/cg_merged.py``; the last row of the sums is that of ``receive``.
    table : array
        Of the operator's sweep in the pass.
    shared : (m,) int64
        Dofs in the tail, ascending.
    receive : callable
        Entry point that adds what other ranks send.
    """

    def __init__(
        self,
        terms: Terms,
        vectors: NDArray[Any],
        n: int,
        inverse: NDArray[Any] | None,
        sent: NDArray[np.int64] = _NONE,
    ) -> None:
        sweep = terms.sweeps[0]
        assert isinstance(sweep, Sweep)
        plan, kernel = sweep.target, sweep.kernel
        self.alphas = np.array([1.0, terms.alphas[0]])
        self.todo = np.zeros(5)
        self.sums = np.zeros((2 * plan.nchunks + 1, layout.NSUMS))
        self.shared = shared_dofs(plan, sent)
        # a chunk reads foreign dofs from the tail, behind which ghosts are counted
        tail, behind = n // kernel.target.ncomp, len(self.shared) - plan.ndofs
        at = np.searchsorted(self.shared, plan.foreign_dofs)
        is_ghost = plan.foreign_dofs >= plan.ndofs
        self._foreign = tail + np.where(is_ghost, plan.foreign_dofs + behind, at)
        self.table = sweep.table.copy()
        self.table[sweep_layout.IN_FOREIGN_DOFS] = self._foreign.ctypes.data
        self.table[sweep_layout.IN_GHOSTS_FROM] = tail + len(self.shared)
        x, r, p, v = vectors
        self._entries = _piece_entries(plan, self.shared) | {
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
            layout.NCOMP: kernel.target.ncomp,
            layout.TAIL: n,
        }
        self._table = address_table(self._entries)
        module = _module(kernel, use_inverse=inverse is not None)
        self.rows = _rows(module, self._table.ctypes.data, plan.nchunks)
        self.receive = partial(module.receive.ctypes, self._table.ctypes.data)


def shared_dofs(plan: Plan, sent: NDArray[np.int64] = _NONE) -> NDArray[np.int64]:
    """Dofs that chunks share, or that other ranks need; ascending."""
    return np.union1d(plan.combine_dof, sent)


def _piece_entries(plan: Plan, shared: NDArray[np.int64]) -> dict[int, Any]:
    """Of the table, which dofs a chunk owns, and which of these are shared."""
    slots = np.append(np.searchsorted(plan.combine_dof, shared), len(plan.combine_dof))
    return {
        layout.OWNED_START: plan.owned_start,
        layout.SHARED_START: np.searchsorted(shared, plan.owned_start),
        layout.SHARED_DOF: shared,
        layout.SLOT_START: slots,
        layout.SLOT: plan.combine_slot,
        layout.CHUNKS: plan.nchunks,
    }


def _module(kernel: SweepKernel, *, use_inverse: bool) -> ModuleType:
    constants = {
        "LANE": Lane(kernel.width, kernel.dtype),
        "LANE_WIDTH": kernel.width,
        "REAL_BYTES": kernel.dtype.itemsize,
        "USE_INVERSE": use_inverse,
    }
    return specialize(("merged_table", "merged"), constants)


def _rows(module: ModuleType, table: int, nchunks: int) -> NDArray[np.int64]:
    """The two launches of a pass: of the tails, and of the chunks."""
    launches = ((module.tail, module.nothing), (module.sweep, module.combine))
    rows = [(one.address, two.address, table, nchunks, 0, 0, 0) for one, two in launches]
    return np.array(rows, dtype=np.int64)


def owned_pieces(terms: Terms) -> NDArray[np.int64]:
    """Where in a vector the piece of each chunk begins, and the end."""
    sweep = terms.sweeps[0]
    assert isinstance(sweep, Sweep)
    return sweep.target.owned_start * sweep.kernel.target.ncomp


def tail_length(terms: Terms, sent: NDArray[np.int64] = _NONE) -> int:
    """How many entries of a vector chunks share, or other ranks need."""
    sweep = terms.sweeps[0]
    assert isinstance(sweep, Sweep)
    return len(shared_dofs(sweep.target, sent)) * sweep.kernel.target.ncomp
