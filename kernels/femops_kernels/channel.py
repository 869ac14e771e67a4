"""Carriers of numbers between ranks, as compiled work sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import NDArray


class Channel(ABC):
    """Messages of fixed size to some ranks and from some, again and again.

    Attributes
    ----------
    outgoing, incoming : (n,) arrays
        Numbers to send and numbers that arrived: a contiguous piece per rank, by ascending rank.
    """

    outgoing: NDArray[Any]
    incoming: NDArray[Any]

    @abstractmethod
    def start(self) -> None:
        """Send what stands in ``outgoing``, which must not be written before `finish`."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until ``incoming`` is there."""


@final
@dataclass(frozen=True)
class Route:
    """Messages that a launch needs.

    Attributes
    ----------
    forwards, reverses : tuple of int or None
        Which of a `DistributedOperator`'s exchanges bring the ghosts of each field that it reads,
        and take its contributions of each test function; None where ranks share no dofs.
    """

    forwards: tuple[int | None, ...] = ()
    reverses: tuple[int | None, ...] = ()
