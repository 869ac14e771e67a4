"""Sums of residuals and of functionals, with factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from femops.errors import OperatorError
from femops.operators.matrix_free import ONE_SPACE
from femops_common.arguments import shown


class Summable(ABC):
    """Base class of residuals and functionals, which can be added, subtracted and scaled.

    All terms of a sum have the same class, space and type.
    """

    __array_ufunc__ = None  # NumPy must not multiply entry by entry: array * residual is refused
    space: Any
    dtype: np.dtype[Any]
    _remedies: ClassVar[Mapping[type, str]] = {}  # advice in place of adding an object of a type

    @abstractmethod
    def _plus(self, other: Self) -> Self:
        """Sum of this object and another object of the same space and type."""

    @abstractmethod
    def _times(self, factor: float) -> Self:
        """Product of this object and a finite nonzero number."""

    def _check_summand(self, other: Any) -> None:
        """Raise an error with the remedy for an object that cannot be added."""
        for kind, remedy in self._remedies.items():
            if isinstance(other, kind):
                what = shown(other) if isinstance(other, np.ndarray) else other
                raise OperatorError(f"{self!r} and {what} can't be added: {remedy}")

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
