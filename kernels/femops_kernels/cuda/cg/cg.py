"""Conjugate gradients on a device, in whose memory vectors and state stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import (
    CompiledOperator,
    DistributedOperator,
    Reduction,
    Solve,
    between_messages,
)
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.sources import SIMPLE_THREADS, simple_text
from femops_kernels.cuda.operator.cg_state import DEVICE_STATE, STATE_CONSTANTS, SUMS
from femops_kernels.cuda.operator.grid import grid, launch_portions
from femops_kernels.cuda.operator.inputs import STATE
from femops_kernels.cuda.operator.kernel import unspilled
from femops_kernels.cuda.operator.sweep import DeviceLaunchSum, DeviceSweep
from femops_kernels.device import Device, Function, StagingBuffer
from femops_kernels.skeletons.cg import cg_state as at
from femops_kernels.skeletons.cg.cg_state import MOVE, SWEEP, TURN

_ACTIONS = {"SWEEP": SWEEP, "MOVE": MOVE, "TURN": TURN}
_VECTORS = dict.fromkeys("xrpq", "T*") | dict.fromkeys(("old", "inverse"), "const T*")
RESIDENT = 5
"""Thread blocks per multiprocessor. More blocks would have too few registers."""
PIECE_BYTES = 16
"""Bytes of a vector that a thread loads at once."""
_BURST = 8  # iterations
_ROW = 32  # vectors have a multiple of 32 numbers, so that they begin on cache lines


@final
class DeviceConjugateGradients(Solve):
    """Conjugate gradients whose vectors stay on a device; see ``cg.cuh`` and ``cg_state.cuh``.

    On one process the state stays on the device, too.  The host launches iterations in bursts and
    does not wait for them.  It reads the state that was copied while the last burst was launched.
    Every second iteration updates x, and so does the last iteration of a call.  Iterations launched
    after the end of the solve only do the updates of x that are still due.

    On many ranks the host waits for the sums of each iteration.  It adds the sums of all ranks and
    sends the factors of the updates to the device.  As in merged sweeps, an iteration then has one
    launch for updates and sums before the launch of the operator, and one after it.
    """

    every: int | None = _BURST

    def __init__(
        self,
        operator: CompiledOperator,
        b: Any,
        x: Any | None,
        inverse: Any | None,
        merged: bool,
        sums: Reduction | None = None,
        natural: bool = False,
    ) -> None:
        launches = operator.local if isinstance(operator, DistributedOperator) else operator
        assert isinstance(launches, DeviceLaunchSum)
        self._operator, self._device, xp = operator, launches.device, launches.device.xp
        self._reduce = sums if sums is not None and sums.many else None
        self._numbers: StagingBuffer | None = None
        state, self._there = np.zeros(DEVICE_STATE), xp.zeros(DEVICE_STATE)
        if self._reduce is not None:
            self._numbers = self._device.staging_buffer(len(state), state.dtype, direct=False)
            state, self._there, self.every = self._numbers.here, self._numbers.there, None
        super().__init__(state, natural=natural, merged=merged)
        ranks = self._reduce is not None
        state[at.MERGED] = merged or ranks
        length = max(-(-len(b) // _ROW), 1) * _ROW
        self._vectors = xp.zeros((4 if ranks else 5, length), b.dtype)
        # the caller's vector `inverse` is not padded, this copy is
        self._given, self._inverse = inverse, None if inverse is None else xp.zeros(length, b.dtype)
        given = self._vectors, len(b), self._inverse, self._there, merged, ranks
        self._updates = Updates(self._device, *given)
        self._sweep = _MergedSweep(launches, self._updates) if merged else None
        self._bursts = 0
        self._repeat: Callable[[], None] = partial(self._iterate, _BURST)
        _, _, self._q, *self._p = (row[: len(b)] for row in self._vectors)
        self.restart(b, x)

    def restart(self, b: Any, x: Any | None) -> None:
        self._b, self._old = b, 0
        self._pending: Callable[[], NDArray[Any]] | None = None
        self._renew(guessed=x is not None)
        self._state[at.STATE_SIZE :] = 0.0
        self._vectors[:] = 0.0
        self._vectors[1, : len(b)] = b
        if self._inverse is not None:
            self._inverse[: len(b)] = self._given
        if x is not None:
            self.x[:] = x
            self._operator.apply(self.x, self._q)

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`. Without ``show`` do not wait: take the state of the last call."""
        if self._numbers is not None:
            self._state[[at.GOAL, at.LIMIT]] = tolerance, limit
            between_messages(self._state, steps, show, self._act)
            return
        if self._state[at.ITERATIONS] < 0.0:
            self._state[[at.GOAL, at.LIMIT]] = tolerance, limit
            self._there[:] = self._device.upload(self._state)
            self._state[at.ITERATIONS] = 0.0
            self._updates.launch(MOVE, self._p[0])
        if steps == _BURST and not show and self._old == 0:
            self._burst()
        else:
            self._iterate(steps)
        pending, self._pending = self._pending, self._device.download_later(self._there)
        if show or steps == 0:
            pending = self._pending
        if pending is not None:
            self._state = pending()

    def _act(self, action: int) -> NDArray[np.float64]:
        """Do an action and return its sums; see `between_messages`."""
        assert self._numbers is not None
        assert self._reduce is not None
        (p,), sweep = self._p, action == SWEEP
        self._numbers.enter()
        if sweep:
            self._updates.launch(TURN, p, p, touch=self._state[at.TOUCH] != 0.0)
            self._operator.apply(p, self._q)
        self._updates.launch(SWEEP if sweep else MOVE, p)
        self._numbers.depart()
        self._numbers.wait()
        count = at.NSUMS if sweep else 2
        return self._reduce(self._numbers.here[SUMS : SUMS + count, np.newaxis])

    def _iterate(self, steps: int) -> None:
        """Launch ``steps`` iterations. Every second one, and the last, updates x."""
        for k in range(steps):
            old, new = self._p[self._old], self._p[1 - self._old]
            if self._sweep:
                self._sweep.launch(old, new)
            else:
                self._updates.launch(TURN, new, old)
                self._operator.apply(new, self._q)
                self._updates.launch(SWEEP, new)
            self._updates.launch(MOVE, new, old, touch=k % 2 == 1 or k == steps - 1)
            self._old = 1 - self._old

    def _burst(self) -> None:
        """Launch an even number of iterations, as a recorded sequence from the second call on.

        After an even number the two vectors p have swapped back, so all bursts are the same work.
        """
        if self._bursts == 1:  # all kernels have been launched
            self._repeat = self._device.repeatable(self._repeat)
        self._repeat()
        self._bursts += 1


