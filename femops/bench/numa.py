"""What the placement of data on several memories (NUMA nodes) is worth.

Figure 6 of Abdelfattah et al., High-performance tensor contractions for GPUs (2016), for an
operator: all data where one thread has touched them, page by page in turns, and each part in the
memory of the thread that works on it, as `femops_kernels.cpu.first_touch` leaves them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.placement import NODES, bind, memories
from femops.bench.problems import FOOTPRINTS, PROBLEMS, make_mesh
from femops.bench.run import Progress, check_dofs, check_orders
from femops.bench.timing import median_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed, placed_array
from femops_kernels.cpu.sweep import Sweep

PLACEMENTS = ("serial", "interleaved", "first touch")
PROBLEM, MESH = PROBLEMS["bp3"], "multilinear"
"""Much data at every point, so that memory decides."""

ONE_MEMORY = (
    "there is one memory (NUMA node): placement makes no difference, nothing is measured or drawn"
)


@final
@dataclass
class _Placed:
    placement: str
    operator: Operator
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    seconds: list[float] = field(default_factory=list)

    def arrays(self) -> list[NDArray[Any]]:
        """What an application reads and writes."""
        found = [self.x, self.y]
        for sweep in self.operator.compiled.sweeps:
            assert isinstance(sweep, Sweep)  # of the level "partial"
            found += [sweep.data.points, sweep.source.starts]
        return found

    def place(self, nodes: Sequence[int]) -> None:
        """Move everything, unless it is to stay with who touched it; ``nodes`` are the threads'."""
        for array in self.arrays() if self.placement != "first touch" else ():
            if self.placement == "serial":
                bind(array, nodes[:1])
            else:
                bind(array, sorted(set(nodes)), interleave=True)

    def round(self, seconds: float) -> None:
        """Time applications for about that long (at least three)."""
        self.seconds.append(median_seconds(lambda: self.operator.apply(self.x, self.y), seconds))

    def row(self, threads: int) -> dict[str, Any]:
        """One row of the result."""
        dofs, median = self.operator.space.size, float(np.median(self.seconds))
        moved = self.operator.cost().bytes_moved
        return {
            "placement": self.placement,
            "problem": PROBLEM.name,
            "mesh": MESH,
            "order": self.operator.space.order,
            "dofs": dofs,
            "level": self.operator.level,
            "threads": threads,
            "seconds_median": median,
            "dofs_per_second": dofs / median,
            "gbytes_per_second": moved / median * 1e-9,
        }


def run_numa(
    orders: Sequence[int] = tuple(range(1, 9)),
    dofs: float = FOOTPRINTS["ram"],
    *,
    rounds: int = 5,
    seconds: float = 0.3,
    nodes: Path = NODES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure diffusion (bp3, level "partial") with its data placed in three ways.

    All threads work, each pinned to a core, the first ones to those of the first memory.

    Parameters
    ----------
    orders : sequence of int
    dofs : float
        About how many unknowns.
    rounds, seconds, progress
        See `femops.bench.run`; the placements take turns.
    nodes : pathlib.Path
        The kernel's description of the memories.

    Returns
    -------
    dict
        ``machine``; ``nodes``: cores of each memory; ``rows``, none where there is one memory;
        ``notes``: a line that says so.

    Raises
    ------
    OperatorError
        No order, fewer than one dof or round, or pages cannot be placed.
    """
    check_orders(orders)
    check_dofs(dofs)
    if rounds < 1:
        raise OperatorError("nothing to measure: give at least one round")
    found = memories(nodes)
    result: dict[str, Any] = {"machine": machine.describe(), "nodes": found, "rows": []}
    if len(found) < 2:
        return result | {"notes": [ONE_MEMORY]}
    threads = min(machine.max_threads(), sum(map(len, found.values())))
    with _spread(found, threads) as places:
        for order in dict.fromkeys(orders):
            if progress:
                progress(f"{PROBLEM.name}, order {order}")
            result["rows"] += _order(order, dofs, places, rounds, seconds)
    return result | {"notes": []}


def _order(
    order: int, dofs: float, places: list[int], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    mesh = make_mesh(MESH, order, dofs)
    cases = []
    for placement in PLACEMENTS:
        V = H1(mesh, order)  # a space of its own, so that no indices are shared
        x = placed(np.random.default_rng(order).standard_normal(V.size))
        y = placed_array((V.size,), np.float64)
        case = _Placed(placement, PROBLEM.operator(V, "partial"), x, y)
        case.place(places)
        cases.append(case)
    for _ in range(rounds):
        for case in cases:
            case.round(seconds)
    return [case.row(len(places)) for case in cases]


@contextmanager
def _spread(found: dict[int, list[int]], threads: int) -> Iterator[list[int]]:
    """Pin the threads to cores, an equal share to each memory; yields the memory of each."""
    before, count = os.sched_getaffinity(0), machine.get_threads()
    machine.set_threads(threads)
    nodes = list(found)
    places = sorted(nodes[k % len(nodes)] for k in range(threads))
    ids = machine.thread_ids()
    try:
        for k, (thread, node) in enumerate(zip(ids, places, strict=True)):
            cores = found[node]
            os.sched_setaffinity(thread, {cores[(k - places.index(node)) % len(cores)]})
        yield places
    finally:
        for thread in ids:
            os.sched_setaffinity(thread, before)
        machine.set_threads(count)


def draw_numa(path: str | os.PathLike[str], rows: Sequence[dict[str, Any]]) -> Path:
    """Draw dofs a second over p, a curve for each placement.

    Raises
    ------
    OperatorError
        There are no rows.
    FileError, MissingExtraError
        See `femops.io.plots.curves.curves`.
    """
    from femops.bench.drawing import orders_of
    from femops.io.plots.curves import Panel, curves

    lines = {
        name: [row["dofs_per_second"] for row in rows if row["placement"] == name]
        for name in PLACEMENTS
    }
    orders = orders_of(rows)
    return curves(path, orders, "p", [Panel(f"{PROBLEM.name}, {MESH}: dofs/s", lines)])
