"""Conjugate gradients on the host: launching what is compiled of them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import RankSolve, Reduction, Solve, segment_edges
from femops_kernels.codegen.specialize import specialize
from femops_kernels.compiled import CompiledOperator, DistributedOperator
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.merged import (
    NONE,
    MergedPass,
    RankPass,
    owned_pieces,
    sent_dofs,
    tail_length,
)
from femops_kernels.cpu.sweep import LAUNCH, LaunchSum
from femops_kernels.skeletons.cg.decisions import BETA, RHO, begin_pass, end_pass, predicted, taken


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
        self._state = np.array([-1.0, 0.0, 0.0, 0.0])
        named = ("driver", "decisions", "cg_vectors", *skeletons)
        self._module = specialize(named, {"REAL": b.dtype.name})
        self._common = b if inverse is None else inverse, inverse is not None, edges
        self._partial = np.zeros((2, len(edges) - 1))


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
        skeletons = ("cg", "cg_merged") if merged else ("cg",)
        super().__init__(launches, b, x, inverse, merged, segment_edges(len(b)), skeletons)
        self._pass = MergedPass(launches, self._vectors, len(b), inverse) if merged else None

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`."""
        with LAUNCH:
            work = self._launches.workplace()
            known, ends = (*self._common, self._partial, self._state), (tolerance, limit)
            if self._state[0] < 0.0 or not self._pass:
                self._module.iterate(
                    *self._launches.addresses,
                    *work,
                    self._vectors,
                    self._b,
                    *known,
                    *ends,
                    0 if self._pass else steps,
                )
            if self._pass and self.status == 0:
                passes = self._pass.todo, self._pass.sums, self._pass.scale
                self._module.iterate_merged(
                    *self._pass.addresses, *work, self._vectors, *known, *passes, *ends, steps, show
                )


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
        self._r, self._p, self._v = (self._vectors[k, : len(b)] for k in (1, 2, 3))

    def _update(self, name: str, *arguments: Any) -> None:
        """One of the vector updates, shared by the threads of the operator."""
        with LAUNCH:
            getattr(self._module, name)(self._launches.workplace()[2], *arguments)

    def _begun(self) -> NDArray[np.float64]:
        self._operator.apply(self.x, self._r)
        self._update("begin", self._b, self._vectors, *self._common, self._partial)
        return self._sums(self._partial)

    def _curvature(self) -> float:
        self._operator.apply(self._p, self._v)
        self._update("product", self._p, self._v, self._common[2], self._partial)
        return float(self._sums(self._partial[:1])[0])

    def _moved(self, alpha: float) -> NDArray[np.float64]:
        self._update("move", alpha, self._vectors, *self._common, self._partial)
        return self._sums(self._partial)

    def _turn(self, beta: float) -> None:
        self._update("turn", beta, self._vectors, *self._common)

    def _step(self, tolerance: float, last: bool) -> None:
        """As the loop of ``skeletons/cg/cg_merged.py`` has it, where vectors are updated so."""
        one = self._pass
        if one is None:
            super()._step(tolerance, last)
            return
        begin_pass(one.todo)
        one.run()
        end_pass(one.todo)
        sums, use_inverse = self._sums(one.sums.T), self._common[1]
        if predicted(one.todo, self._state, sums, use_inverse, one.scale, tolerance, last):
            return
        self._update("catch_up", one.todo, self._vectors, *self._common, self._partial)
        rho, rr = self._sums(self._partial)
        one.todo[BETA] = rho / self._state[RHO]
        taken(self._state, rho, rr, tolerance)
