"""Conjugate gradients on the host: launching what is compiled of them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import RankSolve, Reduction, Solve, segment_edges
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.compiled import CompiledOperator, DistributedOperator
from femops_kernels.cpu import machine
from femops_kernels.cpu.cg.merged import (
    NONE,
    MergedPass,
    RankPass,
    owned_pieces,
    pass_parts,
    sent_dofs,
    tail_length,
)
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.sweep import (
    AlignedBuffer,
    LaunchSum,
    address_table,
    driver_address,
)
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.pointwise.qdata import ALIGNMENT
from femops_kernels.simd.lanes import Lane
from femops_kernels.skeletons.cg import cg_table as layout
from femops_kernels.skeletons.cg.decisions import (
    BETA,
    ITERATIONS,
    RHO,
    begin_pass,
    end_pass,
    predicted,
    taken,
)
from femops_kernels.skeletons.cg.merged_table import NSUMS

_MERGED = ("cg_begin", "cg_merged")
_TOGETHER = ("cg_begin", "cg", "cg_together")

_NOT_BEGUN = np.array([-1.0, 0.0, 0.0, 0.0])
"""The state of a solve before its beginning."""

_FIRST_BURST = 16  # iterations

_works = AlignedBuffer()


class HostSolve(Solve, ABC):
    """Vectors, sums and compiled parts of a solve; see ``skeletons/cg``.

    Parameters
    ----------
    launches : LaunchSum
        The operator, or what this rank has of it.
    b, x, inverse, merged
        See `CompiledOperator.conjugate_gradients`.
    edges : (m + 1,) int64
        Where the segments of a vector begin, and the end.
    skeletons : sequence of str
        Of what is compiled.
    others : (k,) int64, optional
        Dofs whose p other ranks need in merged passes.
    """

    def __init__(
        self,
        launches: LaunchSum,
        b: NDArray[Any],
        x: NDArray[Any],
        inverse: NDArray[Any] | None,
        merged: bool,
        edges: NDArray[np.int64],
        skeletons: Sequence[str],
        others: NDArray[np.int64] = NONE,
    ) -> None:
        self._launches, self._b, self.merged = launches, b, merged
        pieces = owned_pieces(launches) if merged else None
        tail = tail_length(launches, others) if merged else 0
        self._vectors = placed_array((4, len(b) + tail), b.dtype, pieces, axis=1)
        self.x[:] = x
        self._state, self._before = _NOT_BEGUN.copy(), 0
        self._module = specialize(*_parts(b.dtype, *skeletons))
        self._partial = np.zeros((2, len(edges) - 1))
        whole = [vector[: len(b)] for vector in self._vectors]
        self._entries = dict.fromkeys(range(layout.SIZE), 0) | {
            **dict(zip((layout.X, layout.R, layout.P, layout.AP), whole, strict=True)),
            layout.B: b,
            layout.INVERSE: b if inverse is None else inverse,  # read only if it is used
            layout.USE_INVERSE: int(inverse is not None),
            layout.EDGES: edges,
            layout.SEGMENTS: len(edges) - 1,
            layout.PARTIAL: self._partial[0],
            layout.SECOND: self._partial[1],
            layout.STATE: self._state,
            layout.GUESSED: 1,
        }
        self._table = address_table(self._entries)
        self._address = self._table.ctypes.data

    def _renew(self, b: NDArray[Any], x: NDArray[Any] | None) -> None:
        """Take another right-hand side and first guess."""
        self._b, self._entries[layout.B], self._table[layout.B] = b, b, b.ctypes.data
        self._table[layout.GUESSED] = int(x is not None)
        self.x[:] = 0.0 if x is None else x
        self._before = self.iterations
        self._state[:] = _NOT_BEGUN

    def _set(self, *operator: int) -> int:
        """Tell compiled code of an operator and where it works; the table's address.

        Hold ``LAUNCH`` while it is used.
        """
        self._table[: layout.DRIVER] = *operator, *self._launches.workplace()
        return self._address


def _parts(dtype: np.dtype[Any], *skeletons: str) -> tuple[tuple[str, ...], dict[str, object]]:
    """Skeletons and constants of compiled parts of a solve."""
    constants = {"LANE": Lane(2, dtype), "NSUMS": NSUMS}
    return ("cg_table", "decisions", "cg_vectors", *skeletons), constants


@cache
def _together(dtype: np.dtype[Any]) -> Any:
    """Compiled solve of several systems at once."""
    return specialize(*_parts(dtype, *_TOGETHER)).together.ctypes


def _burst(threads: int, before: Sequence[int], limit: int) -> int:
    """Iterations after which a thread looks for another solve, given those of the last solves.

    If each thread can have as many solves as the others, none changes threads.
    """
    if len(before) % threads == 0:
        return limit
    return max(before, default=0) // threads + 1 if all(before) else _FIRST_BURST


def solve_parts(width: int, dtype: np.dtype[Any]) -> list[Parts]:
    """Parts of the kernels that preconditioned solves of all operators share."""
    ahead = pass_parts(width, dtype, use_inverse=True), _parts(dtype, *_MERGED)
    return [(*parts, "") for parts in ahead]


@final
class ConjugateGradients(HostSolve):
    """State of one solve, whose iterations are compiled as a whole.

    Parameters
    ----------
    launches : LaunchSum
    b, x, inverse, merged
        See `CompiledOperator.conjugate_gradients`.
    """

    def __init__(
        self,
        launches: LaunchSum,
        b: NDArray[Any],
        x: NDArray[Any],
        inverse: NDArray[Any] | None,
        merged: bool = False,
    ) -> None:
        skeletons = _MERGED if merged else ("cg_begin", "cg")
        super().__init__(launches, b, x, inverse, merged, segment_edges(len(b)), skeletons)
        self._table[layout.DRIVER] = driver_address()
        self._pass = MergedPass(launches, self._vectors, len(b), inverse) if merged else None
        if self._pass is not None:
            self._table[layout.TODO] = self._pass.todo.ctypes.data
            self._table[layout.SUMS] = self._pass.sums.ctypes.data
            self._table[layout.PASSES] = len(self._pass.sums) - 1

    def restart(self, b: NDArray[Any], x: NDArray[Any] | None, natural: bool) -> bool:
        """See `Solve.restart`."""
        if natural and self._pass is not None:
            return False
        self._table[layout.NATURAL] = int(natural)
        self._renew(b, x)
        if self._pass is not None:
            self._pass.todo[:] = 0.0
        return True

    def advance_all(self, others: Sequence[Solve], tolerances: Sequence[float], limit: int) -> bool:
        """See `Solve.advance_all`: not where threads share the work of one."""
        solves = [one for one in (self, *others) if isinstance(one, ConjugateGradients)]
        apart = all(one._pass is None and one._launches.threads() == 1 for one in solves)
        if len(solves) <= len(others) or not apart:
            return False
        nbytes = -(-max(one._launches.work_bytes for one in solves) // ALIGNMENT) * ALIGNMENT
        goals = np.array(tolerances, dtype=np.float64)
        tables = np.array([one._address for one in solves])
        threads = min(len(solves), machine.get_threads())
        burst = _burst(threads, [one._before for one in solves], limit)
        with LAUNCH:
            work, team = _works.address(nbytes * threads), machine.team_of(threads)
            for one in solves:
                one._table[: layout.DRIVER] = *one._launches.addresses, work, nbytes, 0
                one._table[layout.HELD] = layout.FREE
            given = len(solves), limit, burst, work, nbytes, threads, team
            _together(self._b.dtype)(tables.ctypes.data, goals.ctypes.data, *given)
        return True

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`."""
        with LAUNCH:
            table, one = self._set(*self._launches.addresses), self._pass
            if self._state[ITERATIONS] < 0.0:
                self._module.begin.ctypes(table, tolerance)
            if one is None:
                self._module.iterate.ctypes(table, tolerance, limit, steps)
            else:
                table = self._set(*one.addresses)
                go_on = self._module.iterate_merged.ctypes
                go_on(table, one.scale, tolerance, limit, steps, show)


