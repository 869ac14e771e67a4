"""Choice of the backend that compiles a space's operators."""

from __future__ import annotations

from femops.operators.execution.backend import Backend
from femops.operators.execution.host import HOST
from femops.spaces.memory import HasMemory


def backend_of(space: HasMemory) -> Backend:
    """Return the backend of the machine on which the vectors of a space are stored."""
    device = space.memory.device
    if device is None:
        return HOST
    from femops.operators.execution.device import DeviceBackend  # a host program loads no kernels

    return DeviceBackend(device)
