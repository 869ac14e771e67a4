"""Forward and reverse exchange of an operator on a device."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import Channel
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.device import Device, DeviceChannel, StagingBuffer


@final
class StagedChannel(DeviceChannel):
    """A device channel whose messages the host sends from staging buffers."""

    def __init__(self, channel: Channel, out: StagingBuffer, into: StagingBuffer) -> None:
        self.channel, self._out, self._into = channel, out, into
        self.outgoing, self.incoming = out.there, into.there

    def ready(self) -> None:
        self._out.depart()

    def start(self) -> None:
        """See `DeviceChannel.start`. Wait until the message has been copied to the host."""
        self._out.wait()
        self.channel.start()

    def finish(self) -> None:
        """See `DeviceChannel.finish`. Wait until the messages have arrived on the host."""
        self.channel.finish()
        self._into.enter()


@final
class DeviceForward:
    """Exchange that sends values of owned dofs to ranks that have them as ghosts; see `Forward`.

    Shapes: `positions` (n,).
    """

    def __init__(self, device: Device, post: DeviceChannel, positions: NDArray[np.int64]) -> None:
        self.post = post
        fields = {"x": "const T*", "values": "T*"}
        self._pack = Entries(device, "pack", fields, post.outgoing, positions)
        self.ghosts: int = _address(device, post.incoming)

    def pack(self, x: int) -> None:
        """Gather the values to send from the vector at address ``x``."""
        self._pack.launch(x=x)
        self.post.ready()


@final
class DeviceReverse:
    """Exchange that sends contributions to ghosts back to their owners; see `Reverse`.

    Shapes: `positions` (n,).
    """

    def __init__(self, device: Device, post: DeviceChannel, positions: NDArray[np.int64]) -> None:
        self._device, self.post = device, post
        fields = {"y": "T*", "values": "const T*"}
        self._add = Entries(device, "add", fields, post.incoming, positions)
        self.ghosts: int = _address(device, post.outgoing)

    def clear(self) -> None:
        """Set the contributions to send to zero."""
        self._device.clear(self.post.outgoing)

    def add(self, y: int) -> None:
        """Add the contributions of other ranks to the vector at address ``y`` when they arrive."""
        self.post.finish()
        self._add.launch(y=y)


@final
class Entries:
    """Launch that copies or adds between a message and some positions of a vector."""

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
        # the arrays must outlive the launches
        self._arrays = {"values": values, "positions": device.upload(positions)}
        vector = dict.fromkeys(fields.keys() - self._arrays.keys())
        self._packed = layout.pack(device, count=len(positions), **vector, **self._arrays)

    def launch(self, **vector: int) -> None:
        """Run the kernel on a vector: name of the argument = address."""
        if self._blocks == 0:
            return
        packed = copied(self._packed)
        for name, address in vector.items():
            packed[name] = address
        self._device.function(self._text).launch(self._blocks, SIMPLE_THREADS, 0, packed)


def _address(device: Device, array: Any) -> int:
    """Address of an array; a null pointer if it has no entries."""
    return device.address(array) if array.size else 0
