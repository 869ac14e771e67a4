"""Common base of all solves by conjugate gradients, wherever they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONVERGED, BREAKDOWN = 1, 2
BLOCK = 4096  # numbers of a block: 32 kB of float64, three vectors of it stay in cache


def block_edges(n: int) -> NDArray[np.int64]:
    """Edges of the blocks in which a vector of ``n`` numbers is summed, the end included."""
    return np.append(np.arange(0, n, BLOCK), n)


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

    @property
    def x(self) -> NDArray[Any]:
        """The iterate, a view."""
        iterate: NDArray[Any] = self._vectors[0, : len(self._b)]
        return iterate

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return max(0, int(self._state[0]))

    @property
    def residual(self) -> float:
        """Euclidean norm of the (recursive) residual."""
        return float(self._state[2])

    @property
    def status(self) -> int:
        """0 while running, else ``CONVERGED`` or ``BREAKDOWN``."""
        return int(self._state[3])
