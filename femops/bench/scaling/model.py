"""A model of operators on many ranks: latency, bandwidth, the speed of a rank, halo sizes.

An application on N ranks takes

    T = W + overhead + 2 max(0, M - I / 2),  M = messages latency + bytes / bandwidth,

where W is what a rank takes for its own elements, measured on boxes of many sizes, and I the part
of it for elements that touch nothing shared. Ghosts are on their way during the first half of
these, contributions to others' dofs during the second; without overlap I is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, final

import numpy as np

from femops.bench.scaling.halos import Counts, Halo

_REAL = 8


@final
@dataclass(frozen=True)
class Model:
    """Model of the time of an application on any number of ranks.

    Attributes
    ----------
    latency, bandwidth : float
        Seconds of a message without content, bytes a second.
    elements, measured : sequence of float
        Seconds of an application on one rank, over the number of its elements, ascending; with all
        cores of the machine at work.
    overhead : float
        Seconds that an application on several ranks takes besides.
    order, ncomp : int
        Of the space.
    halo : callable
        See `femops.bench.scaling.halos.halo`.
    """

    latency: float
    bandwidth: float
    elements: Sequence[float]
    measured: Sequence[float]
    overhead: float
    order: int
    ncomp: int
    halo: Callable[[Counts, int, int], Halo]

    def work(self, elements: float) -> float:
        """Seconds for so many elements of one rank.

        Between sizes that were measured it is a power; beyond the largest time goes with the
        elements, below the smallest it stays what it is.
        """
        last = self.elements[-1]
        if elements > last:
            return self.measured[-1] * elements / last
        known = np.log(self.elements), np.log(self.measured)
        return float(np.exp(np.interp(np.log(elements), *known)))

    def predicted(self, counts: Counts, ranks: int) -> dict[str, Any]:
        """Seconds on so many ranks, and what they are made of."""
        total = counts[0] * counts[1] * counts[2]
        each = ceil(total / ranks)
        halo = self.halo(counts, ranks, self.order)
        work = self.work(each)
        nbytes = halo.dofs * self.ncomp * _REAL
        one_way = halo.messages * self.latency + nbytes / self.bandwidth
        wait = 2.0 * max(0.0, one_way - work * (1.0 - halo.near) / 2.0)
        fixed = work + (self.overhead if ranks > 1 else 0.0)
        return {
            "ranks": ranks,
            "elements": each,
            "seconds": fixed + wait,
            "seconds_without_overlap": fixed + 2.0 * one_way,
            "wait": wait,
            "wait_without_overlap": 2.0 * one_way,
            "messages": halo.messages,
            "bytes": nbytes,
            "halo": halo.source,
        }

    def strong(
        self, counts: Counts, ranks: Sequence[int], one: float | None = None
    ) -> list[dict[str, Any]]:
        """The same problem on more and more ranks, with ``speedup`` and ``efficiency``.

        ``one`` are seconds on one rank, where other cores are idle; predicted too if omitted.
        """
        rows = [self.predicted(counts, many) for many in ranks]
        one = self.predicted(counts, 1)["seconds"] if one is None else one
        for row in rows:
            if row["ranks"] == 1:
                row["seconds"] = row["seconds_without_overlap"] = one
            row["speedup"] = one / row["seconds"]
            row["efficiency"] = row["speedup"] / row["ranks"]
        return rows

    def weak(
        self, sized: Callable[[int], Counts], ranks: Sequence[int], one: float | None = None
    ) -> list[dict[str, Any]]:
        """As many elements for each rank in boxes that are ``sized``, with ``efficiency``.

        ``one`` are seconds an element on one rank, other cores idle; predicted if omitted.
        """
        first = int(np.prod(sized(1)))
        if one is None:
            one = self.predicted(sized(1), 1)["seconds"] / first
        rows = []
        for many in ranks:
            row = self.predicted(sized(many), many)
            if many == 1:
                row["seconds"] = row["seconds_without_overlap"] = one * row["elements"]
            row["efficiency"] = one * row["elements"] / row["seconds"]
            rows.append(row)
        return rows
