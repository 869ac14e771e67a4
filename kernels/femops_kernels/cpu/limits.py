"""Measured limits of this machine: bandwidth and floating-point rate."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import final

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.thread_pool import LAUNCH
from femops_kernels.errors import KernelValueError
from femops_kernels.pointwise.qdata import aligned_array
from femops_kernels.simd.lanes import Lane

BLOCK = 8192  # as in skeletons/chunk/stream.py
# Two reads and a write of float64. Like STREAM, this does not count the read for ownership.
TRIAD_BYTES = 24
_ROUNDS = 500_000
_CHAINS = 16
# Lanes of a block of mixed reads and writes. More only if the proportion needs more.
_LANES = 128
# Bytes that repeated passes over a buffer move, about.
_ENOUGH = 2**26


@final
@dataclass(frozen=True)
class Mix:
    """Amount that one pass reads and writes, in blocks of lanes."""

    # reads and writes: lanes of one block
    reads: int
    writes: int
    blocks: int  # blocks of each worker
    workers: int = 1

    @staticmethod
    def of(read_bytes: float, write_bytes: float, lane_bytes: int, workers: int = 1) -> Mix:
        """The mix nearest to these bytes; a block reads 8k lanes and writes one lane or more."""
        if read_bytes <= 0 or write_bytes <= 0:
            raise KernelValueError(
                f"a mix of {read_bytes} bytes read and {write_bytes} written: give two of 1 or more"
            )
        total = read_bytes + write_bytes
        writes = max(1, round(write_bytes / total * _LANES))
        reads = 8 * max(1, round(writes * read_bytes / write_bytes / 8))
        blocks = round(total / ((reads + writes) * lane_bytes * workers))
        return Mix(reads, writes, max(1, blocks), workers)

    def nbytes(self, lane_bytes: int) -> int:
        """Bytes read and written in one pass."""
        return (self.reads + self.writes) * self.blocks * self.workers * lane_bytes


@final
class Limits:
    """Arrays and kernels that measure the limits, as often as asked, between other measurements."""

    def __init__(self, threads: int, nbytes: int = 384 * 2**20) -> None:
        lane = Lane(machine.lane_width())
        self._threads, self._lane = threads, lane
        self._blocks = max(threads, nbytes // (3 * 8 * BLOCK))
        self._arrays = placed_array((3, self._blocks * BLOCK), "float64", axis=1)
        self._arrays += 1.0
        self._out = aligned_array((threads, lane.width), "float64")
        constants = {"LANE": lane, "LANE_BYTES": lane.nbytes}
        self._module = specialize(("stream",), constants)

    def _team(self) -> int:
        return machine.team_of(self._threads)

    def triad(self) -> float:
        """Bandwidth of one pass of STREAM's triad in GB/s, counting 24 bytes per entry."""
        a, b, c = (array.ctypes.data for array in self._arrays)
        with LAUNCH:
            begin = perf_counter()
            self._module.triad(self._team(), a, b, c, 3.0, self._blocks)
            seconds = perf_counter() - begin
        return TRIAD_BYTES * self._blocks * BLOCK / seconds * 1e-9

    def bandwidth(self, read_bytes: float, write_bytes: float) -> float:
        """Bandwidth in GB/s of repeated passes that read and write these numbers of bytes.

        If the bytes of a pass fit into a cache, this is the bandwidth of the cache.  If they
        exceed the arrays of the triad, the passes read and write those in the same proportion.
        Like STREAM, this does not count the read for ownership of written lines.
        """
        lane = self._lane.nbytes
        share = min(1.0, 0.9 * self._arrays.nbytes / max(1.0, read_bytes + write_bytes))
        mix = Mix.of(share * read_bytes, share * write_bytes, lane, self._threads)
        source = self._arrays.ctypes.data
        target = source + mix.reads * mix.blocks * mix.workers * lane
        passes = -(-_ENOUGH // mix.nbytes(lane))
        sizes = (source, target, mix.reads // 2, mix.writes, mix.blocks)
        with LAUNCH:
            self._module.mixed(self._team(), *sizes, 1, mix.workers)
            begin = perf_counter()
            self._module.mixed(self._team(), *sizes, passes, mix.workers)
            seconds = perf_counter() - begin
        return passes * mix.nbytes(lane) / seconds * 1e-9

    def multiply_adds(self) -> float:
        """Rate of fused multiply-adds on lanes (an FMA is two operations), GFlop/s."""
        with LAUNCH:
            begin = perf_counter()
            out = self._out.ctypes.data
            self._module.multiply_adds(self._team(), out, _ROUNDS, self._threads)
            seconds = perf_counter() - begin
        return 2 * _CHAINS * self._lane.width * _ROUNDS * self._threads / seconds * 1e-9
