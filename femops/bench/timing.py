"""Timing of calls, on the host and on a device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Generic, TypeVar, final

import numpy as np

from femops_kernels.device import Device

Name = TypeVar("Name", bound=Hashable)
Found = TypeVar("Found")

# Rounds after which a slow candidate is dropped, and its time over that of the best.
_TRIES, _CLOSE = 3, 1.15
# Part of the time that another candidate must save, and of the rounds in which it must be ahead.
_GAIN, _AHEAD = 0.02, 0.7

LEAST = 3
"""Least number of calls for a median."""

# Seconds of a batch of calls between two events: launches are many times shorter.
_BATCH = 5e-3
_MOST = 200
# Part of a call's time that its launch must take before launches count as too slow.
_HASTE = 0.5


def call_seconds(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = perf_counter()
    call()
    return perf_counter() - begin


def stopwatch() -> Callable[[], float]:
    """Return a function that returns the seconds since its last call, at first since now."""
    times = [perf_counter()]

    def lap() -> float:
        times.append(perf_counter())
        return times[-1] - times[-2]

    return lap


def repeated(measure: Callable[[], float], seconds: float, least: int = LEAST) -> list[float]:
    """Measure ``least`` times, and more until the sum is ``seconds``. Return all times."""
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        times.append(measure())
    return times


def in_turns(
    measures: Mapping[Name, Callable[[], Found]],
    rounds: int,
    begin: Callable[[], object] = bool,
) -> dict[Name, list[Found]]:
    """Call all measures in turns, after ``begin`` in each round. Return the results by name."""
    found: dict[Name, list[Found]] = {name: [] for name in measures}
    for _ in range(rounds):
        begin()
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def medians(seconds: Mapping[Name, Sequence[float]]) -> dict[Name, float]:
    """Return {name: median of its seconds}."""
    return {name: float(np.median(times)) for name, times in seconds.items()}


def median_seconds(call: Callable[[], object], seconds: float) -> float:
    """Median time of calls for about ``seconds`` (at least `LEAST` calls), after a warm-up."""
    call()
    return float(np.median(repeated(partial(call_seconds, call), seconds)))


@final
@dataclass(frozen=True)
class Times:
    """Times of a call on a device, and of its launch by the host.

    ``seconds`` has the seconds of a call in each batch. ``launch`` is the median of the seconds
    that the host takes to launch it.
    """

    seconds: list[float]
    launch: float

    @property
    def median(self) -> float:
        """Median of the device's seconds."""
        return float(np.median(self.seconds))


def batch_times(device: Device, call: Callable[[], object], seconds: float) -> Times:
    """Times of a call in batches of calls, for about ``seconds``, after a warm-up.

    There are at least `LEAST` batches. The calls of a batch follow each other without a gap. If the
    host takes too long to launch them, one launch repeats the recorded batch;
    `Device.repeatable` says which work a call may do.
    """
    call()
    once = device.seconds(call)
    many = max(1, min(_MOST, int(_BATCH / max(once, 1e-9))))
    launches: list[float] = []

    def calls() -> None:
        for _ in range(many):
            call()

    def batch() -> None:
        launches.append(call_seconds(calls) / many)

    def measured(work: Callable[[], None]) -> list[float]:
        work()
        return repeated(lambda: device.seconds(work) / many, seconds / many)

    times, launch = measured(batch), float(np.median(launches))
    if launch > _HASTE * float(np.median(times)):
        times = measured(device.repeatable(batch))
    return Times(times, launch)


# --- the fastest of a few candidates, on machines that do other things too ------------------------


@final
@dataclass(frozen=True)
class Fastest(Generic[Name]):
    """Result of a search."""

    best: Name  # the candidate to take
    gain: float  # speedup of the best candidate over the first
    tried: int  # number of candidates that were run
    # all times of each candidate
    seconds: dict[Name, list[float]] = field(default_factory=dict, compare=False)


def fastest(candidates: Mapping[Name, Callable[[], float]], rounds: int) -> Fastest[Name]:
    """Time candidates in turns. Return the fastest, or the first if none is clearly faster.

    Other programs disturb single times. So the ratio of two times that follow each other compares
    two candidates, by its median over the rounds.
    """
    first = next(iter(candidates))
    seconds: dict[Name, list[float]] = {name: [] for name in candidates}
    left = list(candidates)
    for k in range(rounds):
        if k == _TRIES:
            least = {name: min(times) for name, times in seconds.items()}
            limit = _CLOSE * min(least.values())
            left = [name for name in left if least[name] <= limit or name == first]
        for name in left:
            seconds[name].append(candidates[name]())
    ratios = {name: np.array(seconds[first]) / seconds[name] for name in left}
    best = max(ratios, key=lambda name: float(np.median(ratios[name])))
    gain = float(np.median(ratios[best]))
    if gain < 1.0 + _GAIN or np.mean(ratios[best] > 1.0) < _AHEAD:
        best, gain = first, 1.0
    return Fastest(best, gain, len(candidates), seconds)
