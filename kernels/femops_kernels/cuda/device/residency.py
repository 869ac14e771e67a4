"""Blocks that a multiprocessor has room for, and the shared memory that these need together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

_WARP = 32  # threads
_PARTS = 4  # of a multiprocessor, with registers of their own
_REGISTERS = 8  # of a thread, they are given out by so many


@final
@dataclass(frozen=True)
class Multiprocessor:
    """Registers, threads and memory that the blocks of a multiprocessor share.

    Attributes
    ----------
    registers, threads, blocks : int
        Most of each.
    shared_bytes : int
        Shared memory; what is not asked for is cache.
    reserved_bytes : int
        Shared memory that each block takes besides its own.
    """

    registers: int
    threads: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int

    @staticmethod
    def of(properties: Mapping[str, Any]) -> Multiprocessor:
        """That of a device, from what CUDA says of it."""
        return Multiprocessor(
            registers=properties["regsPerMultiprocessor"],
            threads=properties["maxThreadsPerMultiProcessor"],
            blocks=properties["maxBlocksPerMultiProcessor"],
            shared_bytes=properties["sharedMemPerMultiprocessor"],
            reserved_bytes=properties["reservedSharedMemPerBlock"],
        )

    def room(self, threads: int, registers: int) -> int:
        """The number of blocks that registers and threads suffice for, at least one.

        Parameters
        ----------
        threads : int
            Threads of a block.
        registers : int
            Registers of a thread.
        """
        warps = -(-threads // _WARP)
        each = max(-(-registers // _REGISTERS), 1) * _REGISTERS * _WARP
        most = min(_PARTS * (self.registers // _PARTS // each), self.threads // _WARP)
        return max(1, min(most // warps, self.blocks))

    def resident(self, threads: int, registers: int, shared_bytes: int) -> int:
        """The number of blocks that shared memory suffices for, too, at least one.

        Parameters
        ----------
        threads, registers
            See `room`.
        shared_bytes : int
            Shared memory of a block.
        """
        most = self.shared_bytes // (shared_bytes + self.reserved_bytes)
        return max(1, min(self.room(threads, registers), most))

    def carveout(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Percentage of the shared memory that as many blocks need as there is room for.

        Parameters
        ----------
        threads, registers
            See `room`.
        shared_bytes : int
            Shared memory of a block.
        """
        needed = self.room(threads, registers) * (shared_bytes + self.reserved_bytes)
        return min(100, -(-100 * needed // self.shared_bytes))
