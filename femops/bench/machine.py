"""Threads and their cores during a measurement, and the machine's limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np

from femops.bench.bounds import Traffic
from femops.bench.timing import Name, in_turns, median_seconds
from femops_kernels.cpu import machine
from femops_kernels.cpu.limits import Limits


def several_memories() -> bool:
    """True if this machine has several NUMA nodes, as far as Linux tells."""
    return len([*Path("/sys/devices/system/node").glob("node[0-9]*")]) > 1


@contextmanager
def using(threads: int) -> Iterator[None]:
    """Use ``threads`` threads inside the block. A single thread is pinned to a core."""
    count = machine.get_threads()
    machine.set_threads(threads)
    pin = threads == 1 and hasattr(os, "sched_setaffinity")
    before = os.sched_getaffinity(0) if pin else set()
    if pin:
        os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        if pin:
            os.sched_setaffinity(0, before)
        machine.set_threads(count)


def one_blas_thread() -> AbstractContextManager[Any] | None:
    """Limit the BLAS of NumPy and SciPy to one thread; None if threadpoolctl is missing."""
    if find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


@final
class Meter:
    """Measures the machine's limits repeatedly, with one or more numbers of threads."""

    def __init__(self, threads: tuple[int, ...]) -> None:
        self.threads = threads
        # a thread inherits the core of the thread that starts it: start all before one is pinned
        with using(max(threads)):
            self._machine = machine.describe()
        self._limits: dict[int, Limits] = {}
        self._triads: dict[int, list[float]] = {count: [] for count in threads}
        self._peaks: dict[int, list[float]] = {count: [] for count in threads}
        for count in threads:
            with using(count):
                self._limits[count] = Limits(count)
                self._limits[count].triad(), self._limits[count].multiply_adds()

    def round(self) -> None:
        """Measure the triad and multiply-adds with each number of threads."""
        for count, limits in self._limits.items():
            with using(count):
                self._triads[count].append(max(limits.triad() for _ in range(2)))
                self._peaks[count].append(limits.multiply_adds())

    def turns(
        self,
        calls: Mapping[Name, Callable[[], object]],
        threads: int,
        rounds: int,
        seconds: float,
        begin: Callable[[], object] | None = None,
    ) -> dict[Name, list[float]]:
        """Median seconds of each call in each round. The calls take turns with the limits.

        ``begin`` measures other limits, in place of `round`.
        """
        measures = {name: partial(median_seconds, call, seconds) for name, call in calls.items()}
        with using(threads):
            return in_turns(measures, rounds, begin or self.round)

    def bandwidth(self, threads: int, traffic: Traffic) -> float:
        """Measure the bandwidth (GB/s) for a footprint and its mix of reads and writes."""
        return self._limits[threads].bandwidth(traffic.read, traffic.written)

    def triad(self, threads: int, last: int | None = None) -> float:
        """Median bandwidth (GB/s) of the triad over all rounds, or over the ``last`` rounds."""
        return float(np.median(self._triads[threads][-(last or 0) :]))

    def peak(self, threads: int, last: int | None = None) -> float:
        """Median rate (GFlop/s) of multiply-adds over all rounds, or over the ``last`` rounds."""
        return float(np.median(self._peaks[threads][-(last or 0) :]))

    def limits(self) -> list[dict[str, Any]]:
        """Medians of the limits over all rounds, for each number of threads."""
        return [
            {
                "threads": count,
                "triad_gbytes_per_second": self.triad(count),
                "fma_gflops_per_second": self.peak(count),
            }
            for count in self.threads
        ]

    def describe(self) -> dict[str, Any]:
        """Description of the machine, with the limits of the fewest threads."""
        return {**self._machine, "threads": min(self.threads), **self.limits()[0]}
