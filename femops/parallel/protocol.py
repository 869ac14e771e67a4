"""What this package asks of whatever carries messages between ranks."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]


class Exchanger(Protocol):
    """Carries arrays between the ranks of a program.

    Both methods are collective: all ranks call them, in the same order.
    """

    @property
    def rank(self) -> int:
        """Which rank this is, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def exchange(self, messages: dict[int, Array]) -> dict[int, Array]:
        """Send an array to each of some ranks, which need not expect it; oneself may be one.

        Parameters
        ----------
        messages : dict
            To whom, and what: arrays of any type and shape.

        Returns
        -------
        dict
            What others have sent here by ascending rank, in the type and shape they have sent.
        """

    def gather_all(self, array: Array) -> Array:
        """Stack the arrays of all ranks, which have one shape and type, by rank: (size, ...)."""
