"""Rows of the result: cases timed, beside the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from femops.bench.gpu.bounds import Demand
from femops.bench.gpu.setup import GpuCase
from femops.bench.gpu.timing import batch_seconds
from femops_kernels.cuda.device import Device
from femops_kernels.cuda.rates import Rates
from femops_kernels.cuda.sweep import DeviceSweep, DeviceTerms

KEYS = (
    "problem",
    "mesh",
    "order",
    "q1d",
    "dofs",
    "level",
    "seconds_min",
    "seconds_median",
    "dofs_per_second",
    "bytes_per_dof",
    "shared_bytes_per_dof",
    "flops_per_dof",
    "atomics_per_dof",
    "seconds_memory",
    "seconds_shared",
    "seconds_flops",
    "seconds_atomics",
    "limit",
    "bound",
    "fraction_of_limit",
    "elements",
    "blocks",
    "threads",
    "registers",
    "local_bytes",
    "best",
    "off_other_level",
)
"""Keys of a row, in order."""


def measured(
    device: Device, cases: Sequence[GpuCase], rates: Rates, seconds: float
) -> list[dict[str, Any]]:
    """Rows of cases, timed one after the other; of the levels the better one is marked.

    Parameters
    ----------
    device : Device
    cases : sequence of GpuCase
    rates : Rates
    seconds : float
        For how long each is timed.
    """
    rows = [_row(case, batch_seconds(device, case.apply, seconds), rates) for case in cases]
    groups: dict[tuple[str, str], list[int]] = {}
    for k, case in enumerate(cases):
        groups.setdefault((case.problem.name, case.mesh), []).append(k)
    for group in groups.values():
        fastest = min(group, key=lambda k: rows[k]["seconds_median"])
        for k in group:
            others = [_difference(cases[k], cases[j]) for j in group if j != k]
            rows[k] |= {"best": k == fastest, "off_other_level": max(others, default=None)}
    return rows


def kernel_sweep(case: GpuCase) -> DeviceSweep:
    """The one kernel that applies a problem's operator."""
    terms = case.operator.terms
    assert isinstance(terms, DeviceTerms)
    (sweep,) = terms.sweeps
    assert isinstance(sweep, DeviceSweep)
    return sweep


def _row(case: GpuCase, times: Sequence[float], rates: Rates) -> dict[str, Any]:
    operator, median = case.operator, float(np.median(times))
    order, dofs = operator.space.order, operator.space.size
    demand = Demand.of(operator)
    bound = demand.bound(rates)
    kernel = kernel_sweep(case).kernel
    function = kernel_sweep(case).device.function(kernel.text)
    return {
        "problem": case.problem.name,
        "mesh": case.mesh,
        "order": order,
        "q1d": kernel.q1d,
        "dofs": dofs,
        "level": case.level,
        "seconds_min": min(times),
        "seconds_median": median,
        "dofs_per_second": dofs / median,
        "bytes_per_dof": demand.memory / dofs,
        "shared_bytes_per_dof": demand.shared / dofs,
        "flops_per_dof": demand.flops / dofs,
        "atomics_per_dof": demand.atomics / dofs,
        **{f"seconds_{name}": seconds for name, seconds in vars(bound).items()},
        "limit": dofs / bound.seconds,
        "bound": bound.name,
        "fraction_of_limit": bound.seconds / median,
        "elements": kernel.shape.elements,
        "blocks": kernel.shape.blocks,
        "threads": kernel.threads,
        "registers": function.registers,
        "local_bytes": function.local_bytes,
    }


def _difference(case: GpuCase, other: GpuCase) -> float:
    """How far results are apart, relative to the largest entry."""
    case.apply()
    other.apply()
    scale = float(abs(other.y).max())
    return float(abs(case.y - other.y).max()) / scale if scale else 0.0
