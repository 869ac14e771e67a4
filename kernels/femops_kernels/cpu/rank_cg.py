"""Conjugate gradients on many ranks: compiled between communications."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import BREAKDOWN, CONVERGED, Solve
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import merged
from femops_kernels.cpu.exchange import Forward
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.merged import MergedPass, owned_pieces, tail_length
from femops_kernels.cpu.rank_terms import RankTerms, Run, chunk_order
from femops_kernels.cpu.sweep import LAUNCH, Sweep, Terms
from femops_kernels.skeletons.chunk import table as layout

Reduce = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_ITERATIONS, _RHO, _RESIDUAL, _STATUS = 0, 1, 2, 3


@final
class RankConjugateGradients(Solve):
    """State of one solve, as `ConjugateGradients`, on one of many ranks.

    Parameters
    ----------
    terms : Terms or RankTerms
        The operator, symmetric and positive definite.
    b, x : (n,) arrays
        Right-hand side and first guess, of the kernels' type.
    inverse : (n,) array or None
        Entries of a diagonal preconditioner.
    merge : bool
        Update vectors inside the operator's sweep: one reduction an iteration, not two.
    reduce : callable
        Given partial sums (k, blocks), the k sums over all blocks of all ranks.
    edges : (m + 1,) int64
        Where the blocks of a vector begin, and the end.
    """

    def __init__(
        self,
        terms: Terms | RankTerms,
        b: NDArray[Any],
        x: NDArray[Any],
        inverse: NDArray[Any] | None,
        merge: bool,
        reduce: Reduce,
        edges: NDArray[np.int64],
    ) -> None:
        self._terms, self._b, self.merged, self._reduce = terms, b, merge, reduce
        self._inverse = b if inverse is None else inverse
        inner = terms.terms if isinstance(terms, RankTerms) else terms
        tail, pieces = 0, None
        if merge and isinstance(terms, RankTerms):
            tail, pieces = tail_length(inner, _sent(terms)), owned_pieces(inner)
        self._vectors = placed_array((4, len(b) + tail), b.dtype, pieces, axis=1)
        self.x[:] = x
        self._state = np.array([-1.0, 0.0, 0.0, 0.0])
        self._workplace = inner.workplace
        skeletons = ("driver", "cg_vectors", "cg", "cg_merged", "cg_ranks")
        self._module = specialize(skeletons, {"REAL": b.dtype.name})
        self._common = self._inverse, inverse is not None, edges
        self._partial = np.zeros((2, len(edges) - 1))
        self._pass = None
        if merge and isinstance(terms, RankTerms):
            self._pass = _Pass(terms, self._vectors, len(b), inverse)

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`. All ranks call it."""
        if self._state[_ITERATIONS] < 0.0:
            self._begin(tolerance)
        step = self._step_merged if self._pass else self._step
        for k in range(steps):
            if self.status or self.iterations >= limit:
                return
            if not self._state[_RHO] > 0.0:
                tiny = self.residual < self._module.UNDERFLOW
                self._state[_STATUS] = CONVERGED if tiny else BREAKDOWN
                return
            last = self.iterations + 1 >= limit or (show and k + 1 == steps)
            step(tolerance, last)

    def _begin(self, tolerance: float) -> None:
        x, r = self._vectors[0, : len(self._b)], self._vectors[1, : len(self._b)]
        self._terms.apply(x, r)
        self._update("begin", self._b, self._vectors, *self._common, self._partial)
        self._state[_ITERATIONS] = 0.0
        self._known(tolerance)

    def _update(self, name: str, *arguments: Any) -> None:
        """One of the vector updates, shared by the threads of the operator."""
        with LAUNCH:
            getattr(self._module, name)(self._workplace()[2], *arguments)

    def _known(self, tolerance: float) -> None:
        """Take over what the blocks have summed of r.M r and r.r."""
        rho, rr = self._reduce(self._partial)
        self._state[_RHO], self._state[_RESIDUAL] = rho, sqrt(rr)
        if self._state[_RESIDUAL] <= tolerance:
            self._state[_STATUS] = CONVERGED

    def _step(self, tolerance: float, last: bool) -> None:  # noqa: ARG002  (always up to date)
        p, ap = (self._vectors[k, : len(self._b)] for k in (2, 3))
        self._terms.apply(p, ap)
        self._update("product", p, ap, self._common[2], self._partial)
        curvature = self._reduce(self._partial[:1])[0]
        if not curvature > 0.0:
            self._state[_STATUS] = BREAKDOWN
            return
        before = self._state[_RHO]
        self._update("move", before / curvature, self._vectors, *self._common, self._partial)
        self._state[_ITERATIONS] += 1.0
        self._known(tolerance)
        if not self.status:
            self._update("turn", self._state[_RHO] / before, self._vectors, *self._common)

    def _step_merged(self, tolerance: float, last: bool) -> None:
        """As the loop of ``skeletons/cg_merged.py``."""
        module, one = self._module, self._pass
        assert one is not None
        todo = one.todo
        touch = todo[module.NEAR] != 0.0 and (
            todo[module.FAR] != 0.0 or todo[module.BETA] < module.SMALL_BETA
        )
        todo[module.TOUCH] = float(touch)
        one.run()
        far = 0.0 if touch or todo[module.NEAR] == 0.0 else todo[module.NEAR] / todo[module.BETA]
        todo[module.FAR], todo[module.DROP], todo[module.NEAR] = far, 0.0, 0.0
        sums = self._reduce(one.sums.T)
        if not (one.scale * sums[module.S_PV] > 0.0 and sums[module.S_RHO] > 0.0):
            self._settle(tolerance)
            self._state[_STATUS] = BREAKDOWN
            return
        known, rr = module.predict.py_func(todo, self._state, sums, self._common[1], one.scale)
        self._state[_ITERATIONS] += 1.0
        if known and rr > module.NEAR_END * tolerance * tolerance and not last:
            self._state[_RESIDUAL] = sqrt(rr)
            return
        before = self._state[_RHO]
        self._settle(tolerance)
        todo[module.BETA] = self._state[_RHO] / before

    def _settle(self, tolerance: float) -> None:
        assert self._pass is not None
        self._update("catch_up", self._pass.todo, self._vectors, *self._common, self._partial)
        self._known(tolerance)


