"""Values on their way between the ranks that share dofs, as an operator on the host needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.channel import Channel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu.plan import Plan
from femops_kernels.simd.lanes import Lane


@final
@dataclass(frozen=True, eq=False)
class Forward:
    """Values of owned dofs to those who have them as ghosts: P.

    Attributes
    ----------
    channel : Channel
        What arrives are the values of the ghosts.
    positions : (n,) int64
        Flat positions in the vector of what is sent; negative ones are sent as zero.
    """

    channel: Channel
    positions: NDArray[np.int64]

    @property
    def ghosts(self) -> int:
        """Address of the values of the ghosts."""
        return self.channel.incoming.ctypes.data

    def start(self, x: int) -> None:
        """Send values of the vector at an address."""
        out, at = self.channel.outgoing, self.positions
        _module(out.dtype).pack(x, at.ctypes.data, len(at), out.ctypes.data)
        self.channel.start()

    def finish(self) -> None:
        """Wait for the ghosts."""
        self.channel.finish()


@final
@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of a sweep to dofs of one test function that its chunks do not own.

    Attributes
    ----------
    target : Plan
        Of the vector that is written.
    buffer : array
        All numbers of a dof together.
    numbers : int
        Numbers of a dof.
    """

    target: Plan
    buffer: NDArray[Any]
    numbers: int


@final
@dataclass(frozen=True, eq=False)
class Reverse:
    """Exchange that sends contributions to ghosts back to their owners: the transpose of P.

    Attributes
    ----------
    channel : Channel
        What is sent are contributions to ghosts, by ascending ghost.
    positions : (n,) int64
        Flat positions in the vector to which what arrives is added, in this order; what has a
        negative one is not.
    starts : (n + 1,) int64, optional
        Where the contributions begin of which each number sent is the sum; those to each ghost if
        omitted.
    """

    channel: Channel
    positions: NDArray[np.int64]
    starts: NDArray[np.int64] | None = None

    def collect(self, left: Contributions | None, more: bool) -> None:
        """Take a sweep's contributions to ghosts; ``more`` adds them to those taken before."""
        out = self.channel.outgoing
        if left is None:
            if not more:
                out[:] = 0.0
            return
        plan = left.target
        starts = plan.ghost_start if self.starts is None else self.starts
        _module(out.dtype).collect(
            left.buffer.ctypes.data,
            starts.ctypes.data,
            plan.ghost_slot.ctypes.data,
            len(starts) - 1,
            left.numbers,
            out.ctypes.data,
            float(more),
        )

    def start(self) -> None:
        """Send what is there."""
        self.channel.start()

    def finish(self, y: int) -> None:
        """Wait for the others' contributions and add them to the vector at an address."""
        self.channel.finish()
        values, at = self.channel.incoming, self.positions
        _module(values.dtype).add(values.ctypes.data, at.ctypes.data, len(at), y)


@cache
def _module(dtype: np.dtype[Any]) -> ModuleType:
    """Compiled module for the vectors' type."""
    return specialize(("messages",), {"LANE": Lane(2, dtype), "REAL_BYTES": dtype.itemsize})
