"""Values on their way between ranks, as an operator on a device needs them."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.channel import Channel
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.device import Device, DeviceChannel, StagingBuffer
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text


@final
class StagedChannel(DeviceChannel):
    """A channel whose messages the host sends, from staging buffers.

    Parameters
    ----------
    channel : Channel
        Between the staging buffers of ranks, on the host.
    out, into : StagingBuffer
        Of what is sent, and of what is received.
    """

    def __init__(self, channel: Channel, out: StagingBuffer, into: StagingBuffer) -> None:
        self.channel, self._out, self._into = channel, out, into
        self.outgoing, self.incoming = out.there, into.there

    def ready(self) -> None:
        """See `DeviceChannel.ready`."""
        self._out.depart()

    def start(self) -> None:
        """See `DeviceChannel.start`; waits until it is there."""
        self._out.wait()
        self.channel.start()

    def finish(self) -> None:
        """See `DeviceChannel.finish`; waits for what arrives."""
        self.channel.finish()
        self._into.enter()


@final
class DeviceForward:
    """Values of owned dofs to those who have them as ghosts; see `Forward`.

    Parameters
    ----------
    device : Device
    post : DeviceChannel
    positions : (n,) int64
        Flat positions in the vector of what is sent; negative ones are sent as zero.
    """

    def __init__(self, device: Device, post: DeviceChannel, positions: NDArray[np.int64]) -> None:
        self.post = post
        fields = {"x": "const T*", "values": "T*"}
        self._pack = _Entries(device, "pack", fields, post.outgoing, positions)
        self.ghosts: int = _address(device, post.incoming)

    def pack(self, x: int) -> None:
        """Gather what is sent, from a vector at an address."""
        self._pack.launch(x=x)
        self.post.ready()


@final
class DeviceReverse:
    """Contributions to ghosts back to the owners of these; see `Reverse`.

    Parameters
    ----------
    device : Device
    post : DeviceChannel
    positions : (n,) int64
        Flat positions in the vector to which what arrives is added; what has a negative one is not.
    """

    def __init__(self, device: Device, post: DeviceChannel, positions: NDArray[np.int64]) -> None:
        self._device, self.post = device, post
        fields = {"y": "T*", "values": "const T*"}
        self._add = _Entries(device, "add", fields, post.incoming, positions)
        self.ghosts: int = _address(device, post.outgoing)

    def clear(self) -> None:
        """Set the contributions to zero."""
        self._device.clear(self.post.outgoing)

    def add(self, y: int) -> None:
        """Wait for the others' contributions and add them to the vector at an address."""
        self.post.finish()
        self._add.launch(y=y)


@final
class _Entries:
    """A kernel with a position for each entry of a message."""

    def __init__(
        self,
        device: Device,
        name: str,
        fields: dict[str, str],
        values: Any,
        positions: NDArray[np.int64],
    ) -> None:
        numbers = {"positions": "const long long*", "count": "int"}
        layout = Layout(fields | numbers, values.dtype)
        self._device, self._text = device, simple_text(layout, values.dtype, name)
        self._blocks = -(-len(positions) // SIMPLE_THREADS)
        # they must outlive the launches
        self._arrays = {"values": values, "positions": device.upload(positions)}
        vector = dict.fromkeys(fields.keys() - self._arrays.keys())
        self._packed = layout.pack(device, count=len(positions), **vector, **self._arrays)

    def launch(self, **vector: int) -> None:
        """Run it on a vector, given by address."""
        if self._blocks == 0:
            return
        packed = copied(self._packed)
        for name, address in vector.items():
            packed[name] = address
        self._device.function(self._text).launch(self._blocks, SIMPLE_THREADS, 0, packed)


def _address(device: Device, array: Any) -> int:
    """Address of an array; a null pointer if it has no entries."""
    return device.address(array) if array.size else 0
