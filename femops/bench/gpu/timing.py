"""How long a device takes for a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import final

import numpy as np

from femops.bench.timing import LEAST
from femops_kernels.cuda.device.device import Device

# Seconds of a batch of calls between two events: launches are many times shorter.
_BATCH = 5e-3
_MOST = 200
# Part of a call's time from which on its launch may be what takes it.
_HASTE = 0.5


@final
@dataclass(frozen=True)
class Times:
    """What was measured of a call.

    Attributes
    ----------
    seconds : list of float
        Of the device, for each batch of calls.
    launch : float
        Median seconds of the host, for launching the call.
    """

    seconds: list[float]
    launch: float

    @property
    def median(self) -> float:
        """Of the device's seconds."""
        return float(np.median(self.seconds))


def batch_times(device: Device, call: Callable[[], object], seconds: float) -> Times:
    """Times of a call, in batches for about that long (at least `LEAST`), after a warm-up.

    Calls of a batch follow each other without a gap: where the host takes too long for their
    launches, they are a single one (`Device.repeatable`).

    Parameters
    ----------
    device : Device
    call : callable
        Launches the same each time, see `Device.repeatable`.
    seconds : float
    """
    call()
    once = device.seconds(call)
    many = max(1, min(_MOST, int(_BATCH / max(once, 1e-9))))
    launches: list[float] = []

    def batch() -> None:
        begin = perf_counter()
        for _ in range(many):
            call()
        launches.append((perf_counter() - begin) / many)

    times = _times(device, batch, many, seconds)
    launch = float(np.median(launches))
    if launch > _HASTE * float(np.median(times)):
        times = _times(device, device.repeatable(batch), many, seconds)
    return Times(times, launch)


def _times(device: Device, batch: Callable[[], None], many: int, seconds: float) -> list[float]:
    batch()
    times: list[float] = []
    while len(times) < LEAST or sum(times) * many < seconds:
        times.append(device.seconds(batch) / many)
    return times
