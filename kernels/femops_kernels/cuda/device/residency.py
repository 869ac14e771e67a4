"""Number of blocks that a multiprocessor has room for, and their shared memory together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

_WARP = 32  # threads
_PARTS = 4  # parts of a multiprocessor, each with its own registers
_REGISTERS = 8  # registers of a thread are allocated in multiples of this


@final
@dataclass(frozen=True)
class Multiprocessor:
    """Registers, threads and memory that the blocks of a multiprocessor share."""

    # registers, threads and blocks: largest number of each
    registers: int
    threads: int
    blocks: int
    shared_bytes: int  # bytes of shared memory.  The part that kernels do not request is cache.
    reserved_bytes: int  # bytes of shared memory that CUDA takes for each block

    @staticmethod
    def of(properties: Mapping[str, Any]) -> Multiprocessor:
        """Multiprocessor of a device, from the properties that CUDA reports."""
        return Multiprocessor(
            registers=properties["regsPerMultiprocessor"],
            threads=properties["maxThreadsPerMultiProcessor"],
            blocks=properties["maxBlocksPerMultiProcessor"],
            shared_bytes=properties["sharedMemPerMultiprocessor"],
            reserved_bytes=properties["reservedSharedMemPerBlock"],
        )

    def room(self, threads: int, registers: int) -> int:
        """Number of blocks that fit the registers and threads, at least one."""
        warps = -(-threads // _WARP)
        each = max(-(-registers // _REGISTERS), 1) * _REGISTERS * _WARP
        most = min(_PARTS * (self.registers // _PARTS // each), self.threads // _WARP)
        return max(1, min(most // warps, self.blocks))

    def resident(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Number of blocks that fit the registers, threads and shared memory, at least one."""
        most = self.shared_bytes // (shared_bytes + self.reserved_bytes)
        return max(1, min(self.room(threads, registers), most))

    def carveout(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Percentage of the shared memory that `room` blocks need together, at most 100."""
        needed = self.room(threads, registers) * (shared_bytes + self.reserved_bytes)
        return min(100, -(-100 * needed // self.shared_bytes))
