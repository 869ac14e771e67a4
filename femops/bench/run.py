"""Timing operators in interleaved rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.problems import MESHES, PROBLEMS, make_mesh
from femops.errors import OperatorError
from femops.operators import Operator
from femops.space import H1
from femops_kernels import machine
from femops_kernels.limits import Limits

Progress = Callable[[str], None]


@final
@dataclass
class _Case:
    problem: str
    mesh: str
    operator: Operator
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    seconds: list[float] = field(default_factory=list)

    def round(self, seconds: float) -> None:
        """Time applications for about that long (at least three); the round's median is kept."""
        times: list[float] = []
        self.operator.apply(self.x, self.y)
        while len(times) < 3 or sum(times) < seconds:
            begin = perf_counter()
            self.operator.apply(self.x, self.y)
            times.append(perf_counter() - begin)
        self.seconds.append(float(np.median(times)))

    def row(self, threads: int, triad: float, peak: float) -> dict[str, Any]:
        """One row of the result."""
        space, cost = self.operator.space, self.operator.cost()
        dofs = space.size
        median = float(np.median(self.seconds))
        least = max(cost.bytes_moved / (triad * 1e9), cost.flops / (peak * 1e9))
        return {
            "problem": self.problem,
            "mesh": self.mesh,
            "order": space.order,
            "q1d": space.order + 2,
            "dofs": dofs,
            "level": "partial",
            "threads": threads,
            "seconds_min": min(self.seconds),
            "seconds_median": median,
            "dofs_per_second": dofs / median,
            "bytes_per_dof": cost.bytes_moved / dofs,
            "flops_per_dof": cost.flops / dofs,
            "roofline": dofs / least,
            "implementation": "femops",
        }


def run(
    problem: str,
    orders: Sequence[int] = tuple(range(1, 9)),
    dofs: float = 1.8e6,
    threads: int | None = None,
    *,
    meshes: Sequence[str] = MESHES,
    rounds: int = 5,
    seconds: float = 0.3,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure an operator's speed on this machine.

    For each order, all meshes take turns with the machine's own limits for a number of rounds; a
    row reports the median (and least) of the rounds' medians.

    Parameters
    ----------
    problem : {"bp1", "bp3"}
        See `femops.bench.PROBLEMS`.
    orders : sequence of int
    dofs : float
        About how many unknowns.
    threads : int, optional
        As many as `femops_kernels.machine.get_threads` says if omitted.  One thread is pinned to
        its core.
    meshes : sequence of {"deformed", "cartesian"}
    rounds : int
    seconds : float
        Time of a round for one mesh.
    progress : callable, optional
        Called with a line of text before each order.

    Returns
    -------
    dict
        ``machine``: `femops_kernels.machine.describe` with ``triad_gbytes_per_second`` and
        ``fma_gflops_per_second`` (medians); ``rows``: see `docs/performance.md` for the keys.

    Raises
    ------
    OperatorError
        An unknown problem or mesh, no order, fewer than one round.
    """
    _check(problem, orders, meshes, rounds)
    if threads is not None:
        machine.set_threads(threads)
    count = machine.get_threads()
    rows, triads, peaks = [], [], []
    with _pinned(count):
        limits = Limits(count)
        limits.triad(), limits.multiply_adds()
        for order in orders:
            if progress:
                progress(f"{problem}, order {order}")
            cases = [_case(problem, mesh, order, dofs) for mesh in meshes]
            triad, peak = [], []
            for _ in range(rounds):
                for case in cases:
                    triad.append(max(limits.triad() for _ in range(2)))
                    peak.append(limits.multiply_adds())
                    case.round(seconds)
            rows += [c.row(count, float(np.median(triad)), float(np.median(peak))) for c in cases]
            triads += triad
            peaks += peak
    described = machine.describe()
    described["triad_gbytes_per_second"] = float(np.median(triads))
    described["fma_gflops_per_second"] = float(np.median(peaks))
    return {"machine": described, "rows": rows}


def _check(problem: str, orders: Sequence[int], meshes: Sequence[str], rounds: int) -> None:
    if problem not in PROBLEMS:
        raise OperatorError(f"problem {problem!r}: choose one of {', '.join(PROBLEMS)}")
    unknown = [mesh for mesh in meshes if mesh not in MESHES]
    if unknown:
        raise OperatorError(f"mesh {unknown[0]!r}: choose one of {', '.join(MESHES)}")
    if not orders or rounds < 1:
        raise OperatorError("nothing to measure: give at least one order and one round")


def _case(problem: str, mesh: str, order: int, dofs: float) -> _Case:
    V = H1(make_mesh(mesh, order, dofs), order)
    x = np.random.default_rng(order).standard_normal(V.size)
    return _Case(problem, mesh, PROBLEMS[problem](V), x, V.zeros())


@contextmanager
def _pinned(threads: int) -> Iterator[None]:
    """Keep a single thread on one core while it is measured; several find their own."""
    if threads > 1 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
