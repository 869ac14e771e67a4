"""What messages between GPUs ask of CuPy, done by MPI as late as can be: too early a look shows."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.parallel import launch
from femops_kernels.cuda.device.nccl import NcclNetwork
from femops_kernels.device import Device


def network_of(device: Device, host: Any) -> NcclNetwork:
    """A network of a device for tests whose kernels are run by a `HostDevice`."""
    stand_in = StandIn(host)
    return NcclNetwork(device, nullcontext(), stand_in, stand_in)


@final
class StandIn:
    """The modules ``cupy.cuda`` and ``cupy.cuda.nccl``, as far as a `NcclNetwork` uses them.

    Kernels are run to their end when they are launched, messages when something waits for them.
    Until then what arrives is not a number, and what is sent must not be written. A message must be
    behind all kernels that were launched before it.

    Parameters
    ----------
    host : HostDevice
        Its number of launches tells what has to be waited for.
    """

    NCCL_UINT8 = 1

    class NcclError(RuntimeError):
        """A call that NCCL refuses."""

    def __init__(self, host: Any) -> None:
        self.kernels, self.messages = KernelStream(host), MessageStream(host)
        self.group: list[Message] | None = None

    def Stream(self, *, non_blocking: bool, priority: int) -> MessageStream:
        """The stream of messages; no other is asked for."""
        assert non_blocking
        assert priority < 0
        return self.messages

    def get_current_stream(self) -> KernelStream:
        return self.kernels

    def Event(self, *, disable_timing: bool) -> Event:
        assert disable_timing
        return Event()

    def get_unique_id(self) -> bytes:
        """Another one each time."""
        return np.random.default_rng().bytes(128)

    def NcclCommunicator(self, ranks: int, key: bytes, rank: int) -> NcclCommunicator:
        """Waits for all ranks, which have the same key."""
        raw = launch.mpi().COMM_WORLD.Dup()
        assert (ranks, rank) == (raw.size, raw.rank)
        assert raw.allgather(key) == [key] * ranks
        assert len(key) == 128
        return NcclCommunicator(self, raw)

    def groupStart(self) -> None:
        assert self.group is None
        self.group = []

    def groupEnd(self) -> None:
        assert self.group
        self.messages.enqueue(self.group)
        self.group = None


@final
class NcclCommunicator:
    """Messages between ranks, each begun at once, but not finished."""

    def __init__(self, stand_in: StandIn, raw: Any) -> None:
        self._stand_in, self._raw = stand_in, raw

    def send(self, address: int, count: int, kind: int, rank: int, stream: int) -> None:
        there = self._there(address, count, kind, stream)
        sent = there.copy()
        self._add(Message(self._raw.Isend(sent, rank), there, sent, arrives=False))

    def recv(self, address: int, count: int, kind: int, rank: int, stream: int) -> None:
        there = self._there(address, count, kind, stream)
        there[:] = 0xFF  # not a number
        received = np.empty_like(there)
        self._add(Message(self._raw.Irecv(received, rank), there, received, arrives=True))

    def _there(self, address: int, count: int, kind: int, stream: int) -> NDArray[np.uint8]:
        assert (kind, stream) == (StandIn.NCCL_UINT8, MessageStream.ptr)
        return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)

    def _add(self, message: Message) -> None:
        assert self._stand_in.group is not None
        self._stand_in.group.append(message)


@final
@dataclass
class Message:
    """A message that is under way: its request, the device's memory, and that of the request."""

    request: Any
    there: NDArray[np.uint8]
    here: NDArray[np.uint8]
    arrives: bool

    def finish(self) -> None:
        """Wait for it."""
        self.request.Wait()
        if self.arrives:
            self.there[:] = self.here
        else:
            assert np.array_equal(self.there, self.here), "written before it was sent"


@final
class Event:
    """A place in a stream."""

    stream: Any = None
    place = 0

    def record(self, stream: KernelStream | MessageStream) -> None:
        """Set it behind all that the stream has."""
        self.stream, self.place = stream, stream.length


@final
class KernelStream:
    """The stream of kernels, which have run as soon as they are launched."""

    def __init__(self, host: Any) -> None:
        self._host = host

    @property
    def length(self) -> int:
        """Kernels that were launched."""
        return int(self._host.launches)

    def wait_event(self, event: Event) -> None:
        """Have all messages before it done."""
        event.stream.work(event.place)


@final
class MessageStream:
    """The stream of messages, which are done when something waits for them."""

    ptr = 7

    def __init__(self, host: Any) -> None:
        self._host, self._behind, self._done = host, -1, 0
        self._groups: list[list[Message]] = []

    @property
    def length(self) -> int:
        """Groups of messages that were enqueued."""
        return self._done + len(self._groups)

    def wait_event(self, event: Event) -> None:
        """Have all that follows behind the kernels before it."""
        assert isinstance(event.stream, KernelStream)
        self._behind = event.place

    def enqueue(self, group: list[Message]) -> None:
        """Have messages done some time."""
        assert self._behind == self._host.launches, "a message is not behind the last kernel"
        self._groups.append(group)

    def work(self, place: int) -> None:
        """Do all before a place."""
        while self._done < place:
            for message in self._groups.pop(0):
                message.finish()
            self._done += 1
