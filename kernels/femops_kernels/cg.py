"""Common base of all solves by conjugate gradients, wherever they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_kernels.instruction import Instruction
from femops_kernels.skeletons.cg import cg_state as at
from femops_kernels.skeletons.cg.cg_state import BREAKDOWN, CONVERGED, LEAST_NORM
from femops_kernels.skeletons.cg.decisions import first, following

__all__ = [
    "BREAKDOWN",
    "CONVERGED",
    "LEAST_NORM",
    "Reduction",
    "Solve",
    "SolveGroup",
    "between_messages",
    "segment_edges",
]

SEGMENT = 4096  # numbers of a segment: 32 kB of float64, three vectors of it stay in cache

_PLACES = {0: [], 1: [at.S_PV], 2: [at.S_RHO, at.S_RR], at.NSUMS: [*range(at.NSUMS)]}
"""Where among all sums those of an action are, by their number; the others are not a number."""


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
    """One solve by conjugate gradients; its state machine is ``skeletons/cg/decisions.py``.

    Parameters
    ----------
    state : (n,) float64
        Zeros to begin with, of at least the entries of ``skeletons/cg/cg_state.py``.
    natural, merged : bool
        See `CompiledOperator.conjugate_gradients`.
    scale : float
        The operator, divided by that of merged sweeps.

    Attributes
    ----------
    merged : bool
        Whether vectors are updated inside the operator's sweep.
    every : int or None
        Steps of a call of `advance` that suit it best; None if as many as take a while.
    """

    every: int | None = None
    _b: NDArray[Any]
    _vectors: NDArray[Any]

    def __init__(
        self, state: NDArray[np.float64], *, natural: bool, merged: bool, scale: float = 1.0
    ) -> None:
        self.merged, self._state = merged, state
        state[[at.NATURAL, at.MERGED, at.SCALE]] = natural, merged, scale

    @abstractmethod
    def restart(self, b: NDArray[Any], x: NDArray[Any] | None) -> None:
        """Begin again with another right-hand side and first guess. All ranks call it.

        Without a first guess x begins with zero, and no product with the operator is needed.
        """

    def _renew(self, *, guessed: bool) -> None:
        """Set the state to that before the beginning."""
        self._state[: at.GOAL] = 0.0
        self._state[[at.ITERATIONS, at.RHO, at.DROP, at.RELATIVE]] = -1.0, np.inf, guessed, 0.0

    @abstractmethod
    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """Iterate until the residual's norm is at most ``tolerance``.

        At most ``steps`` iterations are added, and ``limit`` done in all.  Without ``show`` x may
        be some updates behind, if that is faster, until the iteration has come to its end.
        """

    def group(self, others: Sequence[Solve]) -> SolveGroup | None:  # noqa: ARG002
        """Group of this solve and others, to be done at once; None where that can't be."""
        return None

    @property
    def x(self) -> NDArray[Any]:
        """The iterate, a view."""
        iterate: NDArray[Any] = self._vectors[0, : len(self._b)]
        return iterate

    @property
    def right(self) -> NDArray[Any]:
        """The right-hand side."""
        return self._b

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return max(0, int(self._state[at.ITERATIONS]))

    @property
    def norms(self) -> tuple[float, float]:
        """Norm of the residual at the start, and its Euclidean norm there."""
        return float(self._state[at.FIRST]), float(self._state[at.NORM])

    @property
    def residual(self) -> float:
        """Norm of the (recursive) residual."""
        return float(self._state[at.RESIDUAL])

    @property
    def status(self) -> int:
        """0 while running, else ``CONVERGED`` or ``BREAKDOWN``."""
        return int(self._state[at.STATUS])


class SolveGroup(ABC):
    """Solves that go on at once, each worked on by one thread at a time."""

    @abstractmethod
    def restart(
        self, rights: Sequence[NDArray[Any]], relative: float, least: Sequence[float]
    ) -> None:
        """Begin again from zero, until residuals are ``relative`` times those of the start.

        They need not go below ``least``, one for each solve.
        """

    @abstractmethod
    def advance(self, limit: int, tolerances: Sequence[float] | None = None) -> None:
        """Go on to the ends, or to so many iterations.

        ``tolerances`` are needed of solves that were begun one by one.
        """

    @abstractmethod
    def instruction(
        self,
        rights: Sequence[NDArray[Any]],
        relative: float,
        least: Sequence[float],
        limit: int,
        done: NDArray[np.float64],
    ) -> Instruction:
        """The solves of a sequence, as `restart` and `advance` do them.

        Iterations are added to the number in ``done``.

        It ends the sequence where a solve has broken down, or its right-hand side has entries that
        are not finite or whose squares underflow.
        """


def between_messages(
    state: NDArray[np.float64],
    steps: int,
    show: bool,
    act: Callable[[int], NDArray[np.float64]],
) -> None:
    """Iterate as `Solve.advance` where sums are those of many ranks. All ranks call it.

    Parameters
    ----------
    state : float64 array
    steps, show
        See `Solve.advance`.
    act : callable
        Does an action, and gives its sums: p.A p of a sweep, or all of a merged one; r.M r and r.r
        of a move or the start; none of a turn.
    """
    sums, action = np.full(at.NSUMS, np.nan), first(state, steps, show)
    while action != at.STOP:
        totals = act(action)
        sums[at.S_RHO] = state[at.RHO]  # of a sweep that is not merged
        sums[_PLACES[len(totals)]] = totals
        action = following(state, action, sums)