@final
class RankConjugateGradients(HostSolve, RankSolve):
    """State of one solve, as `ConjugateGradients`, on one of many ranks.

    Parameters
    ----------
    operator : CompiledOperator
    launches : LaunchSum
        What this rank has of it.
    b, x, inverse, sums
        See `CompiledOperator.conjugate_gradients`.
    exchanged : DistributedOperator, optional
        The operator, if vectors are updated inside its sweep: one reduction an iteration, not two.
    """

    def __init__(
        self,
        operator: CompiledOperator,
        launches: LaunchSum,
        b: NDArray[Any],
        x: NDArray[Any],
        inverse: NDArray[Any] | None,
        sums: Reduction,
        exchanged: DistributedOperator | None = None,
    ) -> None:
        self._operator, self._sums, self._pass = operator, sums, None
        merged, others = exchanged is not None, NONE if exchanged is None else sent_dofs(exchanged)
        super().__init__(launches, b, x, inverse, merged, sums.edges, ("cg_ranks",), others)
        if exchanged is not None:
            self._pass = RankPass(exchanged, launches, self._vectors, len(b), inverse)
            self._table[layout.TODO] = self._pass.todo.ctypes.data
        self._r, self._p, self._v = (self._vectors[k, : len(b)] for k in (1, 2, 3))

    def restart(self, b: NDArray[Any], x: NDArray[Any] | None, natural: bool) -> bool:
        """See `Solve.restart`."""
        if self._pass is not None:
            return False
        self.natural = natural
        self._renew(b, x)
        return True

    def _update(self, name: str, *factors: float) -> None:
        """One of the vector updates, shared by the threads of the operator."""
        with LAUNCH:
            getattr(self._module, name).ctypes(self._set(0, 0, 0), *factors)

    def _begun(self) -> NDArray[np.float64]:
        if self._table[layout.GUESSED]:
            self._operator.apply(self.x, self._r)
        self._update("begin")
        return self._sums(self._partial)

    def _curvature(self) -> float:
        self._operator.apply(self._p, self._v)
        self._update("curvature")
        return float(self._sums(self._partial[:1])[0])

    def _moved(self, alpha: float) -> NDArray[np.float64]:
        self._update("move", alpha)
        return self._sums(self._partial)

    def _turn(self, beta: float) -> None:
        self._update("turn", beta)

    def _step(self, tolerance: float, last: bool) -> None:
        """As the loop of ``skeletons/cg/cg_merged.py`` has it, where vectors are updated so."""
        one = self._pass
        if one is None:
            super()._step(tolerance, last)
            return
        begin_pass(one.todo)
        one.run()
        end_pass(one.todo)
        sums, use_inverse = self._sums(one.sums.T), bool(self._entries[layout.USE_INVERSE])
        if predicted(one.todo, self._state, sums, use_inverse, one.scale, tolerance, last):
            return
        self._update("catch_up")
        rho, rr = self._sums(self._partial)
        one.todo[BETA] = rho / self._state[RHO]
        taken(self._state, rho, rr, tolerance)
