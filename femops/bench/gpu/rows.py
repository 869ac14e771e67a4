"""Rows of the result: operators and conjugate gradients, timed beside the bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import isfinite
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from femops.bench.bounds import Demand
from femops.bench.gpu.clocks import clocks
from femops.bench.gpu.record import Record, Row
from femops.bench.gpu.setup import GpuCase
from femops.bench.gpu.validation import relative_difference
from femops.bench.problems import Problem, Progress, make_mesh
from femops.bench.solvers.cg import PASSES
from femops.bench.timing import batch_times, call_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.solvers import cg
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Rates
from femops_meshes import Mesh

SOLVED = ("bp3", "bp1")
"""Problems that are solved."""

# Of two solves, both with a burst that is captured: what else they do is the same.
_FEW, _MANY = 16, 80
_ROUNDS = 5

Measured = tuple[GpuCase, Row]


def measured(
    device: Device,
    cases: Sequence[GpuCase],
    rates: Rates,
    seconds: float,
    found: Record,
    progress: Progress,
) -> None:
    """Add the rows of cases to a record, timed one after the other for so long."""
    groups: dict[str, list[GpuCase]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    for group in groups.values():
        timed: list[Measured] = []
        for case in group:
            row = found.measure(case.name, partial(_row, device, case, rates, seconds))
            if row is not None:
                timed.append((case, row))
                found.rows.append(row)
                found.keep()
                progress(f"{case.name}: {speed(row)}")
        _compare(device, timed, found)


def speed(row: Row) -> str:
    """Speed in words."""
    return (
        f"{1e-9 * row['dofs_per_second']:.3g} GDoF/s, {row['fraction_of_limit']:.0%} of "
        f"{1e-9 * row['limit']:.3g} ({row['bound']})"
    )


def _row(device: Device, case: GpuCase, rates: Rates, seconds: float) -> Row:
    times, kernel = batch_times(device, case.apply, seconds), case.sweep.kernel
    demand, dofs = Demand.of(case.operator), case.operator.space.size
    function = device.function(kernel.text)
    return (
        {"name": case.name}
        | _facts(case, demand, rates, times.median)
        | {
            "q1d": kernel.q1d,
            "seconds_min": min(times.seconds),
            "seconds_median": times.median,
            "seconds_launch": times.launch,
            "seconds_setup": _setup_seconds(case),
            "shared_bytes_per_dof": demand.shared / dofs,
            "flops_per_dof": demand.flops / dofs,
            "atomics_per_dof": demand.atomics / dofs,
            **{f"seconds_{name}": needed for name, needed in vars(demand.bound(rates)).items()},
            "elements": kernel.shape.elements,
            "blocks": kernel.shape.blocks,
            "staged": kernel.staged,
            "persistent": kernel.persistent,
            "threads": kernel.threads,
            "registers": function.registers,
            "local_bytes": function.local_bytes,
            **clocks(device),
            "off_other_level": None,
            "off_cpu": None,
        }
    )


def _setup_seconds(case: GpuCase) -> float:
    """Seconds to make the operator once more: its kernels are compiled, its space is known."""
    space = case.operator.space
    assert isinstance(space, H1)

    def make() -> None:
        _ = case.problem.operator(space, case.level).compiled  # it looks at what was computed

    return call_seconds(make)


def _facts(case: GpuCase, demand: Demand, rates: Rates, seconds: float) -> Row:
    """First entries of the rows of operators and of solvers."""
    space, bound = case.operator.space, demand.bound(rates)
    return {
        "problem": case.problem.name,
        "mesh": case.mesh,
        "order": space.order,
        "dofs": space.size,
        "level": case.level,
        "dofs_per_second": space.size / seconds,
        "bytes_per_dof": demand.memory / space.size,
        "limit": space.size / bound.seconds,
        "bound": bound.name,
        "fraction_of_limit": bound.seconds / seconds,
    }


def _compare(device: Device, group: Sequence[Measured], found: Record) -> None:
    """Say of levels how far each is from the others and from the CPU."""
    for case, row in group:
        others = [other for other, _ in group if other is not case]
        name = f"{case.name}, compared"
        row["off_other_level"] = found.measure(name, partial(_off, case, others))
        row["off_cpu"] = found.measure(f"{case.name}, on the CPU", partial(off_cpu, device, case))


def _off(case: GpuCase, others: Iterable[GpuCase]) -> float | None:
    """Distance of results from those of others, relative to the largest entry.

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


# --- beside the CPU's matrices --------------------------------------------------------------------


def off_cpu(device: Device, case: GpuCase) -> float:
    """Distance of a kernel's results from those of the matrix, assembled on the host.

    On a small mesh of the same kind; relative to the largest entry. The kernel is the very same.

    Raises
    ------
    OperatorError
        Results are not finite, or another kernel was made.
    """
    problem, order = case.problem, case.operator.space.order
    mesh = _small(case.mesh, order)
    space = H1(mesh, order, problem.ncomp, device=device)
    small = GpuCase.make(problem, case.mesh, case.level, space)
    if small.sweep.kernel.text != case.sweep.kernel.text:
        raise OperatorError("a small mesh has another kernel: nothing is compared")
    small.apply()
    # components of a vector are the same problem each
    x, y = (space.components(device.download(vector)) for vector in (small.x, small.y))
    expected: Any = _matrix(replace(problem, name="", ncomp=1), case.mesh, order) @ x
    return relative_difference(y, expected)


def _small(kind: str, order: int) -> Mesh:
    """Few elements, but at low orders more than a block has."""
    n = 3 if order < 5 else 2
    return make_mesh(kind, order, (n * order + 1.0) ** 3)


@lru_cache(maxsize=8)  # levels, and problems with the same form, follow each other
def _matrix(problem: Problem, kind: str, order: int) -> csr_array:
    return problem.operator(H1(_small(kind, order), order)).assemble()


# --- conjugate gradients --------------------------------------------------------------------------


def solved(
    device: Device, cases: Sequence[GpuCase], rates: Rates, found: Record, progress: Progress
) -> None:
    """Add rows of conjugate gradients on those of the cases that are of `SOLVED`.

    An iteration's seconds are those of many iterations less those of few.
    """
    for case in cases:
        if case.problem.name in SOLVED:
            row = found.measure(f"CG, {case.name}", partial(_solve_row, device, case, rates))
            if row is not None:
                progress(f"CG, {case.name}: {speed(row)}")
                found.cg.append(row)
                found.keep()


def _solve_row(device: Device, case: GpuCase, rates: Rates) -> Row:
    operator = case.operator
    if case.problem.form == "diffusion":
        operator = operator.constrained(operator.space.boundary_dofs())
    median = float(np.median([_iteration(device, operator, case.x) for _ in range(_ROUNDS)]))
    more = (PASSES[True] - 2) / 2  # besides the operator's, as many are read as written
    demand = Demand.of(operator).with_vectors(more, more, operator.space.size)
    return {
        "name": f"CG, {case.name}",
        **_facts(case, demand, rates, median),
        "seconds_iteration": median,
        **clocks(device),
    }


def _iteration(device: Device, operator: Operator, b: Any) -> float:
    """Seconds of an iteration; the right-hand side is rough, so that none ends too early."""
    taken: list[int] = []

    def run(iterations: int) -> None:
        taken.append(cg(operator, b, rtol=0.0, maxiter=iterations, warn=False)[1].iterations)

    run(_FEW)
    few, many = (device.seconds(partial(run, n)) for n in (_FEW, _MANY))
    more = taken[-1] - taken[-2]
    return (many - few) / max(more, 1)
