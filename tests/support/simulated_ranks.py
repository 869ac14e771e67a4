"""Ranks that are threads of one process, with a mailbox for a network."""

from __future__ import annotations

import functools
import sys
import threading
import warnings

import numpy as np

from femops.parallel.comm import Communicator, pieces
from femops.parallel.cores import Node
from femops_kernels.compiled import Channel


def _unlocked(self, instance, owner=None):
    if instance is None:
        return self
    if self.attrname not in instance.__dict__:
        instance.__dict__[self.attrname] = self.func(instance)
    return instance.__dict__[self.attrname]


if sys.version_info < (3, 12):
    # One lock for all instances until then: a rank that holds it, and waits for the others, waits
    # forever where ranks are threads.
    functools.cached_property.__get__ = _unlocked


TIMEOUT = 60.0
"""Seconds after which a rank that waits for the others gives up."""


class SimulatedRank(Communicator):
    """Counts what it sends and receives."""

    def __init__(self, rank, size, boxes, barrier):
        super().__init__(rank, size, Node.alone())
        self._boxes, self._wall = boxes, barrier
        self.sent = []  # dicts {rank: bytes}, one an exchange
        self.largest = 0  # bytes of all that arrived in one exchange, or was gathered

    def exchange(self, messages):
        copies = {rank: np.array(array) for rank, array in messages.items()}
        assert all(0 <= rank < self.size for rank in copies)
        self.sent.append({rank: array.nbytes for rank, array in copies.items()})
        boxes = self._everybody(("exchange", copies))
        arrived = {r: box[self.rank] for r, box in enumerate(boxes) if self.rank in box}
        self.largest = max(self.largest, sum(array.nbytes for array in arrived.values()))
        return arrived

    def channel(self, send, receive, dtype, memory=(None, None)):
        return SimulatedChannel(self, send, receive, dtype, memory)

    def gather_all(self, array, *, alike=False):
        stacked = np.stack(self._everybody(("gather_all", np.array(array))))
        self.largest = max(self.largest, stacked.nbytes)
        return stacked

    def sum(self, value):
        return sum(self._everybody(("sum", value)))

    def max(self, value):
        return np.max(self._everybody(("max", value)), axis=0)

    def broadcast(self, value, root=0):
        return self._everybody(("broadcast", value))[root]

    def barrier(self, nap=None):
        self._everybody(("barrier", None))

    def _everybody(self, contribution):
        self._boxes[self.rank] = contribution
        self._wall.wait(TIMEOUT)
        calls, values = zip(*self._boxes, strict=True)
        assert len(set(calls)) == 1, f"ranks call different things: {calls}"
        self._wall.wait(TIMEOUT)
        return values


class SimulatedChannel(Channel):
    """Whose messages are there when all have started."""

    def __init__(self, rank, send, receive, dtype, memory):
        self.outgoing, self._to = pieces(send, dtype, memory[0])
        self.incoming, self._from = pieces(receive, dtype, memory[1])
        self._rank, self._arrived = rank, {}

    def start(self):
        self._arrived = self._rank.exchange(self._to)

    def finish(self):
        assert self._arrived.keys() == self._from.keys()
        for rank, piece in self._from.items():
            piece[:] = self._arrived[rank]


def on_ranks(size, program):
    """``program(comm)`` on each of `size` ranks: their results by rank, and their comms.

    What a rank raises ends all; that of the lowest rank is raised here.
    """
    boxes, barrier = [None] * size, threading.Barrier(size)
    comms = [SimulatedRank(rank, size, boxes, barrier) for rank in range(size)]
    results, errors = [None] * size, [None] * size

    def run(comm):
        try:
            results[comm.rank] = program(comm)
        except threading.BrokenBarrierError as error:
            errors[comm.rank] = error
        except BaseException as error:  # noqa: BLE001
            errors[comm.rank] = error
            barrier.abort()

    threads = [threading.Thread(target=run, args=(comm,), daemon=True) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT)
        assert not thread.is_alive(), "a rank does not end"
    raised = [error for error in errors if error is not None]
    own = [error for error in raised if not isinstance(error, threading.BrokenBarrierError)]
    if raised:
        raise (own or raised)[0]
    return results, comms


def quietly(size, program):
    """Of each rank, whatever is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return on_ranks(size, program)
