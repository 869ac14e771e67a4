"""Conjugate gradients on the host: tables and calls of the compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import Reduction, Solve, SolveGroup, between_messages, segment_edges
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.compiled import CompiledOperator
from femops_kernels.cpu.cg.merged import MergedSweep, launches_of, merged_parts
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.sequence import HostSequence
from femops_kernels.cpu.sweep import address_table, driver_address
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.instruction import Instruction
from femops_kernels.simd.lanes import WIDEST, Lane
from femops_kernels.skeletons.cg import cg_state as at
from femops_kernels.skeletons.cg import cg_table as layout


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
