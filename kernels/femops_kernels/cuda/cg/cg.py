"""Conjugate gradients on a device: its vectors and numbers stay there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import Reduction, Solve, between_messages
from femops_kernels.compiled import CompiledOperator, DistributedOperator
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.device import Device, Function, StagingBuffer
from femops_kernels.cuda.operator.kernel import SIMPLE_THREADS, STATE, simple_text, unspilled
from femops_kernels.cuda.operator.sweep import DeviceLaunchSum, DeviceSweep
from femops_kernels.skeletons.cg import cg_state as at
from femops_kernels.skeletons.cg.cg_state import MOVE, START, SWEEP, TURN

_ACTIONS = {"START": START, "SWEEP": SWEEP, "MOVE": MOVE, "TURN": TURN}
_VECTORS = {"x": "T*", "r": "T*", "p": "T*", "q": "T*", "b": "const T*", "inverse": "const T*"}
SUMS, DEVICE_STATE = at.STATE_SIZE + 1, at.STATE_SIZE + 3
"""Where sums are, and the size of the state on a device, see ``cg_state.cuh``."""
RESIDENT = 5
"""Blocks of a multiprocessor: more would have too few registers."""
_BURST = 8  # iterations
_ROW = 32  # numbers: rows of vectors begin where lines of the cache do


@final
class DeviceConjugateGradients(Solve):
    """Solves whose vectors stay on a device; see ``cg.cuh`` and ``cg_state.cuh``.

    Of one process the state stays there, too: the host launches iterations without waiting for any.
    What it knows of their state was on its way while the last burst was launched; iterations after
    the end do nothing.  Of many ranks the host waits for the sums of each launch, adds those of all
    ranks and tells the device what is due.

    Parameters
    ----------
    operator : CompiledOperator
    b, x, inverse, merged, sums, natural
        See `CompiledOperator.conjugate_gradients`, and ``merged.cuh``.
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
        length = -(-len(b) // _ROW) * _ROW
        self._vectors = xp.zeros((4 + merged, max(length, 1)), b.dtype)
        given = self._vectors, len(b), inverse, self._there, merged, self._reduce is not None
        self._updates = Updates(self._device, *given)
        self._sweep = _MergedSweep(launches, self._updates) if merged else None
        self._bursts, self._repeat = 0, self._all
        _, _, self._q, *self._p = (row[: len(b)] for row in self._vectors)
        self.restart(b, x)

    def restart(self, b: Any, x: Any | None) -> None:
        """See `Solve.restart`."""
        self._b, self._old = b, 0
        self._pending: Callable[[], NDArray[Any]] | None = None
        self._renew(guessed=x is not None)
        self._state[at.STATE_SIZE :] = 0.0
        self._vectors[:] = 0.0
        if x is not None:
            self.x[:] = x
            self._operator.apply(self.x, self._q)

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`; the state is of the call before, unless ``show`` or no steps."""
        if self._numbers is not None:
            self._state[[at.GOAL, at.LIMIT]] = tolerance, limit
            between_messages(self._state, steps, show, self._act)
            return
        if self._state[at.ITERATIONS] < 0.0:
            self._state[[at.ITERATIONS, at.GOAL, at.LIMIT]] = 0.0, tolerance, limit
            self._there[:] = self._device.upload(self._state)
            self._updates.launch(START, self._p[0], self._b)
        if steps == _BURST and not show and self._old == 0:
            self._burst()
        else:
            for _ in range(steps):
                self._iterate()
        pending, self._pending = self._pending, self._device.download_later(self._there)
        if show or steps == 0:
            pending = self._pending
        if pending is not None:
            self._state = pending()

    def _act(self, action: int) -> NDArray[np.float64]:
        """Do an action, and give its sums; see `between_messages`."""
        assert self._numbers is not None
        assert self._reduce is not None
        if action == SWEEP:
            self._operator.apply(self._p[0], self._q)
        self._numbers.enter()
        self._updates.launch(action, self._p[0], self._b)
        if action == TURN:
            return np.zeros(0)
        self._numbers.depart()
        self._numbers.wait()
        found = self._reduce(self._numbers.here[SUMS:].reshape(2, 1))
        return found[:1] if action == SWEEP else found

    def _iterate(self) -> None:
        if self._sweep:
            old, new = self._p[self._old], self._p[1 - self._old]
            self._sweep.launch(old, new)
            self._updates.launch(MOVE, new)
            self._old = 1 - self._old
            return
        (p,) = self._p
        self._operator.apply(p, self._q)
        for action in (SWEEP, MOVE, TURN):
            self._updates.launch(action, p)

    def _burst(self) -> None:
        """As many iterations as `every` says, an even number: both vectors p are where they were.

        They are where they began, so that it is the same work each time.
        """
        if self._bursts == 1:  # all kernels have been launched
            self._repeat = self._device.repeatable(self._all)
        self._repeat()
        self._bursts += 1

    def _all(self) -> None:
        for _ in range(_BURST):
            self._iterate()


@final
class Updates:
    """The vector updates of conjugate gradients, and what sums need.

    Parameters
    ----------
    device : Device
    vectors : (4, m) array
        x, r, q = A p, and p.
    n : int
        Entries of a vector of the operator.
    inverse
        See `CompiledOperator.conjugate_gradients`.
    state : float64 array
        See ``cg_state.cuh``.
    merged : bool
        Whether the operator's kernel does some of them.
    ranks : bool
        Whether sums are left in the state, for the host to add those of all ranks.
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
        self._blocks = min(-(-n // SIMPLE_THREADS), RESIDENT * device.processors)
        layout = Layout(_VECTORS | {"count": "long long"} | STATE, kind)
        constants = {**_ACTIONS, "MERGED": int(merged), "RANKS": int(ranks), "BLOCKS": RESIDENT}
        self._functions: dict[int, Function] = {}
        for action in (START, MOVE) if merged else _ACTIONS.values():
            files = "reduce", "cg_state", "cg"
            text = simple_text(layout, kind, *files, **constants, ACTION=action)
            self._functions[action] = device.function(text)
        x, r, q = (row[:n] for row in vectors[:3])
        self._kept = {"x": x, "r": r, "q": q, "inverse": inverse, "state": state}
        self._kept |= memory_of_sums(device, self._blocks, SIMPLE_THREADS, 2)
        self._packed = layout.pack(device, **self._kept, b=None, p=None, count=n)

    def launch(self, action: int, p: Any, b: Any | None = None) -> None:
        """Do the updates of an action; the start takes b, too."""
        packed = copied(self._packed)
        packed["p"], packed["b"] = (0 if v is None else self.device.address(v) for v in (p, b))
        shared = 0 if action == TURN else 2 * SIMPLE_THREADS * 8
        self._functions[action].launch(self._blocks, SIMPLE_THREADS, shared, packed)


@final
class _MergedSweep:
    """The operator's kernel with updates in it."""

    def __init__(self, launches: DeviceLaunchSum, updates: Updates) -> None:
        (sweep,) = launches.sweeps
        assert isinstance(sweep, DeviceSweep)
        self._device, self._sweep = launches.device, sweep
        self._kernel = unspilled(replace(sweep.kernel, merged=True), self._device)
        self._sums = memory_of_sums(self._device, sweep.blocks, sweep.kernel.threads, 1)
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
        """Compute the next p, and q = A p."""
        packed, kernel = copied(self._packed), self._kernel
        packed["x"], packed["p"] = self._device.address(old), self._device.address(new)
        self._function.launch(self._sweep.blocks, kernel.threads, kernel.shared_bytes, packed)
        self._sweep.combine(int(packed["y"]))


def memory_of_sums(device: Device, blocks: int, threads: int, count: int) -> dict[str, Any]:
    """Memory of a launch that forms so many sums; see ``reduce.cuh``."""
    partials, counters = 0, 0
    while blocks > 1:
        groups = -(-blocks // threads)
        partials, counters, blocks = partials + blocks * count, counters + groups, groups
    xp = device.xp
    return {
        "partial": xp.zeros(max(partials, 1), np.float64),
        "counters": xp.zeros(max(counters, 1), np.uint32),
    }
