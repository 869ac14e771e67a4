"""Benchmark of merging the vector updates of conjugate gradients into the operator's sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.machine import Meter, using
from femops.bench.problems import (
    FOOTPRINTS,
    MESHES,
    PROBLEMS,
    Progress,
    check_asked,
    make_space,
)
from femops.bench.timing import call_seconds, median_seconds, medians, repeated
from femops.operators import Operator
from femops_kernels.cpu import machine
from femops_kernels.cpu.cg.cg import ConjugateGradients
from femops_kernels.cpu.operators import HostOperator

PROBLEM = PROBLEMS["bp1"]
"""Mass: the least work at a dof, so that the vectors weigh most."""

PASSES = {False: 13, True: 7}
"""Vectors read and written in an iteration, the operator's two among them: apart, and merged."""

_ITERATIONS = 20  # of a start from a random vector: few enough for no square to underflow


@final
@dataclass
class _Solves:
    """Conjugate gradients of both kinds, and the operator alone, on one mesh."""

    mesh: str
    operator: Operator
    b: NDArray[np.float64]
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {"apart": [], "merged": [], "operator": []}
    )

    def round(self, seconds: float) -> None:
        """Time each for about that long."""
        for name, merged in (("apart", False), ("merged", True)):
            times = repeated(partial(self._iteration, merged), seconds / _ITERATIONS, least=1)
            self.seconds[name].append(float(np.median(times)))
        y = np.empty_like(self.b)
        alone = median_seconds(lambda: self.operator.apply(self.b, y), seconds)
        self.seconds["operator"].append(alone)

    def _iteration(self, merged: bool) -> float:
        """Seconds of an iteration, the start left out."""
        compiled = self.operator.compiled
        assert isinstance(compiled, HostOperator)  # one rank
        solve = ConjugateGradients(compiled, self.b, None, None, merged)
        solve.advance(0.0, 2, 2, show=False)  # warms up
        more = partial(solve.advance, 0.0, 2 + _ITERATIONS, _ITERATIONS, show=False)
        return call_seconds(more) / (solve.iterations - 2)

    def row(self, meter: Meter, threads: int) -> dict[str, Any]:
        """One row of the result."""
        dofs, median = self.operator.space.size, medians(self.seconds)
        apart, merged = median["apart"], median["merged"]
        vector = 8 * dofs
        rest = self.operator.cost().bytes_moved - 2 * vector
        moved = {kind: rest + passes * vector for kind, passes in PASSES.items()}
        triad = 1e9 * meter.triad(threads, len(self.seconds["apart"]))
        return {
            "problem": PROBLEM.name,
            "mesh": self.mesh,
            "order": self.operator.space.order,
            "dofs": dofs,
            "level": self.operator.level,
            "threads": threads,
            **{f"seconds_{name}": seconds for name, seconds in median.items()},
            "dofs_per_second": dofs / merged,
            "ratio": apart / merged,
            "ratio_by_bytes": moved[False] / moved[True],
            "seconds_saved": apart - merged,
            "seconds_saved_by_bytes": (moved[False] - moved[True]) / triad,
        }


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
    """Measure iterations of conjugate gradients on bp1, their vector updates apart and merged.

    Arguments and errors are those of `femops.bench.run`; both kinds and the operator alone take
    turns. With the matrix, at the level "full", nothing can be merged.

    Returns
    -------
    dict
        ``machine`` and ``limits`` as `femops.bench.run` has them; ``rows`` with the seconds of an
        iteration (``seconds_apart``, ``seconds_merged``) and of the operator alone, the ``ratio``
        of the first two and what the count of bytes gives for it, the seconds saved and those that
        the bytes saved take at the speed of the triad; ``notes``: what could not be merged.
    """
    count = machine.get_threads() if threads is None else threads
    check_asked(meshes=meshes, levels=(level,), orders=orders, dofs=(dofs,), rounds=rounds)
    meter, rows, notes = Meter((count,)), [], []
    for order in orders:
        if progress:
            progress(f"cg, order {order}")
        solves = []
        for mesh in meshes:
            V = make_space(PROBLEM, mesh, order, dofs)
            with using(count):
                A = PROBLEM.operator(V, level)
            if A.level == "full":
                notes.append(f"{mesh}, order {order}: nothing to merge at the level full")
                continue
            b = np.random.default_rng(order).standard_normal(V.size)
            solves.append(_Solves(mesh, A, b))
        for _ in range(rounds if solves else 0):
            meter.round()
            for solve in solves:
                with using(count):
                    solve.round(seconds)
        rows += [solve.row(meter, count) for solve in solves]
    result = {"machine": meter.describe(), "limits": meter.limits()} if rows else {}
    return {"machine": machine.describe()} | result | {"rows": rows, "notes": notes}
