"""Conjugate gradients on a GPU, by the iteration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from femops.bench.gpu.attempts import Attempts
from femops.bench.gpu.bounds import Demand
from femops.bench.gpu.rows import speed
from femops.bench.gpu.setup import GpuCase
from femops.bench.run import Progress
from femops.bench.solver import PASSES
from femops.operators import Operator
from femops.solvers import cg
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Rates

SOLVED = ("bp3", "bp1")
"""Problems that are solved."""

# Of two solves, both with a burst that is captured: what else they do is the same.
_FEW, _MANY = 16, 80
_ROUNDS = 5


def solved(
    device: Device,
    cases: Sequence[GpuCase],
    rates: Rates,
    attempts: Attempts,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Rows of conjugate gradients on those of the cases that are of `SOLVED`.

    An iteration's seconds are those of many iterations less those of few.
    """
    rows = []
    for case in cases:
        if case.problem.name in SOLVED:
            row = attempts(f"CG, {case.name}", partial(_row, device, case, rates))
            if row is not None:
                progress(f"CG, {case.name}: {speed(row)}")
                rows.append(row)
    return rows


def _row(device: Device, case: GpuCase, rates: Rates) -> dict[str, Any]:
    operator = case.operator
    if case.problem.form == "diffusion":
        operator = operator.constrained(operator.space.boundary_dofs())
    times = [_iteration(device, operator, case.x) for _ in range(_ROUNDS)]
    dofs, median = operator.space.size, float(np.median(times))
    demand = Demand.of(operator).with_vectors(PASSES[True] - 2, dofs)
    bound = demand.bound(rates)
    return {
        "problem": case.problem.name,
        "mesh": case.mesh,
        "order": operator.space.order,
        "dofs": dofs,
        "level": case.level,
        "seconds_iteration": median,
        "dofs_per_second": dofs / median,
        "bytes_per_dof": demand.memory / dofs,
        "limit": dofs / bound.seconds,
        "bound": bound.name,
        "fraction_of_limit": bound.seconds / median,
    }


def _iteration(device: Device, operator: Operator, b: Any) -> float:
    """Seconds of an iteration; the right-hand side is rough, so that none ends too early."""
    taken: list[int] = []

    def run(iterations: int) -> None:
        taken.append(cg(operator, b, rtol=0.0, maxiter=iterations)[1].iterations)

    run(_FEW)
    few, many = (device.seconds(partial(run, n)) for n in (_FEW, _MANY))
    more = taken[-1] - taken[-2]
    return (many - few) / max(more, 1)
