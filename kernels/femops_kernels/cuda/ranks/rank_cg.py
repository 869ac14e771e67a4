"""Conjugate gradients on many ranks with a device each: vectors stay there, sums do not."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import BREAKDOWN, CONVERGED, Solve
from femops_kernels.cuda.cg.cg import Parts
from femops_kernels.cuda.operator.sweep import DeviceTerms
from femops_kernels.cuda.ranks.rank_terms import DeviceRankTerms

Reduce = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_ITERATIONS, _RHO, _RESIDUAL, _STATUS = 0, 1, 2, 3
_ALPHA, _BETA, _SUMS, _NUMBERS, _TINY = 5, 6, 9, 11, 1e-18  # as in ``cg_state.cuh``


@final
class DeviceRankConjugateGradients(Solve):
    """State of one solve, as `DeviceConjugateGradients`, on one of many ranks.

    Vectors stay on the device. The host waits for the sums of each product, adds those of all ranks
    and tells the device what came of it.

    Parameters
    ----------
    terms : DeviceTerms or DeviceRankTerms
        The operator, symmetric and positive definite.
    b, x : (n,) arrays of the device
        Right-hand side and first guess, of the kernels' type.
    inverse : (n,) array of the device or None
        Entries of a diagonal preconditioner.
    reduce : callable
        Given sums (k, 1) of this rank, the k sums of all ranks.
    """

    merged = False

    def __init__(
        self,
        terms: DeviceTerms | DeviceRankTerms,
        b: Any,
        x: Any,
        inverse: Any | None,
        reduce: Reduce,
    ) -> None:
        self._terms, self._b, self._reduce, device = terms, b, reduce, terms.device
        self._vectors = device.xp.zeros((4, max(1, len(b))), b.dtype)
        self.x[:] = x
        self._state = np.array([-1.0, 0.0, 0.0, 0.0])
        self._numbers = device.passage(_NUMBERS, np.dtype(np.float64), direct=False)
        self._parts = Parts(device, self._vectors, b, inverse, self._numbers.there, ranks=True)
        _, _, self._q, self._p = (row[: len(b)] for row in self._vectors)

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:  # noqa: ARG002  (always up to date)
        """See `Solve.advance`. All ranks call it."""
        if self._state[_ITERATIONS] < 0.0:
            self._terms.apply(self.x, self._q)
            self._state[_ITERATIONS] = 0.0
            self._known(self._sums("BEGIN"), tolerance)
        for _ in range(steps):
            if self.status or self.iterations >= limit:
                return
            if not self._state[_RHO] > 0.0:
                self._state[_STATUS] = CONVERGED if self.residual < _TINY else BREAKDOWN
                return
            self._step(tolerance)

    def _step(self, tolerance: float) -> None:
        self._terms.apply(self._p, self._q)
        curvature, before = self._sums("PRODUCT")[0], self._state[_RHO]
        if not curvature > 0.0:
            self._state[_STATUS] = BREAKDOWN
            return
        self._tell(_ALPHA, before / curvature)
        sums = self._sums("STEP")
        self._state[_ITERATIONS] += 1.0
        self._known(sums, tolerance)
        if not self.status:
            self._tell(_BETA, self._state[_RHO] / before)
            self._parts.launch("TURN", self._p)

    def _known(self, sums: NDArray[np.float64], tolerance: float) -> None:
        """Take over r.M r and r.r."""
        self._state[_RHO], self._state[_RESIDUAL] = sums[0], sqrt(sums[1])
        if self._state[_RESIDUAL] <= tolerance:
            self._state[_STATUS] = CONVERGED

    def _sums(self, part: str) -> NDArray[np.float64]:
        """Do one of the updates; what it sums, of all ranks."""
        self._parts.launch(part, self._p)
        self._numbers.depart()
        self._numbers.wait()
        return self._reduce(self._numbers.here[_SUMS:].reshape(2, 1))

    def _tell(self, which: int, number: float) -> None:
        """Set a number of the state on the device."""
        self._numbers.here[which] = number
        self._numbers.enter()
