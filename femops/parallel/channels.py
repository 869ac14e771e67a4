"""Channels: messages of fixed size between the same ranks, again and again."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.parallel import launch
from femops_kernels.channel import Channel

Array = NDArray[Any]


def pieces(sizes: Mapping[int, int], dtype: np.dtype[Any]) -> tuple[Array, dict[int, Array]]:
    """An array for the messages of some ranks, and the piece (a view) of each, by rank."""
    ranks = sorted(rank for rank, size in sizes.items() if size)
    ends = np.cumsum([sizes[rank] for rank in ranks], dtype=np.int64)
    whole = np.zeros(int(ends[-1]) if ranks else 0, dtype)
    return whole, dict(zip(ranks, np.split(whole, ends[:-1]), strict=True)) if ranks else {}


@final
class SilentChannel(Channel):
    """A channel to nobody."""

    def __init__(
        self, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
    ) -> None:
        self.outgoing, _ = pieces(send, dtype)
        self.incoming, _ = pieces(receive, dtype)

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

    Attributes
    ----------
    waited : float
        Seconds that `finish` has waited, altogether.
    messages, nbytes : int
        Messages that `start` has sent, altogether, and the bytes in them.
    """

    def __init__(
        self, raw: Any, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
    ) -> None:
        mpi = launch.mpi()
        self.outgoing, to = pieces(send, dtype)
        self.incoming, source = pieces(receive, dtype)
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
    """Give back what MPI keeps for a channel that is gone."""
    if not launch.mpi().Is_finalized():
        for request in requests:
            request.Free()


# `Mpi.exchange` has 0 and 1
_TAG = 2
