"""Operators compiled for the host, on one process and on many ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.compiled import DistributedOperator, Instruction, Routes
from femops_kernels.cpu.cg import ConjugateGradients, mergeable
from femops_kernels.cpu.exchange import Forward, Reverse
from femops_kernels.cpu.rows import RowProduct
from femops_kernels.cpu.sequence import application_instruction
from femops_kernels.cpu.sweep import Application, ElementSweep, LaunchSum, chunk_order
from femops_kernels.cpu.thread_pool import LAUNCH


@final
class HostOperator(LaunchSum):
    """An operator that one process applies with its threads; see `LaunchSum`."""

    solves = ConjugateGradients

    def instruction(self, x: NDArray[Any], y: NDArray[Any]) -> Instruction:
        return application_instruction(self, x, y)

    def mergeable(self, size: int, *, many: bool) -> bool:  # noqa: ARG002  (that of the sweep)
        """See `CompiledOperator.mergeable`. It needs one sweep, and one rank."""
        return not many and mergeable(self)


@final
class DistributedHostOperator(DistributedOperator):
    """An operator that ranks share. It computes while messages are on their way.

    The first round works on half of the chunks without ghosts while the values of ghosts arrive.
    Then it works on the chunks with ghosts.  While their contributions are sent, it works on the
    other chunks without ghosts.
    """

    solves = ConjugateGradients

    def __init__(
        self,
        local: HostOperator,
        forwards: Sequence[tuple[Forward, int]],
        reverses: Sequence[tuple[Reverse, int]],
        routes: Routes,
        at_once: bool = False,
    ) -> None:
        super().__init__(local, forwards, reverses, routes, at_once)
        self._more = [
            [not at_once and n in self._reversed(k) for n in route.reverses]
            for k, route in enumerate(routes)
        ]
        self._orders = [chunk_order([local.sweeps[k] for k in each]) for each in local.rounds]

    def _reversed(self, k: int) -> set[int | None]:
        """Numbers of the reverse exchanges that take contributions of the launches before k."""
        return {n for route in self.routes[:k] for n in route.reverses}

    def apply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        with LAUNCH:
            run = Application(self.local, x.ctypes.data, y.ctypes.data)
            for forward, place in self.forwards:
                forward.start(run.x + place)
            for launches, order in zip(self.local.rounds, self._orders, strict=True):
                self._round(run, launches, *order)
            if not self._at_once:
                self._finish(run, range(len(self.reverses)))

    def _round(
        self, run: Application, launches: range, order: NDArray[np.int64], plain: int
    ) -> None:
        """Run a round and its exchanges; the first works while values of ghosts arrive.

        The order begins with ``plain`` chunks without ghosts.
        """
        first, sweeping = launches[0], isinstance(self.sweeps[launches[0]], ElementSweep)
        begin = plain // 2 if first == 0 and self.overlap and sweeping else 0
        sends = any(any(self._due[k]) for k in launches)
        behind = plain - begin if self.overlap and sends else 0
        run.some(first, order, 0, begin)
        if first == 0:
            for forward, _ in self.forwards:
                forward.finish()
        for k in launches:
            self._take_ghosts(run, k)
        if not behind:
            run.some(first, order, begin, plain)
        run.some(first, order, plain, len(order))
        for k in launches:
            self._send(k)
        if behind:
            run.some(first, order, begin, plain)
        run.combined(first)
        if self._at_once:
            reversed_by = [n for k in launches for n in self.routes[k].reverses]
            self._finish(run, (n for n in reversed_by if n is not None))

    def _take_ghosts(self, run: Application, k: int) -> None:
        """Store the address of the ghosts' values in the table or the row of launch k."""
        sweep = self.sweeps[k]
        for field, n in enumerate(self.routes[k].forwards):
            if n is None:
                continue
            forward, place = self.forwards[n]
            if isinstance(sweep, ElementSweep):
                sweep.table[sweep.ghosts_at[field]] = forward.ghosts
            elif isinstance(sweep, RowProduct) and sweep.joined is not None:
                self.local.rows[k, 4] = sweep.joined.fill(run.x + place) - run.x

    def _send(self, k: int) -> None:
        """Collect the contributions of launch k to ghosts, and send each complete message."""
        sweep = self.sweeps[k]
        for test, n in enumerate(self.routes[k].reverses):
            if n is None:
                continue
            reverse = self.reverses[n][0]
            left = sweep.left[test] if isinstance(sweep, ElementSweep) else None
            reverse.collect(left, self._more[k][test])
            if self._due[k][test]:
                reverse.start()

    def _finish(self, run: Application, which: Iterable[int]) -> None:
        for k in which:
            reverse, place = self.reverses[k]
            reverse.finish(run.y + place)

    def mergeable(self, size: int, *, many: bool) -> bool:  # noqa: ARG002  (that of the sweep)
        """See `CompiledOperator.mergeable`. It needs one sweep, and one exchange each way."""
        return len(self.forwards) == len(self.reverses) == 1 and mergeable(self.local)
