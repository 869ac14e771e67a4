"""Measured limits of this machine: bandwidth and floating-point rate."""

from __future__ import annotations

from time import perf_counter
from typing import final

import numpy as np

from femops_kernels import machine
from femops_kernels.lanes import Lane
from femops_kernels.specialize import specialize
from femops_kernels.sweep import LAUNCH, aligned_array

BLOCK = 8192  # as in skeletons/stream.py
# Two reads and a write of float64; the read for ownership is not counted, as STREAM does.
TRIAD_BYTES = 24
_ROUNDS = 500_000
_CHAINS = 16


@final
class Limits:
    """Arrays and kernels to measure the limits with, again and again beside what is compared.

    Parameters
    ----------
    threads : int
    nbytes : int
        Bytes of all three arrays of the triad together; far more than the caches hold.
    """

    def __init__(self, threads: int, nbytes: int = 384 * 2**20) -> None:
        lane = Lane(machine.lane_width())
        self._threads, self._lane = threads, lane
        self._blocks = max(threads, nbytes // (3 * 8 * BLOCK))
        self._arrays = [np.ones(self._blocks * BLOCK) for _ in range(3)]
        self._out = aligned_array((threads, lane.width), np.float64)
        constants = {"PARALLEL": threads > 1, "LANE": lane}
        self._module = specialize(("driver", "stream"), constants)

    def triad(self) -> float:
        """Bandwidth of one pass of STREAM's triad, 24 bytes an entry counted, GB/s."""
        a, b, c = (array.ctypes.data for array in self._arrays)
        with LAUNCH:
            begin = perf_counter()
            self._module.triad(a, b, c, 3.0, self._blocks)
            seconds = perf_counter() - begin
        return TRIAD_BYTES * self._blocks * BLOCK / seconds * 1e-9

    def multiply_adds(self) -> float:
        """Rate of fused multiply-adds on lanes (an FMA is two operations), GFlop/s."""
        with LAUNCH:
            begin = perf_counter()
            self._module.multiply_adds(
                self._out.ctypes.data, self._lane.nbytes, _ROUNDS, self._threads
            )
            seconds = perf_counter() - begin
        return 2 * _CHAINS * self._lane.width * _ROUNDS * self._threads / seconds * 1e-9
