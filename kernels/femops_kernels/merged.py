"""Sweeps with the vector updates of conjugate gradients in them: tables, copies of shared dofs."""

from __future__ import annotations

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


def mergeable(terms: Terms) -> bool:
    """Whether it is one sweep over the whole of vectors that are alike."""
    sweep = terms.sweeps[0]
    return (
        len(terms.sweeps) == 1
        and isinstance(sweep, Sweep)
        and int(sweep.target.owned_start[-1]) == sweep.target.ndofs
        and np.array_equal(sweep.source.owned_start, sweep.target.owned_start)
        and np.array_equal(sweep.source.foreign_dofs, sweep.target.foreign_dofs)
        and np.array_equal(sweep.cleared, sweep.constrained)
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

    Attributes
    ----------
    rows, alphas, todo, sums : arrays
    scale : float
        See ``skeletons/cg_merged.py``.
    """

    def __init__(
        self, terms: Terms, vectors: NDArray[Any], n: int, inverse: NDArray[Any] | None
    ) -> None:
        sweep = terms.sweeps[0]
        assert isinstance(sweep, Sweep)
        plan, module = sweep.target, _module(sweep.kernel, inverse is not None)
        self.alphas, self.scale = np.ones(2), float(terms.alphas[0])
        self.todo = np.zeros(5)
        self.sums = np.zeros((2 * plan.nchunks, layout.NSUMS))
        x, r, p, v = vectors
        self._kernel_table, self._kernel_arrays = _kernel_table(sweep, n, module, r)
        self._entries = _piece_entries(plan) | _held_entries(sweep)
        self._entries |= {
            layout.KERNEL: int(sweep.row[0]),
            layout.KERNEL_TABLE: self._kernel_table,
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
        self._kernel_table[sweep_layout.BEFORE_TABLE] = self._table.ctypes.data
        self.rows = _rows(module, self._table.ctypes.data, plan.nchunks)


def _kernel_table(
    sweep: Sweep, n: int, module: ModuleType, r: NDArray[Any]
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
    """The operator's table as a pass needs it, and arrays that it tells the addresses of."""
    plan = sweep.target
    # a chunk reads foreign dofs from the tail
    shared = np.unique(plan.combine_dof)
    foreign = n // sweep.kernel.target.ncomp + np.searchsorted(shared, plan.foreign_dofs)
    nothing = np.zeros(plan.nchunks + 1, dtype=np.int64)
    table = sweep.table.copy()
    table[sweep_layout.IN_FOREIGN_DOFS] = foreign.ctypes.data
    table[sweep_layout.CLEARED_START] = nothing.ctypes.data  # they are zero in p and in the tail
    table[sweep_layout.BEFORE] = module.before.address
    table[sweep_layout.BEFORE_READS] = r.ctypes.data
    return table, (foreign, nothing)


def _piece_entries(plan: Plan) -> dict[int, Any]:
    """Of the table, which dofs batches meet first, and which of these chunks share."""
    shared, first = np.unique(plan.combine_dof, return_index=True)
    return {
        layout.FIRST_BATCH: plan.first_batch,
        layout.BATCH_START: plan.batch_start,
        layout.SHARED_START: np.searchsorted(shared, plan.owned_start),
        layout.SHARED_DOF: shared,
        layout.SLOT_START: np.append(first, len(plan.combine_dof)),
        layout.SLOT: plan.combine_slot,
        layout.CHUNKS: plan.nchunks,
    }


def _held_entries(sweep: Sweep) -> dict[int, Any]:
    """Of the table, what concerns entries that the operator multiplies by one number."""
    plan, ncomp, held = sweep.target, sweep.kernel.target.ncomp, sweep.constrained
    shared = np.unique(plan.combine_dof)
    in_tail = np.isin(np.add.outer(shared * ncomp, np.arange(ncomp)), held)
    positions = np.flatnonzero(in_tail)
    return {
        layout.NCOMP: ncomp,
        layout.HELD_START: np.searchsorted(held, plan.batch_start * ncomp),
        layout.HELD: held,
        layout.KEPT: np.zeros(len(held), dtype=sweep.kernel.dtype),
        layout.KEEP: int(sweep.table[sweep_layout.KEEP]),
        layout.TAIL_HELD_START: np.searchsorted(
            positions, np.searchsorted(shared, plan.owned_start) * ncomp
        ),
        layout.TAIL_HELD: positions,
    }


def _module(kernel: SweepKernel, use_inverse: bool) -> ModuleType:
    """The compiled pass."""
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


def tail_length(terms: Terms) -> int:
    """How many entries of a vector chunks share."""
    sweep = terms.sweeps[0]
    assert isinstance(sweep, Sweep)
    return len(np.unique(sweep.target.combine_dof)) * sweep.kernel.target.ncomp
