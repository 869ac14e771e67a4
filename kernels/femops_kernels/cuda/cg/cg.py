"""Conjugate gradients on a device: its vectors and numbers stay there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cg import Solve
from femops_kernels.cuda.device.arguments import Layout, copied
from femops_kernels.cuda.device.device import Device, Function
from femops_kernels.cuda.operator.kernel import SIMPLE_THREADS, STATE, simple_text, unspilled
from femops_kernels.cuda.operator.sweep import DeviceLaunchSum, DeviceSweep

_PARTS = {"BEGIN": 0, "PRODUCT": 1, "STEP": 2, "TURN": 3}
_VECTORS = {"x": "T*", "r": "T*", "p": "T*", "q": "T*", "b": "const T*", "inverse": "const T*"}
_STATE_NUMBERS, _GOAL, _LIMIT = 9, 7, 8  # as in ``cg_state.cuh``
RESIDENT = 5
"""Blocks of a multiprocessor: more would have too few registers."""
_ROW = 32  # numbers: rows of vectors begin where lines of the cache do


@final
class DeviceConjugateGradients(Solve):
    """State of one solve, as `ConjugateGradients`; see ``cg.cuh`` and ``cg_state.cuh``.

    The host launches iterations without waiting for any. What it knows of their state was on its
    way while the last burst was launched; iterations after the end do nothing.

    Parameters
    ----------
    launches : DeviceLaunchSum
    b, x, inverse, merged
        See `CompiledOperator.conjugate_gradients`, and ``merged.cuh``.
    """

    every = 8

    def __init__(
        self, launches: DeviceLaunchSum, b: Any, x: Any, inverse: Any | None, merged: bool
    ) -> None:
        self._launches, self._device = launches, launches.device
        self._b, self.merged = b, merged
        xp, length = self._device.xp, -(-len(b) // _ROW) * _ROW
        self._vectors = xp.zeros((4 + merged, max(length, 1)), b.dtype)
        self.x[:] = x
        self._state = np.zeros(_STATE_NUMBERS)
        self._there: Any = None
        self._pending: Callable[[], NDArray[Any]] | None = None
        self._inverse, self._old, self._bursts = inverse, 0, 0
        self._repeat: Callable[[], None] | None = None
        _, _, self._q, *self._p = (row[: len(b)] for row in self._vectors)

    def advance(self, tolerance: float, limit: int, steps: int, show: bool = True) -> None:
        """See `Solve.advance`; the state is of the call before, unless ``show`` or no steps."""
        if self._there is None:
            self._begin(tolerance, limit)
        if steps == self.every and not show and self._old == 0:
            self._burst()
        else:
            for _ in range(steps):
                self._iterate()
        pending, self._pending = self._pending, self._device.download_later(self._there)
        if show or steps == 0:
            pending = self._pending
        if pending is not None:
            self._state = pending()

    def _begin(self, tolerance: float, limit: int) -> None:
        self._state[[_GOAL, _LIMIT]] = tolerance, limit
        self._there = self._device.upload(self._state)
        given = self._vectors, self._b, self._inverse, self._there
        parts = Parts(self._device, *given, merged=self.merged)
        self._parts = parts
        self._pass = _Pass(self._launches, parts) if self.merged else None
        self._launches.apply(self.x, self._q)
        parts.launch("BEGIN", self._p[0])

    def _iterate(self) -> None:
        if self._pass:
            old, new = self._p[self._old], self._p[1 - self._old]
            self._pass.launch(old, new)
            self._parts.launch("STEP", new)
            self._old = 1 - self._old
            return
        (p,) = self._p
        self._launches.apply(p, self._q)
        for part in ("PRODUCT", "STEP", "TURN"):
            self._parts.launch(part, p)

    def _burst(self) -> None:
        """As many iterations as `every`, an even number: both vectors p are where they were.

        They are where they began, so that it is the same work each time.
        """
        if self._bursts == 1:  # all kernels have been launched
            self._repeat = self._device.repeatable(self._all)
        (self._repeat or self._all)()
        self._bursts += 1

    def _all(self) -> None:
        for _ in range(self.every):
            self._iterate()


@final
class Parts:
    """The vector updates of conjugate gradients, and what sums need.

    Parameters
    ----------
    device : Device
    vectors : (4, m) array
        x, r, q = A p, and p.
    b, inverse
        See `DeviceConjugateGradients`.
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
        b: Any,
        inverse: Any | None,
        state: Any,
        *,
        merged: bool = False,
        ranks: bool = False,
    ) -> None:
        self.device = device
        self.vectors, self.inverse, self.state, n = vectors, inverse, state, len(b)
        self.blocks = min(-(-n // SIMPLE_THREADS), RESIDENT * self.device.processors)
        layout = Layout(_VECTORS | {"count": "long long"} | STATE, b.dtype)
        self._functions: dict[str, Function] = {}
        names = [name for name in _PARTS if not merged or name in ("BEGIN", "STEP")]
        for name in names:
            constants = {**_PARTS, "PART": _PARTS[name], "MERGED": int(merged)}
            constants |= {"RANKS": int(ranks), "BLOCKS": RESIDENT}
            text = simple_text(layout, b.dtype, "reduce", "cg_state", "cg", **constants)
            self._functions[name] = self.device.function(text)
        x, r, q = (row[:n] for row in vectors[:3])
        self._kept = {"x": x, "r": r, "q": q, "b": b, "inverse": inverse, "state": state}
        self._kept |= memory_of_sums(self.device, self.blocks, SIMPLE_THREADS, 2)
        self._packed = layout.pack(self.device, **self._kept, p=None, count=n)

    def launch(self, part: str, p: Any) -> None:
        """Do one of the updates."""
        packed = copied(self._packed)
        packed["p"] = self.device.address(p)
        shared = 0 if part == "TURN" else 2 * SIMPLE_THREADS * 8
        self._functions[part].launch(self.blocks, SIMPLE_THREADS, shared, packed)


@final
class _Pass:
    """The operator's kernel with updates in it."""

    def __init__(self, launches: DeviceLaunchSum, parts: Parts) -> None:
        (sweep,) = launches.sweeps
        assert isinstance(sweep, DeviceSweep)
        self._device, self._sweep = launches.device, sweep
        self._kernel = unspilled(replace(sweep.kernel, merged=True), self._device)
        self._sums = memory_of_sums(self._device, sweep.blocks, sweep.kernel.threads, 1)
        self._function, self._packed = sweep.bind(
            self._kernel,
            r=parts.vectors[1],
            y=parts.vectors[2],
            inverse=parts.inverse,
            state=parts.state,
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
