"""Channels: repeated messages of fixed size between the same ranks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from time import perf_counter
from typing import Any, final

import numpy as np

from femops.parallel import launch
from femops_kernels.channel import Channel

Sizes = Mapping[int, int]
"""{rank: count of numbers to send to, or to receive from, the rank}."""
Kind = np.dtype[Any]
Memory = tuple[Any, Any]
"""Flat arrays to send from and to receive into. None stands for a new array of the host."""
NEW: Memory = (None, None)


def pieces(sizes: Sizes, dtype: Kind, whole: Any = None) -> tuple[Any, dict[int, Any]]:
    """Return a flat array for messages, and a view of each rank's message, by rank."""
    if whole is None:
        whole = np.zeros(sum(sizes.values()), dtype)
    found, begin = {}, 0
    for rank in sorted(rank for rank, size in sizes.items() if size):
        found[rank] = whole[begin : begin + sizes[rank]]
        begin += sizes[rank]
    return whole, found


@final
class SilentChannel(Channel):
    """Channel without messages."""

    def __init__(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> None:
        self.outgoing, _ = pieces(send, dtype, memory[0])
        self.incoming, _ = pieces(receive, dtype, memory[1])

    def start(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


@final
class MpiChannel(Channel):
    """Channel of persistent MPI requests, with one message for each rank.

    All ranks must make and start their channels in the same order.
    """

    def __init__(
        self, raw: Any, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW
    ) -> None:
        mpi = launch.mpi()
        self.outgoing, to = pieces(send, dtype, memory[0])
        self.incoming, source = pieces(receive, dtype, memory[1])
        self.waited, self.messages, self.nbytes = 0.0, 0, 0
        self._to = len(to)
        self._start, self._wait = mpi.Prequest.Startall, mpi.Request.Waitall
        # receives first: a message then arrives in its array without a copy
        self._requests = [
            raw.Recv_init([piece.view(np.uint8), mpi.BYTE], rank, _TAG)
            for rank, piece in source.items()
        ]
        self._requests += [
            raw.Send_init([piece.view(np.uint8), mpi.BYTE], rank, _TAG)
            for rank, piece in to.items()
        ]
        weakref.finalize(self, _free, self._requests)

    def start(self) -> None:
        self._start(self._requests)
        self.messages += self._to
        self.nbytes += self.outgoing.nbytes

    def finish(self) -> None:
        begin = perf_counter()
        self._wait(self._requests)
        self.waited += perf_counter() - begin


def _free(requests: list[Any]) -> None:
    """Free the MPI requests of a deleted channel."""
    if not launch.mpi().Is_finalized():
        for request in requests:
            request.Free()


# `Mpi.exchange` uses tags 0 and 1
_TAG = 2
