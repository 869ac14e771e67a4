"""Sums of residuals and of functionals, with factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Real
from typing import Any, Self

import numpy as np

from femops.errors import OperatorError

ONE_SPACE = "make both with one dtype, and from one space (the same object, not an equal one)"
"""What to do if operators can't be added because they differ in spaces or types."""


class Summable(ABC):
    """Base class of residuals and functionals, which can be added, subtracted and scaled.

    All terms of a sum have the same class, space and type.

    Attributes
    ----------
    space : Space or Product
    dtype : numpy.dtype
    """

    __array_ufunc__ = None  # NumPy must not multiply entry by entry: array * residual is refused
    space: Any
    dtype: np.dtype[Any]

    @abstractmethod
    def _plus(self, other: Self) -> Self:
        """Sum of this object and another object of the same space and type."""

    @abstractmethod
    def _times(self, factor: float) -> Self:
        """Product of this object and a finite nonzero number."""

    def _check_summand(self, other: Any) -> None:
        """Raise an error with a remedy for objects that users often try to add."""

    def __add__(self, other: Any) -> Any:
        self._check_summand(other)
        if not isinstance(other, type(self)):
            return NotImplemented
        if self.space is not other.space or self.dtype != other.dtype:
            raise OperatorError(
                f"{self!r} and {other!r} are on different spaces or of different types: they can't "
                f"be added; {ONE_SPACE}"
            )
        return self._plus(other)

    def __radd__(self, other: Any) -> Any:
        self._check_summand(other)
        # sum() begins with 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Any) -> Any:
        self._check_summand(other)
        return self + -1.0 * other if isinstance(other, type(self)) else NotImplemented

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        scale = float(factor)
        if not np.isfinite(scale) or scale == 0.0:
            raise OperatorError(f"{self!r} times {scale}: give a finite number other than zero")
        return self._times(scale)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> Any:
        if isinstance(factor, bool) or not isinstance(factor, Real) or not float(factor):
            return NotImplemented
        return self * (1.0 / float(factor))

    def __neg__(self) -> Any:
        return -1.0 * self
