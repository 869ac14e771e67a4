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
"""{rank: numbers for it, or from it}."""
Kind = np.dtype[Any]
Memory = tuple[Any, Any]
"""Flat arrays to send from and to receive into; None for a new array of the host."""
NEW: Memory = (None, None)


def pieces(sizes: Sizes, dtype: Kind, whole: Any = None) -> tuple[Any, dict[int, Any]]:
    """An array for the messages of some ranks, and the piece (a view) of each, by rank.

    Parameters
    ----------
    sizes : mapping
        Numbers of each rank.
    dtype : numpy.dtype
    whole : array, optional
        Array of as many numbers as all of them; a new one if omitted.
    """
    if whole is None:
        whole = np.zeros(sum(sizes.values()), dtype)
    found, begin = {}, 0
    for rank in sorted(rank for rank, size in sizes.items() if size):
        found[rank] = whole[begin : begin + sizes[rank]]
        begin += sizes[rank]
    return whole, found


@final
class SilentChannel(Channel):
    """A channel without messages."""

    def __init__(self, send: Sizes, receive: Sizes, dtype: Kind, memory: Memory = NEW) -> None:
        self.outgoing, _ = pieces(send, dtype, memory[0])
        self.incoming, _ = pieces(receive, dtype, memory[1])

    def start(self) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


@final
class MpiChannel(Channel):
    """Persistent requests of MPI, one message for each rank.

    Ranks make their channels, and start them, in the same order.

    Parameters
    ----------
    raw : mpi4py.MPI.Intracomm
    send, receive : mapping
        {rank: numbers}.
    dtype : numpy.dtype
    memory : (array, array), optional
        Arrays to send from and to receive into; of a GPU, if MPI takes that.

    Attributes
    ----------
    waited : float
        Seconds that `finish` has waited, altogether.
    messages, nbytes : int
        Messages that `start` has sent, altogether, and the bytes in them.
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
        # first what is received: a message then goes where it belongs without a copy
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
        """See `Channel.start`."""
        self._start(self._requests)
        self.messages += self._to
        self.nbytes += self.outgoing.nbytes

    def finish(self) -> None:
        """See `Channel.finish`."""
        begin = perf_counter()
        self._wait(self._requests)
        self.waited += perf_counter() - begin


def _free(requests: list[Any]) -> None:
    """Free the MPI requests of a channel that is gone."""
    if not launch.mpi().Is_finalized():
        for request in requests:
            request.Free()


# `Mpi.exchange` has 0 and 1
_TAG = 2