@final
class Updates:
    """The vector updates of conjugate gradients, compiled, with the memory of their sums.

    Shapes: `inverse` (m,).
    """

    def __init__(
        self,
        device: Device,
        vectors: Any,
        n: int,
        inverse: Any | None,
        state: Any,
        merged: bool,
        ranks: bool,
    ) -> None:
        self.device, kind = device, vectors.dtype
        self.vectors, self.inverse, self.state = vectors, inverse, state
        self._blocks = blocks_of(device, n, kind)
        layout = Layout(_VECTORS | {"count": "long long", "touch": "int"} | STATE, kind)
        constants = {
            **_ACTIONS,
            **STATE_CONSTANTS,
            "MERGED": int(merged),
            "RANKS": int(ranks),
            "BLOCKS": RESIDENT,
        }
        self._functions: dict[int, Function] = {}
        for action in (MOVE,) if merged else _ACTIONS.values():
            files = "reduce", "cg_state", "cg"
            text = simple_text(layout, kind, *files, **constants, ACTION=action)
            self._functions[action] = device.function(text)
        x, r, q = (row[:n] for row in vectors[:3])
        self._kept = {"x": x, "r": r, "q": q, "inverse": inverse, "state": state}
        self._sums = at.NSUMS if ranks else 2
        self._kept |= memory_of_sums(device, self._blocks, SIMPLE_THREADS, self._sums)
        self._packed = layout.pack(device, **self._kept, p=None, old=None, count=n, touch=0)

    def launch(self, action: int, p: Any, old: Any = None, *, touch: bool = True) -> None:
        """Launch an action with the direction p, and the last one ``old`` if the action needs it.

        If ``touch`` is False, x is not updated yet.
        """
        packed = copied(self._packed)
        packed["p"], packed["touch"] = self.device.address(p), touch
        packed["old"] = 0 if old is None else self.device.address(old)
        shared = 0 if action == TURN else self._sums * SIMPLE_THREADS * 8
        self._functions[action].launch(self._blocks, SIMPLE_THREADS, shared, packed)


@final
class _MergedSweep:
    """Launch of the operator's kernel that also updates p and sums p.Ap."""

    def __init__(self, launches: DeviceLaunchSum, updates: Updates) -> None:
        (sweep,) = launches.sweeps
        assert isinstance(sweep, DeviceSweep)
        self._device, self._sweep = launches.device, sweep
        self._kernel = unspilled(replace(sweep.kernel, merged=True), self._device)
        function = self._device.function(self._kernel.text)
        blocks = grid(self._device, function, self._kernel, sweep.blocks)
        self._sums = memory_of_sums(self._device, blocks, sweep.kernel.threads, 1)
        self._function, self._packed = sweep.bind(
            self._kernel,
            r=updates.vectors[1],
            y=updates.vectors[2],
            inverse=updates.inverse,
            state=updates.state,
            **self._sums,
        )
        self._packed["alpha"] = launches.alphas[0]

    def launch(self, old: Any, new: Any) -> None:
        """Compute the next direction ``new`` from ``old``, and q = A new."""
        packed, given = copied(self._packed), (self._device, self._function, self._kernel)
        packed["x"], packed["p"] = self._device.address(old), self._device.address(new)
        launch_portions(*given, packed, 0, self._sweep.blocks)
        self._sweep.combine(int(packed["y"]))


def blocks_of(device: Device, count: int, kind: np.dtype[Any]) -> int:
    """Number of thread blocks of a launch on vectors with ``count`` entries."""
    pieces = -(-count * kind.itemsize // PIECE_BYTES)
    return min(-(-pieces // SIMPLE_THREADS), RESIDENT * device.processors)


def memory_of_sums(device: Device, blocks: int, threads: int, count: int) -> dict[str, Any]:
    """Arrays in which a launch forms ``count`` sums over all its threads; see ``reduce.cuh``."""
    partials, counters = 0, 0
    while blocks > 1:
        groups = -(-blocks // threads)
        partials, counters, blocks = partials + blocks * count, counters + groups, groups
    xp = device.xp
    return {
        "partial": xp.zeros(max(partials, 1), np.float64),
        "counters": xp.zeros(max(counters, 1), np.uint32),
    }
