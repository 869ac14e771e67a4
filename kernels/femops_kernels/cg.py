"""Base classes of solves by conjugate gradients, for the host and for devices."""

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
"""Positions of an action's sums among all sums, by the number of its sums. All others are NaN."""


def segment_edges(n: int) -> NDArray[np.int64]:
    """First entry of each segment of a vector of ``n`` numbers, then n: (segments + 1,)."""
    return np.append(np.arange(0, n, SEGMENT), n)


class Reduction(ABC):
    """Sum over the entries of vectors of which each rank has a piece."""

    # (segments + 1,): first entry of each segment of this rank's piece, then the length of the
    # piece.  Each segment is summed by itself.
    edges: NDArray[np.int64]
    many: bool  # True if there are several ranks, or if one rank must sum in the order of several

    @abstractmethod
    def __call__(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        """Totals (k,) over all ranks, from this rank's sums (k, segments). Collective."""


class Solve(ABC):
    """One solve by conjugate gradients. ``skeletons/cg/decisions.py`` chooses its next action.

    Shapes: `state` (n,).
    """

    # number of steps for which a call of `advance` is fastest.  If None, the caller chooses a
    # number of steps that take much longer than a call of Python.
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

        Shapes: `b` (n,), `x` (n,).
        """

    def _renew(self, *, guessed: bool) -> None:
        """Reset the state, so that the next action is the start."""
        self._state[: at.GOAL] = 0.0
        self._state[[at.ITERATIONS, at.RHO, at.DROP, at.RELATIVE]] = -1.0, np.inf, guessed, 0.0

    @abstractmethod
    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """Iterate until the residual's norm is at most ``tolerance``.

        This call does at most ``steps`` iterations, and all calls together at most ``limit``.  If
        ``show`` is False, x may lack its last updates until the solve ends, which can be faster.
        """

    def group(self, others: Sequence[Solve]) -> SolveGroup | None:  # noqa: ARG002
        """Group that runs this solve and others at once; None if they can't form a group."""
        return None

    @property
    def x(self) -> NDArray[Any]:
        """View of the iterate, (n,)."""
        iterate: NDArray[Any] = self._vectors[0, : len(self._b)]
        return iterate

    @property
    def right(self) -> NDArray[Any]:
        """Right-hand side, (n,)."""
        return self._b

    @property
    def iterations(self) -> int:
        """Number of iterations done."""
        return max(0, int(self._state[at.ITERATIONS]))

    @property
    def norms(self) -> tuple[float, float]:
        """Two norms of the first residual: that of `residual`, and the Euclidean norm."""
        return float(self._state[at.FIRST]), float(self._state[at.NORM])

    @property
    def residual(self) -> float:
        """Norm of the residual, which each iteration updates without computing b - A x."""
        return float(self._state[at.RESIDUAL])

    @property
    def status(self) -> int:
        """0 while the solve runs, then ``CONVERGED`` or ``BREAKDOWN``."""
        return int(self._state[at.STATUS])


class SolveGroup(ABC):
    """Solves that run at the same time. One thread at a time works on each solve."""

    @abstractmethod
    def restart(
        self, rights: Sequence[NDArray[Any]], relative: float, least: Sequence[float]
    ) -> None:
        """Begin all solves again from zero, with other right-hand sides.

        Shapes: `rights` (n,).
        """

    @abstractmethod
    def advance(self, limit: int, tolerances: Sequence[float] | None = None) -> None:
        """Iterate until all solves end, or have done ``limit`` iterations."""

    @abstractmethod
    def instruction(
        self,
        rights: Sequence[NDArray[Any]],
        relative: float,
        least: Sequence[float],
        limit: int,
        done: NDArray[np.float64],
    ) -> Instruction:
        """Instruction that does the same as `restart` and `advance` in a sequence.

        The instruction ends the sequence if a solve breaks down, or if a right-hand side has
        entries that are not finite or whose squares underflow.

        Shapes: `done` (1,).
        """


def between_messages(
    state: NDArray[np.float64],
    steps: int,
    show: bool,
    act: Callable[[int], NDArray[np.float64]],
) -> None:
    """Iterate as `Solve.advance`, with inner products summed over many ranks. All ranks call it.

    Shapes: `state` (n,).
    """
    sums, action = np.full(at.NSUMS, np.nan), first(state, steps, show)
    while action != at.STOP:
        totals = act(action)
        sums[at.S_RHO] = state[at.RHO]  # a sweep that is not merged does not compute it
        sums[_PLACES[len(totals)]] = totals
        action = following(state, action, sums)