def mergeable(terms: Terms | RankTerms, *, many: bool) -> bool:
    """Whether it is one sweep over the whole of vectors that are alike.

    On ``many`` ranks there must be one exchange before it and one behind it.
    """
    if isinstance(terms, RankTerms):
        exchanged = len(terms.forwards) == len(terms.reverses) == 1
        return exchanged and merged.mergeable(terms.terms)
    return not many and merged.mergeable(terms)


def _sent(terms: RankTerms) -> NDArray[np.int64]:
    """Dofs whose values other ranks need."""
    sweep, (forward, _) = terms.terms.sweeps[0], terms.forwards[0]
    assert isinstance(sweep, Sweep)
    at = forward.positions
    return np.unique(at[at >= 0] // sweep.kernel.source.ncomp)


@final
class _Pass:
    """One pass of ``skeletons/merged.py``, while messages are on their way."""

    def __init__(
        self,
        terms: RankTerms,
        vectors: NDArray[Any],
        n: int,
        inverse: NDArray[Any] | None,
    ) -> None:
        sweep = terms.terms.sweeps[0]
        assert isinstance(sweep, Sweep)
        self._sweep, self._whole = sweep, terms
        self._merged = MergedPass(terms.terms, vectors, n, inverse, _sent(terms))
        self.todo, self.sums = self._merged.todo, self._merged.sums
        self.scale = self._merged.scale
        forward, self._reverse = terms.forwards[0][0], terms.reverses[0][0]
        ncomp = sweep.kernel.source.ncomp
        dof, component = np.divmod(forward.positions, ncomp)
        tail = n + np.searchsorted(self._merged.shared, dof) * ncomp + component
        self._forward = Forward(forward.channel, np.where(forward.positions < 0, -1, tail))
        self._p = vectors[2]
        self._order = chunk_order(sweep)

    def run(self) -> None:
        """Updates, operator and sums; ``todo`` says what, ``sums`` has what came of it."""
        one, (order, plain) = self._merged, self._order
        half = plain // 2 if self._whole.overlap else 0
        with LAUNCH:
            run = Run(self._whole.terms, 0, 0, one.rows, one.alphas)
            run.some(0, order, 0, len(order))
            self._forward.start(self._p.ctypes.data)
            run.some(1, order, 0, half)
            self._forward.finish()
            one.table[layout.IN_GHOSTS] = self._forward.ghosts
            run.some(1, order, plain, len(order))
            self._reverse.collect(self._sweep, more=False)
            self._reverse.start()
            run.some(1, order, half, plain)
            run.combined(1)
            self._reverse.channel.finish()
            values, at = self._reverse.channel.incoming, self._reverse.positions
            one.receive(values.ctypes.data, at.ctypes.data, len(at), 0, 0.0, 0.0)
