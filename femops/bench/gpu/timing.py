"""How long a device takes for a call."""

from __future__ import annotations

from collections.abc import Callable

from femops.bench.timing import LEAST
from femops_kernels.cuda.device import Device

# Seconds of a batch of calls between two events: launches are many times shorter.
_BATCH = 5e-3
_MOST = 200


def batch_seconds(device: Device, call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of a call, in batches for about that long (at least `LEAST`), after a warm-up.

    Calls of a batch follow each other without a gap, as long as the device takes longer for one
    than the host for its launch.

    Parameters
    ----------
    device : Device
    call : callable
        Launches work.
    seconds : float
    """
    call()
    once = device.seconds(call)
    many = max(1, min(_MOST, int(_BATCH / max(once, 1e-9))))

    def batch() -> None:
        for _ in range(many):
            call()

    times: list[float] = []
    while len(times) < LEAST or sum(times) * many < seconds:
        times.append(device.seconds(batch) / many)
    return times
