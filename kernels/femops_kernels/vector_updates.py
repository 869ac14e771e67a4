"""Interfaces for updates of vectors: weighted sums, and those of multigrid cycles.

The vectors of multigrid cycles have memory and inner products of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

DType = np.dtype[Any]
Factors = tuple[float, float, float, float]
Ints = NDArray[np.int64]
Totals = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Function that takes this rank's sums (k, segments) and returns the totals (k,) of all ranks."""
WeightedSum = tuple[Any, Sequence[tuple[float, Any]], tuple[float, Any] | None]
"""A vector that is set, the terms of its sum, and a mean or None; all vectors are (n,) arrays.

A term is a weight and a vector. With the mean (share, vector) the vector becomes
sum + share (vector - sum).
"""


class Directions(ABC):
    """Inner products and updates of conjugate gradients around a preconditioner.

    The vectors of the preconditioner may have another dtype than those of conjugate gradients.
    """

    @abstractmethod
    def inner(self, a: Any, b: Any) -> float:
        """Inner product of a vector a and a preconditioner's vector b, both (n,). Collective."""

    @abstractmethod
    def inners(self, a: Any, c: Any, b: Any) -> tuple[float, float]:
        """Inner products of two vectors a and c with a preconditioner's vector b, all (n,).

        Collective, with one message for both.
        """

    @abstractmethod
    def move(self, vectors: tuple[Any, ...], alpha: float, scale: float) -> float:
        """Set x += alpha p, r -= alpha product and right = scale r. Return r.r. Collective.

        Shapes: `vectors` (x, r, p, product, right).
        """

    @abstractmethod
    def turn(self, p: Any, z: Any, beta: float, scale: float) -> None:
        """Set p = scale z + beta p, where z is a preconditioner's vector; both (n,)."""


class CoarsestVectors(ABC):
    """Right-hand side and solution of the coarsest level, whose system the host solves."""

    # right and found are (n,): right-hand side and solution, in the memory of the cycle's other
    # vectors
    right: Any
    found: Any

    @abstractmethod
    def fetch(self) -> NDArray[np.float64]:
        """Wait until the right-hand side is computed, and return a copy (n,) on the host."""

    @abstractmethod
    def give(self, solution: NDArray[np.float64]) -> None:
        """Copy a solution (n,) from the host to `found`."""


class VectorUpdates(ABC):
    """Vectors of a multigrid cycle on the host or on a device, and their updates."""

    xp: ModuleType  # NumPy's functions for the vectors
    repeats: bool  # True if work from `repeatable` is faster than the original

    @abstractmethod
    def put(self, values: NDArray[Any]) -> Any:
        """Copy an array (n,) from the host to the memory of the vectors; the host returns it."""

    @abstractmethod
    def vector(self, size: int, dtype: DType) -> Any:
        """Make a vector (size,) of zeros. On the host it is padded to whole cache lines."""

    @abstractmethod
    def coarsest(self, size: int, dtype: DType) -> CoarsestVectors:
        """Make the vectors of the coarsest level, (size,)."""

    @abstractmethod
    def step(
        self, old: Any, product: Any, right: Any, scales: Any, current: Any, factors: Factors
    ) -> None:
        """Set old = scales (a product + f right) + b current + c old, in one pass over memory.

        Shapes: `old`, `product`, `right`, `scales`, `current` (n,), `factors` (a, f, b, c).
        """

    @abstractmethod
    def directions(self, edges: Ints, total: Totals, real: DType, other: DType) -> Directions:
        """Make the inner products and updates of conjugate gradients around a preconditioner.

        Shapes: `edges` (segments + 1,).
        """

    @abstractmethod
    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats ``work``, in less time if `repeats` is True.

        The work must have been done once.  It may only launch kernels and clear vectors, with the
        same arguments each time.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until all launched updates are done."""
