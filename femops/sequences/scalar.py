"""Numbers that the operations of a sequence read and write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray


@final
@dataclass(eq=False)
class Scalar:
    """A number of a sequence, times a factor.

    It is made by `OperationSequence.scalar`, and multiplied by numbers as in ``0.5 * dt``.

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
        return replace(self, factor=self.factor * float(factor))

    __rmul__ = __mul__

    @property
    def value(self) -> float:
        """The number, times the factor."""
        return self.factor * float(self.values[self.number])

    @value.setter
    def value(self, value: float) -> None:
        self.values[self.number] = value / self.factor
