"""Benchmark of merging the vector updates of conjugate gradients into the operator's sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.bench.machine import Meter, using
from femops.bench.problems import FOOTPRINTS, MESHES, PROBLEMS, Progress, check_asked, make_space
from femops.bench.timing import call_seconds, in_turns, median_seconds, medians, repeated
from femops.operators import Operator
from femops_kernels.cpu import machine
from femops_kernels.cpu.cg import ConjugateGradients
from femops_kernels.cpu.operators import HostOperator

PROBLEM = PROBLEMS["bp1"]
"""Mass matrix: the least work per dof, so that vector updates have the largest share."""

PASSES = {"apart": 13, "merged": 7}
"""Number of vectors that an iteration reads and writes, two of them in the operator."""

_ITERATIONS = 20  # from a random vector: few enough that no square underflows


def run_cg(
    orders: Sequence[int] = tuple(range(1, 9)),
    dofs: float = FOOTPRINTS["ram"],
    threads: int | None = None,
    *,
    meshes: Sequence[str] = MESHES,
    level: str = "auto",
    rounds: int = 5,
    seconds: float = 0.3,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure iterations of conjugate gradients on bp1, with separate and merged vector updates.

    Arguments and errors are as in `femops.bench.run`. Both kinds of conjugate gradients and the
    operator alone take turns. The level "full" has a matrix and no sweep to merge with.

    Returns
    -------
    dict
        ``machine`` and ``limits`` as in `femops.bench.run`.  ``rows`` have the seconds of an
        iteration (``seconds_apart``, ``seconds_merged``) and of the operator alone, the ``ratio``
        of the first two and the same ratio of bytes, the seconds saved, and the seconds that the
        saved bytes take at the speed of the triad.  ``notes`` are cases that could not be merged.
    """
    count = machine.get_threads() if threads is None else threads
    check_asked(meshes=meshes, levels=(level,), orders=orders, dofs=(dofs,), rounds=rounds)
    meter, rows, notes = Meter((count,)), [], []
    for order in orders:
        if progress:
            progress(f"cg, order {order}")
        operators: dict[str, Operator] = {}
        measures: dict[tuple[str, str], Callable[[], float]] = {}
        for mesh in meshes:
            V = make_space(PROBLEM, mesh, order, dofs)
            with using(count):
                A = PROBLEM.operator(V, level)
            if A.level == "full":
                notes.append(f"{mesh}, order {order}: nothing to merge at the level full")
                continue
            b, operators[mesh] = np.random.default_rng(order).standard_normal(V.size), A
            for kind in PASSES:
                measures[mesh, kind] = partial(_iteration, A, b, kind == "merged", seconds)
            apply = partial(A.apply, b, np.empty_like(b))
            measures[mesh, "operator"] = partial(median_seconds, apply, seconds)
        with using(count):
            times = medians(in_turns(measures, rounds if operators else 0, meter.round))
        for mesh, A in operators.items():
            median = {name: seconds for (of, name), seconds in times.items() if of == mesh}
            facts = {"problem": PROBLEM.name, "mesh": mesh, "order": order, "dofs": A.space.size}
            facts |= {"level": A.level, "threads": count}
            rows.append(facts | _figures(A, median, 1e9 * meter.triad(count, rounds)))
    result = {"machine": meter.describe(), "limits": meter.limits()} if rows else {}
    return {"machine": machine.describe()} | result | {"rows": rows, "notes": notes}


def _iteration(A: Operator, b: NDArray[np.float64], merged: bool, seconds: float) -> float:
    """Median seconds of an iteration, without the start of the solve; b is (size,)."""
    compiled = A.compiled
    assert isinstance(compiled, HostOperator)  # one rank

    def once() -> float:
        solve = ConjugateGradients(compiled, b, None, None, merged)
        solve.advance(0.0, 2, 2, show=False)  # warms up
        more = partial(solve.advance, 0.0, 2 + _ITERATIONS, _ITERATIONS, show=False)
        return call_seconds(more) / (solve.iterations - 2)

    return float(np.median(repeated(once, seconds / _ITERATIONS, least=1)))


def _figures(A: Operator, median: dict[str, float], triad: float) -> dict[str, Any]:
    """Entries of a row from median seconds by name; the triad is in bytes/s."""
    apart, merged, vector = median["apart"], median["merged"], 8 * A.space.size
    rest = A.cost().bytes_moved - 2 * vector
    moved = {kind: rest + passes * vector for kind, passes in PASSES.items()}
    return {f"seconds_{name}": seconds for name, seconds in median.items()} | {
        "dofs_per_second": A.space.size / merged,
        "ratio": apart / merged,
        "ratio_by_bytes": moved["apart"] / moved["merged"],
        "seconds_saved": apart - merged,
        "seconds_saved_by_bytes": (moved["apart"] - moved["merged"]) / triad,
    }
