"""Vectors of a preconditioner that is an iteration: where they are, and their updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

DType = np.dtype[Any]
Factors = tuple[float, float, float, float]
Ints = NDArray[np.int64]
Totals = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Totals (k,) of all ranks of the sums (k, m) of segments."""


class Directions(ABC):
    """Inner products and updates of vectors around a preconditioner of another type."""

    @abstractmethod
    def inner(self, a: Any, b: Any) -> float:
        """Inner product of a vector and one of the other type. Collective."""

    @abstractmethod
    def inners(self, a: Any, c: Any, b: Any) -> tuple[float, float]:
        """Inner products of two vectors with one of the other type. Collective, one message."""

    @abstractmethod
    def move(self, vectors: tuple[Any, ...], alpha: float, scale: float) -> float:
        """Update x += alpha p and r -= alpha product, set right = scale r; r.r. Collective.

        Parameters
        ----------
        vectors : (x, r, p, product, right)
        alpha, scale : float
        """

    @abstractmethod
    def turn(self, p: Any, z: Any, beta: float, scale: float) -> None:
        """Set p = scale z + beta p; z is of the other type."""


class CoarsestVectors(ABC):
    """Right-hand side and solution of the coarsest level, which the host solves.

    Attributes
    ----------
    right, found : arrays
        Where the cycle runs.
    """

    right: Any
    found: Any

    @abstractmethod
    def fetch(self) -> NDArray[np.float64]:
        """The right-hand side, on the host; waits for it."""

    @abstractmethod
    def give(self, solution: NDArray[np.float64]) -> None:
        """Put a solution of the host into `found`."""


class VectorUpdates(ABC):
    """Vectors of a machine, and their updates in a multigrid cycle.

    Attributes
    ----------
    xp : module
        NumPy's functions for them.
    repeats : bool
        Whether there is something to be gained by `repeatable`.
    """

    xp: ModuleType
    repeats: bool

    @abstractmethod
    def put(self, values: NDArray[Any]) -> Any:
        """An array of the host, where the vectors are."""

    @abstractmethod
    def vector(self, size: int, dtype: DType) -> Any:
        """A new vector of zeros; the host's are padded."""

    @abstractmethod
    def coarsest(self, size: int, dtype: DType) -> CoarsestVectors:
        """New vectors of the coarsest level."""

    @abstractmethod
    def step(
        self, old: Any, product: Any, right: Any, scales: Any, current: Any, factors: Factors
    ) -> None:
        """Set old = scales (a product + f right) + b current + c old, in one pass over memory.

        Parameters
        ----------
        old, product, right, scales, current : arrays
            Vectors of one type, made by `vector`; product, right and current may be None.
        factors : (a, f, b, c)
            Old is not read if c is zero.
        """

    @abstractmethod
    def directions(self, edges: Ints, total: Totals, real: DType, other: DType) -> Directions:
        """Inner products and updates around a preconditioner.

        Parameters
        ----------
        edges : (m + 1,) int64
            Where the segments begin in which vectors may be summed, and the end.
        total : callable
        real, other : dtype
            Of the vectors, and of the preconditioner's.
        """

    @abstractmethod
    def repeatable(self, work: Callable[[], None]) -> Callable[[], None]:
        """Work that was done once and is going to be done often, in the form that is fastest.

        It launches kernels and clears vectors, with the same arguments each time.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until all that was begun is done."""
