"""Forward and reverse exchange of an operator on the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import specialize
from femops_kernels.compiled import Channel
from femops_kernels.cpu.plan import Plan
from femops_kernels.simd.lanes import Lane


@final
@dataclass(frozen=True, eq=False)
class Forward:
    """Exchange that sends values of owned dofs to the ranks that have them as ghosts: P."""

    channel: Channel  # receives the values of this rank's ghosts
    # (n,): flat positions in the vector of the values to send.  A negative position stands for
    # zero.
    positions: NDArray[np.int64]

    @property
    def ghosts(self) -> int:
        """Address of the received values of the ghosts."""
        return self.channel.incoming.ctypes.data

    def start(self, x: int) -> None:
        """Begin to send values of the vector at address ``x``."""
        out, at = self.channel.outgoing, self.positions
        _module(out.dtype).pack(x, at.ctypes.data, len(at), out.ctypes.data)
        self.channel.start()

    def finish(self) -> None:
        """Wait until the values of the ghosts have arrived."""
        self.channel.finish()


@final
@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of a sweep to the non-owned dofs of one test function."""

    target: Plan  # plan of the test function
    # contributions in the order of ``target.nonowned_dofs``.  The numbers of a dof are
    # consecutive.
    buffer: NDArray[Any]
    numbers: int  # count of numbers of a dof: components times vectors


@final
@dataclass(frozen=True, eq=False)
class Reverse:
    """Exchange that sends contributions to ghosts back to their owners: the transpose of P."""

    channel: Channel  # sends contributions to ghosts, by ascending ghost
    # (n,): flat positions in the vector to which received contributions are added, in this order.
    # A contribution with a negative position is ignored.
    positions: NDArray[np.int64]
    # (n + 1,): each number sent is the sum of the contributions ``starts[i]:starts[i + 1]``.  If
    # omitted, it is the sum of all contributions to a ghost.
    starts: NDArray[np.int64] | None = None

    def collect(self, left: Contributions | None, more: bool) -> None:
        """Put a sweep's contributions to ghosts into the message, or add them if ``more``."""
        out = self.channel.outgoing
        if left is None:
            if not more:
                out[:] = 0.0
            return
        plan = left.target
        starts = plan.ghost_start if self.starts is None else self.starts
        _module(out.dtype, plan.signed).collect(
            left.buffer.ctypes.data,
            starts.ctypes.data,
            plan.ghost_slot.ctypes.data,
            len(starts) - 1,
            left.numbers,
            out.ctypes.data,
            float(more),
        )

    def start(self) -> None:
        """Begin to send the collected contributions."""
        self.channel.start()

    def finish(self, y: int) -> None:
        """Wait for the contributions of other ranks and add them to the vector at address ``y``."""
        self.channel.finish()
        values, at = self.channel.incoming, self.positions
        _module(values.dtype).add(values.ctypes.data, at.ctypes.data, len(at), y)


@cache
def _module(dtype: np.dtype[Any], signed: bool = False) -> CompiledKernel:
    """Compiled module that packs, collects and adds numbers of a dtype."""
    constants = {"LANE": Lane(2, dtype), "REAL_BYTES": dtype.itemsize, "SIGNED": signed}
    return specialize(("messages",), constants)
