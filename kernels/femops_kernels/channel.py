"""Channels that carry numbers between ranks, and the exchanges that a launch needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import NDArray


class Channel(ABC):
    """Channel that repeats an exchange of messages of fixed size with some other ranks."""

    # outgoing and incoming are (n,): numbers to send, and numbers received.  Each rank has a
    # contiguous piece, by ascending rank.
    outgoing: NDArray[Any]
    incoming: NDArray[Any]

    @abstractmethod
    def start(self) -> None:
        """Begin to send ``outgoing``. Do not write to it before `finish` has returned."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all numbers of ``incoming`` have arrived."""


@final
@dataclass(frozen=True)
class Route:
    """Exchanges that a launch needs, by their numbers in a `DistributedOperator`."""

    # for each field of the launch, the forward exchange that brings its ghosts.  None if ranks
    # share no dofs of the field.
    forwards: tuple[int | None, ...] = ()
    # for each test function, the reverse exchange that takes the contributions to ghosts
    reverses: tuple[int | None, ...] = ()
