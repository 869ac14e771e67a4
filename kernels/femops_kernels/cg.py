"""Common base of all solves by conjugate gradients, wherever they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.skeletons.cg.decisions import (
    BREAKDOWN,
    CONVERGED,
    ITERATIONS,
    RESIDUAL,
    RHO,
    STATUS,
    ended,
    taken,
)

__all__ = ["BREAKDOWN", "CONVERGED", "RankSolve", "Reduction", "Solve", "segment_edges"]

SEGMENT = 4096  # numbers of a segment: 32 kB of float64, three vectors of it stay in cache


def segment_edges(n: int) -> NDArray[np.int64]:
    """Edges of the segments in which a vector of ``n`` numbers is summed, the end included."""
    return np.append(np.arange(0, n, SEGMENT), n)


class Reduction(ABC):
    """Sums over the entries of vectors that ranks have pieces of.

    Attributes
    ----------
    edges : (m + 1,) int64
        Segments of a vector, which are summed by themselves, and the end.
    many : bool
        Whether there are several ranks, or could be.
    """

    edges: NDArray[np.int64]
    many: bool

    @abstractmethod
    def __call__(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        """Totals (k,) of all ranks of the sums (k, segments) of the segments. Collective."""


class Solve(ABC):
    """State of one solve by conjugate gradients.

    Attributes
    ----------
    merged : bool
        Whether vectors are updated inside the operator's sweep.
    every : int or None
        Steps of a call of `advance` that suit it best; None if as many as take a while.
    """

    merged: bool
    every: int | None = None
    _b: NDArray[Any]
    _vectors: NDArray[Any]
    _state: NDArray[np.float64]

    @abstractmethod
    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """Iterate until the residual's norm is at most ``tolerance``.

        At most ``steps`` iterations are added, and ``limit`` done in all.  Without ``show`` x may
        be some updates behind, if that is faster, until the iteration has come to its end.
        """

    def restart(
        self,
        b: NDArray[Any],  # noqa: ARG002
        x: NDArray[Any] | None,  # noqa: ARG002
        natural: bool,  # noqa: ARG002
    ) -> bool:
        """Begin again with another right-hand side and first guess; False where that can't be.

        Without a first guess x begins with zero, and no product with the operator is needed.

        If ``natural``, `residual` and tolerances are sqrt(r.M r), not sqrt(r.r).
        """
        return False

    def advance_all(
        self,
        others: Sequence[Solve],  # noqa: ARG002
        tolerances: Sequence[float],  # noqa: ARG002
        limit: int,  # noqa: ARG002
    ) -> bool:
        """Advance this solve and others to their ends at once; False where that can't be.

        ``tolerances`` are those of this one and of the others.
        """
        return False

    @property
    def x(self) -> NDArray[Any]:
        """The iterate, a view."""
        iterate: NDArray[Any] = self._vectors[0, : len(self._b)]
        return iterate

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return max(0, int(self._state[ITERATIONS]))

    @property
    def residual(self) -> float:
        """Euclidean norm of the (recursive) residual."""
        return float(self._state[RESIDUAL])

    @property
    def status(self) -> int:
        """0 while running, else ``CONVERGED`` or ``BREAKDOWN``."""
        return int(self._state[STATUS])


class RankSolve(Solve, ABC):
    """The solve of one of many ranks: compiled between the messages that add up sums.

    If `natural`, the residual is measured by r.M r.  The loop is that of ``skeletons/cg/cg.py``;
    ``_state`` begins with a negative count.
    """

    natural: bool = False

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`. All ranks call it."""
        if self._state[ITERATIONS] < 0.0:
            self._state[ITERATIONS] = 0.0
            rho, rr = self._begun()
            taken(self._state, rho, rho if self.natural else rr, tolerance)
        for k in range(steps):
            if ended(self._state, limit):
                return
            last = self.iterations + 1 >= limit or (show and k + 1 == steps)
            self._step(tolerance, last)

    def _step(self, tolerance: float, last: bool) -> None:  # noqa: ARG002  (always up to date)
        """Do an iteration; if it is the ``last``, x is up to date."""
        state, curvature = self._state, self._curvature()
        if not curvature > 0.0:
            state[STATUS] = BREAKDOWN
            return
        before = state[RHO]
        rho, rr = self._moved(before / curvature)
        state[ITERATIONS] += 1.0
        if not taken(state, rho, rho if self.natural else rr, tolerance):
            self._turn(rho / before)

    @abstractmethod
    def _begun(self) -> NDArray[np.float64]:
        """Set r = b - A x and p = M r; r.M r and r.r of all ranks."""

    @abstractmethod
    def _curvature(self) -> float:
        """Compute A p; p.A p of all ranks."""

    @abstractmethod
    def _moved(self, alpha: float) -> NDArray[np.float64]:
        """Update x += alpha p and r -= alpha A p; r.M r and r.r of all ranks."""

    @abstractmethod
    def _turn(self, beta: float) -> None:
        """Set p = M r + beta p."""
