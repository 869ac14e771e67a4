"""Numbers that the operations of a sequence read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops_meshes.arguments import number_of, shown


@final
@dataclass(eq=False, repr=False)
class Scalar:
    """A number of a sequence, times a factor.

    It is made by `OperationSequence.scalar`, and multiplied by numbers as in ``0.5 * dt``,
    ``dt / 6`` and ``-dt``.

    Attributes
    ----------
    values : float64 array
        All numbers of the sequence.
    number : int
        Its place among them.
    factor : float
    """

    values: NDArray[np.float64]
    number: int
    factor: float = 1.0

    def __mul__(self, factor: float) -> Scalar:
        number = number_of(factor)
        return NotImplemented if number is None else replace(self, factor=self.factor * number)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Scalar:
        number = number_of(divisor)
        if number is None:
            return NotImplemented
        if not number:
            raise OperatorError("a scalar divided by zero is no number: give another divisor")
        return replace(self, factor=self.factor / number)

    def __neg__(self) -> Scalar:
        return self * -1.0

    @property
    def value(self) -> float:
        """The number, times the factor."""
        return self.factor * float(self.values[self.number])

    @value.setter
    def value(self, value: float) -> None:
        number, factor = number_of(value), self.factor
        if number is None:
            raise OperatorError(f"value is {shown(value)}: give a number")
        found = number / factor if factor else math.nan
        if not (math.isfinite(factor) and factor) or (_plain(number) and not _plain(found)):
            raise OperatorError(
                f"a scalar times {factor:g} can't be set to {number:g}: set the scalar itself"
            )
        self.values[self.number] = found

    def __repr__(self) -> str:
        return f"Scalar({self.value!r})"


def _plain(number: float) -> bool:
    """True if a number is finite and not zero."""
    return math.isfinite(number) and number != 0.0
