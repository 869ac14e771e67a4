"""Measured limits of a device: bandwidths, arithmetic and atomics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.device import Device

_FLOAT64 = np.dtype(np.float64)
_EACH, _ROWS, _CHAINS = 4, 8, 8  # as in copy.cuh, shared.cuh and multiply_add.cuh
_READ_EACH = 8  # as in read.cuh
_FULL = 2048  # threads of a multiprocessor
_LEAST = 3  # fewest timed launches, after one that warms up


@final
@dataclass(frozen=True)
class Amounts:
    """Amount of work in one launch."""

    copied: int = 2**27  # numbers to copy, many more than fit into caches
    added: int = 2**20  # entries to which atomic operations add.  They fit into caches.
    rounds: int = 8192  # rounds of the loops in the other kernels
    seconds: float = 0.25  # time for which each kernel is launched.  The fastest launch counts.


@final
@dataclass(frozen=True)
class Rates:
    """Measured rates of a device in float64, per second."""

    copied_bytes: float  # bytes of device memory, read and written in equal parts
    read_bytes: float  # bytes of device memory, only read
    shared_bytes: float  # bytes of shared memory, read and written by all multiprocessors
    flops: float  # floating-point operations; a multiply-add counts as two
    atomics: float  # numbers added by atomic operations

    @staticmethod
    def of(device: Device, amounts: Amounts = Amounts()) -> Rates:
        """Measure the rates of a device."""
        return Rates(
            _copied(device, amounts),
            _read(device, amounts),
            _shared(device, amounts),
            _flops(device, amounts),
            _atomics(device, amounts),
        )


def _copied(device: Device, amounts: Amounts) -> float:
    x, y = device.xp.ones(amounts.copied), device.xp.empty(amounts.copied)
    fields = {"x": "const T*", "y": "T*", "count": "long long"}
    launch = _launcher(device, "copy", fields, {"x": x, "y": y, "count": amounts.copied})
    blocks = -(-amounts.copied // (SIMPLE_THREADS * _EACH * 2))
    seconds = _fastest(device, amounts, lambda: launch(blocks, 0))
    return 2 * amounts.copied * _FLOAT64.itemsize / seconds


def _read(device: Device, amounts: Amounts) -> float:
    x, y = device.xp.ones(amounts.copied), device.xp.empty(1)
    fields = {"x": "const T*", "y": "T*", "count": "long long", "never": "T"}
    values = {"x": x, "y": y, "count": amounts.copied, "never": -1.0}
    launch = _launcher(device, "read", fields, values)
    blocks = -(-amounts.copied // (SIMPLE_THREADS * _READ_EACH * 2))
    seconds = _fastest(device, amounts, lambda: launch(blocks, 0))
    return amounts.copied * _FLOAT64.itemsize / seconds


def _shared(device: Device, amounts: Amounts) -> float:
    # four blocks for each multiprocessor, which keep it busy all the time
    blocks, shared = 4 * device.processors, SIMPLE_THREADS * _ROWS * 8
    y = device.xp.empty(blocks * SIMPLE_THREADS, np.int64)
    fields = {"y": "long long*", "rounds": "int"}
    launch = _launcher(device, "shared", fields, {"y": y, "rounds": amounts.rounds})
    seconds = _fastest(device, amounts, lambda: launch(blocks, shared))
    return 2 * shared * blocks * amounts.rounds / seconds


def _flops(device: Device, amounts: Amounts) -> float:
    blocks = device.processors * _FULL // SIMPLE_THREADS
    y = device.xp.empty(blocks * SIMPLE_THREADS)
    fields = {"y": "T*", "factor": "T", "term": "T", "rounds": "int"}
    values = {"y": y, "factor": 0.999, "term": 1e-3, "rounds": amounts.rounds}
    launch = _launcher(device, "multiply_add", fields, values)
    seconds = _fastest(device, amounts, lambda: launch(blocks, 0))
    return 2 * _CHAINS * blocks * SIMPLE_THREADS * amounts.rounds / seconds


def _atomics(device: Device, amounts: Amounts) -> float:
    blocks, rounds = device.processors * _FULL // SIMPLE_THREADS, -(-amounts.rounds // 16)
    y = device.xp.zeros(amounts.added)
    fields = {"y": "T*", "count": "long long", "rounds": "int"}
    values = {"y": y, "count": amounts.added, "rounds": rounds}
    launch = _launcher(device, "atomics", fields, values)
    seconds = _fastest(device, amounts, lambda: launch(blocks, 0))
    return blocks * SIMPLE_THREADS * rounds / seconds


def _launcher(
    device: Device, name: str, fields: Mapping[str, str], values: Mapping[str, Any]
) -> Callable[[int, int], None]:
    """Return a function that launches a kernel with ``blocks`` blocks of ``shared`` bytes."""
    layout = Layout(fields, _FLOAT64)
    function = device.function(simple_text(layout, _FLOAT64, name))
    packed = layout.pack(device, **values)
    return lambda blocks, shared: function.launch(blocks, SIMPLE_THREADS, shared, packed)


def _fastest(device: Device, amounts: Amounts, launch: Callable[[], None]) -> float:
    # more than a few launches: an idle device takes time to reach its full clock rate
    times = [device.seconds(launch)]
    while len(times) <= _LEAST or sum(times) < amounts.seconds:
        times.append(device.seconds(launch))
    return min(times[1:])
