"""Operations on vectors that are put down once and run many times."""

from femops.sequences.scalar import Scalar
from femops.sequences.sequence import OperationSequence

__all__ = ["OperationSequence", "Scalar"]
