"""Rows of the result: cases timed, beside the bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import isfinite
from typing import Any

from femops.bench.gpu.attempts import Attempts
from femops.bench.gpu.bounds import Demand
from femops.bench.gpu.checks import off_cpu
from femops.bench.gpu.setup import GpuCase
from femops.bench.gpu.timing import batch_times
from femops.bench.run import Progress
from femops.errors import OperatorError
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Rates

KEYS = (
    "problem",
    "mesh",
    "order",
    "q1d",
    "dofs",
    "level",
    "seconds_min",
    "seconds_median",
    "seconds_launch",
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
    "limit_of_levels",
    "off_other_level",
    "off_cpu",
)
"""Keys of a row, in order."""

Measured = tuple[GpuCase, dict[str, Any]]


def measured(
    device: Device,
    cases: Sequence[GpuCase],
    rates: Rates,
    seconds: float,
    attempts: Attempts,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Rows of cases, timed one after the other; of the levels the better one is marked.

    Parameters
    ----------
    device : Device
    cases : sequence of GpuCase
    rates : Rates
    seconds : float
        For how long each is timed.
    attempts : Attempts
        Is told of cases that fail.
    progress : callable
        Called with a line on each that is measured.
    """
    groups: dict[tuple[str, str], list[Measured]] = {}
    for case in cases:
        row = attempts(case.name, partial(_row, device, case, rates, seconds))
        if row is not None:
            groups.setdefault((case.problem.name, case.mesh), []).append((case, row))
            progress(f"{case.name}: {speed(row)}")
    for group in groups.values():
        _compare(device, group, attempts)
    return [row for group in groups.values() for _, row in group]


def speed(row: dict[str, Any]) -> str:
    """How fast it is, in words."""
    return (
        f"{1e-9 * row['dofs_per_second']:.3g} GDoF/s, {row['fraction_of_limit']:.0%} of "
        f"{1e-9 * row['limit']:.3g} ({row['bound']})"
    )


def _row(device: Device, case: GpuCase, rates: Rates, seconds: float) -> dict[str, Any]:
    times, operator = batch_times(device, case.apply, seconds), case.operator
    order, dofs = operator.space.order, operator.space.size
    demand = Demand.of(operator)
    bound = demand.bound(rates)
    kernel = case.sweep.kernel
    function = device.function(kernel.text)
    return {
        "problem": case.problem.name,
        "mesh": case.mesh,
        "order": order,
        "q1d": kernel.q1d,
        "dofs": dofs,
        "level": case.level,
        "seconds_min": min(times.seconds),
        "seconds_median": times.median,
        "seconds_launch": times.launch,
        "dofs_per_second": dofs / times.median,
        "bytes_per_dof": demand.memory / dofs,
        "shared_bytes_per_dof": demand.shared / dofs,
        "flops_per_dof": demand.flops / dofs,
        "atomics_per_dof": demand.atomics / dofs,
        **{f"seconds_{name}": needed for name, needed in vars(bound).items()},
        "limit": dofs / bound.seconds,
        "bound": bound.name,
        "fraction_of_limit": bound.seconds / times.median,
        "elements": kernel.shape.elements,
        "blocks": kernel.shape.blocks,
        "threads": kernel.threads,
        "registers": function.registers,
        "local_bytes": function.local_bytes,
    }


def _compare(device: Device, group: Sequence[Measured], attempts: Attempts) -> None:
    """Say of levels which is the best, and how far each is from the others and from the CPU."""
    fastest = min((row for _, row in group), key=lambda row: row["seconds_median"])
    most = max(row["limit"] for _, row in group)
    for case, row in group:
        others = [other for other, _ in group if other is not case]
        off = attempts(f"{case.name}, compared", partial(_off, case, others))
        row |= {"best": row is fastest, "limit_of_levels": most, "off_other_level": off}
        row["off_cpu"] = attempts(f"{case.name}, on the CPU", partial(off_cpu, device, case))


def _off(case: GpuCase, others: Iterable[GpuCase]) -> float | None:
    """How far results are from those of others, relative to the largest entry.

    Raises
    ------
    OperatorError
        They are no finite numbers.
    """
    differences = [_difference(case, other) for other in others]
    if not all(map(isfinite, differences)):
        raise OperatorError("results are not finite")
    return max(differences, default=None)


def _difference(case: GpuCase, other: GpuCase) -> float:
    case.apply()
    other.apply()
    scale = float(abs(other.y).max())
    return float(abs(case.y - other.y).max()) / scale if scale else 0.0
