"""The machine of a space's operators."""

from __future__ import annotations

from femops.operators.execution.backend import Backend
from femops.operators.execution.device import DeviceBackend
from femops.operators.execution.host import HOST
from femops.spaces.memory import HasMemory


def backend_of(space: HasMemory) -> Backend:
    """Backend that compiles operators for where the vectors of a space are."""
    device = space.memory.device
    return HOST if device is None else DeviceBackend(device)
