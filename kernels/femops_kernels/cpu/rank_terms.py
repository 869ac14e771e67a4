"""The terms of an operator on one of many ranks: running them while messages are on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.channel import Route
from femops_kernels.cpu.exchange import Forward, Reverse
from femops_kernels.cpu.rows import RowProduct
from femops_kernels.cpu.sweep import LAUNCH, Launch, Sweep, Terms, driver
from femops_kernels.skeletons.chunk import table as layout


@final
class RankTerms:
    """Terms of which each rank has its part, ready to be run by all ranks together.

    The first sweep works on chunks that touch no ghosts while those are on their way, then on those
    that do, and while the results for others are, on the rest.

    Parameters
    ----------
    terms : Terms
        Of this rank's elements.
    forwards : sequence of (Forward, int)
        What is exchanged before, and where in x the vector begins, bytes.
    reverses : sequence of (Reverse, int)
        What is exchanged afterwards, and where in y.
    routes : sequence of Route
        For each launch of the terms.
    at_once : bool
        Whether results of a launch are exchanged before the next: so they are added to those of
        other ranks in the order of the launches.

    Attributes
    ----------
    overlap : bool
        Whether chunks are worked on while messages are on their way; on unless it is set to False.
    """

    def __init__(
        self,
        terms: Terms,
        forwards: Sequence[tuple[Forward, int]],
        reverses: Sequence[tuple[Reverse, int]],
        routes: Sequence[Route],
        at_once: bool = False,
    ) -> None:
        self.terms, self.forwards, self.reverses = terms, tuple(forwards), tuple(reverses)
        self.routes, self.overlap = tuple(routes), True
        last = {route.reverse: k for k, route in enumerate(routes)}
        self._more = [
            not at_once and route.reverse in [r.reverse for r in routes[:k]]
            for k, route in enumerate(routes)
        ]
        self._due = [
            route.reverse is not None and (at_once or last[route.reverse] == k)
            for k, route in enumerate(routes)
        ]
        self._at_once = at_once
        self._orders = [chunk_order(sweep) for sweep in terms.sweeps]

    def apply(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        """Overwrite y by the sum of the terms applied to x. All ranks call this.

        Both are contiguous and of the kernels' type.
        """
        with LAUNCH:
            run = Run(self.terms, x.ctypes.data, y.ctypes.data)
            for forward, place in self.forwards:
                forward.start(run.x + place)
            for k, sweep in enumerate(self.terms.sweeps):
                self._launch(run, k, sweep)
            if not self._at_once:
                self._finish(run, range(len(self.reverses)))

    def _launch(self, run: Run, k: int, sweep: Launch) -> None:
        """Launch k: its chunks without ghosts around those with ghosts, for the first."""
        order, plain = self._orders[k]
        begin = plain // 2 if k == 0 and self.overlap and isinstance(sweep, Sweep) else 0
        behind = plain - begin if self.overlap and self._due[k] else 0
        # order: chunks without ghosts, then those with them
        run.some(k, order, 0, begin)
        if k == 0:
            for forward, _ in self.forwards:
                forward.finish()
        route = self.routes[k]
        if route.forward is not None:
            forward, place = self.forwards[route.forward]
            if isinstance(sweep, Sweep):
                sweep.table[layout.IN_GHOSTS] = forward.ghosts
            elif isinstance(sweep, RowProduct) and sweep.joined is not None:
                self.terms.rows[k, 4] = sweep.joined.fill(run.x + place) - run.x
        if not behind:
            run.some(k, order, begin, plain)
        run.some(k, order, plain, len(order))
        if route.reverse is not None:
            reverse = self.reverses[route.reverse][0]
            reverse.collect(sweep if isinstance(sweep, Sweep) else None, self._more[k])
            if self._due[k]:
                reverse.start()
        if behind:
            run.some(k, order, begin, plain)
        run.combined(k)
        if self._at_once and route.reverse is not None:
            self._finish(run, [route.reverse])

    def _finish(self, run: Run, which: Any) -> None:
        for k in which:
            reverse, place = self.reverses[k]
            reverse.finish(run.y + place)


def chunk_order(launch: Launch) -> tuple[NDArray[np.int64], int]:
    """Chunks of a launch, those without ghosts first, and how many these are."""
    if not isinstance(launch, Sweep):
        return np.arange(launch.row[3]), launch.row[3]
    ghostly = launch.source.with_ghosts | launch.target.with_ghosts
    return np.argsort(ghostly, kind="stable"), int(np.count_nonzero(~ghostly))


@final
class Run:
    """One application: compiled driver, addresses. Hold ``LAUNCH`` while it is used.

    Parameters
    ----------
    terms : Terms
    x, y : int
        Addresses of the vectors.
    rows, alphas : arrays, optional
        Launches and factors, if they are not those of the terms.
    """

    def __init__(
        self,
        terms: Terms,
        x: int,
        y: int,
        rows: NDArray[np.int64] | None = None,
        alphas: NDArray[np.float64] | None = None,
    ) -> None:
        self._driver, self.x, self.y = driver(), x, y
        self._work, self._work_bytes, self._team = terms.workplace()
        self._rows = terms.rows if rows is None else rows
        self._alphas = terms.alphas if alphas is None else alphas

    def _row(self, k: int) -> tuple[int, float]:
        return self._rows.ctypes.data + k * self._rows.strides[0], self._alphas[k]

    def some(self, k: int, order: NDArray[np.int64], begin: int, end: int) -> None:
        """Launch k on the chunks order[begin:end]."""
        if begin < end:
            work = self._work, self._work_bytes, self._team
            listed = order.ctypes.data + begin * order.itemsize, end - begin
            self._driver.some(*self._row(k), self.x, self.y, *work, *listed)

    def combined(self, k: int) -> None:
        """What is left of launch k."""
        self._driver.combined(*self._row(k), self.x, self.y, self._work, self._team)
