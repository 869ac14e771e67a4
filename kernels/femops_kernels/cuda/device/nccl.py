"""Messages between GPUs by NCCL, in the order of a stream, called through CuPy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, final

import numpy as np

from femops_kernels.device import Device, DeviceChannel, Network
from femops_kernels.errors import DeviceError

Messages = Sequence[tuple[int, int, int]]
"""Address, number of bytes and other rank of each message."""

_FIRST = -1  # high priority of a stream: its few blocks need not wait for all blocks of a kernel


def library() -> Any:
    """The module ``cupy.cuda.nccl``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where the library is missing
        from cupy.cuda import nccl
    if not nccl.available:
        raise DeviceError(
            "CuPy finds no NCCL that it can load (there is one for Linux only): "
            "pip install nvidia-nccl-cu13, or nvidia-nccl-cu12 with cupy-cuda12x"
        )
    return nccl


@final
class NcclNetwork(Network):
    """Network of GPUs that send by NCCL."""

    def __init__(
        self, device: Device, current: AbstractContextManager[Any], cuda: Any, nccl: Any
    ) -> None:
        self._device, self._current, self._cuda, self._nccl = device, current, cuda, nccl

    def key(self) -> bytes:
        with self._named_errors():
            key: bytes = self._nccl.get_unique_id()
        return key

    def join(self, key: bytes, rank: int, ranks: int) -> None:
        with self._current, self._named_errors():
            self._ranks = self._nccl.NcclCommunicator(ranks, key, rank)
            # one stream for all channels: NCCL wants messages in the same order on all ranks
            self._stream = self._cuda.Stream(non_blocking=True, priority=_FIRST)
            self._launched = self._cuda.Event(disable_timing=True)

    def channel(
        self, send: Mapping[int, int], receive: Mapping[int, int], dtype: np.dtype[Any]
    ) -> DeviceChannel:
        with self._current:
            out, into = (
                self._device.xp.zeros(sum(sizes.values()), dtype) for sizes in (send, receive)
            )
            arrived = self._cuda.Event(disable_timing=True)
        sent, received = (
            _messages(self._device.address(array) if array.size else 0, sizes, dtype)
            for array, sizes in ((out, send), (into, receive))
        )
        return NcclChannel(self, out, into, sent, received, arrived)

    def exchange(self, sent: Messages, received: Messages, arrived: Any) -> None:
        """Launch messages after all work of CuPy's current stream, then record ``arrived``.

        The host waits only for the first messages between two ranks, until both ranks take part.
        """
        nccl, ranks, stream = self._nccl, self._ranks, self._stream
        with self._current, self._named_errors():
            self._launched.record(self._cuda.get_current_stream())
            stream.wait_event(self._launched)
            nccl.groupStart()
            try:
                for address, nbytes, rank in received:
                    ranks.recv(address, nbytes, nccl.NCCL_UINT8, rank, stream.ptr)
                for address, nbytes, rank in sent:
                    ranks.send(address, nbytes, nccl.NCCL_UINT8, rank, stream.ptr)
            finally:
                nccl.groupEnd()
            arrived.record(stream)

    def wait(self, arrived: Any) -> None:
        """Make CuPy's current stream wait for an event."""
        with self._current:
            self._cuda.get_current_stream().wait_event(arrived)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except self._nccl.NcclError as error:
            raise DeviceError(f"NCCL failed on {self._device.name}: {error}") from error


def _messages(begin: int, sizes: Mapping[int, int], dtype: np.dtype[Any]) -> Messages:
    """Messages in an array that begins at an address, by ascending rank, from {rank: numbers}."""
    messages = []
    for rank in sorted(rank for rank, size in sizes.items() if size):
        messages.append((begin, sizes[rank] * dtype.itemsize, rank))
        begin += sizes[rank] * dtype.itemsize
    return messages


@final
class NcclChannel(DeviceChannel):
    """A channel of a `NcclNetwork`."""

    def __init__(
        self,
        network: NcclNetwork,
        outgoing: Any,
        incoming: Any,
        sent: Messages,
        received: Messages,
        arrived: Any,
    ) -> None:
        self.outgoing, self.incoming = outgoing, incoming
        self._network, self._sent, self._received = network, sent, received
        self._arrived = arrived

    def ready(self) -> None:
        """See `DeviceChannel.ready`. Launch the messages in a stream of their own."""
        if self._sent or self._received:
            self._network.exchange(self._sent, self._received, self._arrived)

    def start(self) -> None:
        """See `DeviceChannel.start`. `ready` has launched the messages already."""

    def finish(self) -> None:
        """See `DeviceChannel.finish`. The device waits, not the host."""
        if self._sent or self._received:
            self._network.wait(self._arrived)
