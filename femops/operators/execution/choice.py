"""Choice of the backend that compiles a space's operators."""

from __future__ import annotations

from femops.operators.execution.backend import Backend
from femops.operators.execution.device import DeviceBackend
from femops.operators.execution.host import HOST
from femops.spaces.memory import HasMemory


def backend_of(space: HasMemory) -> Backend:
    """Return the backend of the machine on which the vectors of a space are stored."""
    device = space.memory.device
    return HOST if device is None else DeviceBackend(device)
