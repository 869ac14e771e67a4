"""Rows of the result: operators and conjugate gradients, compared with the bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from femops.bench.bounds import Demand
from femops.bench.gpu.clocks import clocks
from femops.bench.gpu.record import ALL, Row
from femops.bench.gpu.run import Run, relative_difference
from femops.bench.gpu.setup import GpuCase, Sizes, set_up
from femops.bench.problems import Problem, make_mesh
from femops.bench.solvers.cg import PASSES
from femops.bench.timing import batch_times, call_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.solvers import cg
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.rates import Rates
from femops_kernels.device import Device
from femops_meshes import Mesh

# Problems that are solved by conjugate gradients, and orders.
_SOLVED, _SOLVED_ORDERS = ("bp3", "bp1"), (3, 6)
# Iterations of the two solves. Both have a recorded burst, and the same work besides iterations.
_FEW, _MANY = 16, 80
_ROUNDS = 5


def operator_rows(sizes: Sizes, run: Run) -> None:
    """Measure the operators of an order, and conjugate gradients with some of them."""
    found, rates = run.found, run.rates
    if rates is None:
        return
    cases = set_up(run, sizes)
    run.show(f"order {sizes.order}: measuring {len(cases)} operators")
    for name in dict.fromkeys(case.group for case in cases):
        group = [case for case in cases if case.group == name]
        timed = {
            case: row
            for case in group
            for row in run.measure("rows", case.name, partial(_row, run, case, rates))
        }
        _compare(run, timed)
    for case in cases if sizes.order in _SOLVED_ORDERS else ():
        if case.problem.name in _SOLVED:
            run.measure("cg", f"CG, {case.name}", partial(_solve_row, run, case, rates))
    if not found.dead:
        found.attempt(ALL, run.device.synchronize)
        found.done += dict.fromkeys(case.group for case in cases)


def _row(run: Run, case: GpuCase, rates: Rates) -> list[Row]:
    times, kernel = batch_times(run.device, case.apply, run.seconds), case.sweep.kernel
    demand, dofs = Demand.of(case.operator), case.operator.space.size
    function = run.device.function(kernel.text)
    return [
        _facts(case, demand, rates, times.median)
        | {
            "q1d": kernel.q1d,
            "seconds_min": min(times.seconds),
            "seconds_median": times.median,
            "seconds_launch": times.launch,
            "seconds_setup": _setup_seconds(case),
            "shared_bytes_per_dof": demand.shared / dofs,
            "flops_per_dof": demand.flops / dofs,
            "atomics_per_dof": demand.atomics / dofs,
            **{f"seconds_{name}": needed for name, needed in demand.bound(rates).items()},
            **asdict(kernel.shape),
            "staged": kernel.staged,
            "persistent": kernel.persistent,
            "threads": kernel.threads,
            "registers": function.registers,
            "local_bytes": function.local_bytes,
            **clocks(run.device),
            "off_other_level": None,
            "off_cpu": None,
        }
    ]


def _setup_seconds(case: GpuCase) -> float:
    """Seconds to make the operator again on its space, with its kernels already compiled."""
    space = case.operator.space
    assert isinstance(space, H1)

    def make() -> None:
        _ = case.problem.operator(space, case.level).compiled  # with checks of the computed data

    return call_seconds(make)


def _facts(case: GpuCase, demand: Demand, rates: Rates, seconds: float) -> Row:
    """First entries of the rows of operators and of solvers."""
    dofs = case.operator.space.size
    moved = {"bytes_per_dof": demand.memory / dofs}
    return case.facts | {"dofs": dofs} | demand.bound(rates).speed(dofs, seconds) | moved


def _compare(run: Run, timed: dict[GpuCase, Row]) -> None:
    """Add to the rows the differences of each level from the other levels and from the CPU."""
    for case, row in timed.items():
        others = [other for other in timed if other is not case]
        off, cpu = partial(_off, run, case, others), partial(off_cpu, run.device, case)
        row["off_other_level"] = run.found.measure(f"{case.name}, compared", off)
        row["off_cpu"] = run.found.measure(f"{case.name}, on the CPU", cpu)


def _off(run: Run, case: GpuCase, others: Iterable[GpuCase]) -> float | None:
    """Largest `relative_difference` between a case's results and the results of other cases."""
    found = []
    for other in others:
        case.apply()
        other.apply()
        found.append(relative_difference(*map(run.device.download, (case.y, other.y))))
    return max(found, default=None)


# --- comparison with the CPU's matrices -----------------------------------------------------------


def off_cpu(device: Device, case: GpuCase) -> float:
    """Relative difference between the products with a kernel and with a matrix from the host.

    Both operators are on a small mesh of the same kind. The kernel is that of the large mesh.
    """
    problem, order = case.problem, case.operator.space.order
    mesh = _small(case.mesh, order)
    space = H1(mesh, order, problem.ncomp, device=device)
    small = GpuCase.make(problem, case.mesh, case.level, space)
    if small.sweep.kernel.text != case.sweep.kernel.text:
        raise OperatorError("a small mesh has another kernel: nothing is compared")
    small.apply()
    # each component of a vector is the same problem
    x, y = (space.components(device.download(vector)) for vector in (small.x, small.y))
    expected: Any = _matrix(replace(problem, name="", ncomp=1), case.mesh, order) @ x
    return relative_difference(y, expected)


def _small(kind: str, order: int) -> Mesh:
    """Make a mesh of few elements. At low orders it has more elements than a thread block."""
    n = 3 if order < 5 else 2
    return make_mesh(kind, order, (n * order + 1.0) ** 3)


@lru_cache(maxsize=8)  # levels, and problems with the same form, follow each other
def _matrix(problem: Problem, kind: str, order: int) -> csr_array:
    return problem.operator(H1(_small(kind, order), order)).assemble()


# --- conjugate gradients --------------------------------------------------------------------------


def _solve_row(run: Run, case: GpuCase, rates: Rates) -> list[Row]:
    """Measure an iteration of conjugate gradients, and return its row."""
    operator = case.operator
    if case.problem.form == "diffusion":
        operator = operator.constrained(operator.space.boundary_dofs())
    each = [_iteration(run.device, operator, case.x) for _ in range(_ROUNDS)]
    median = float(np.median(each))
    more = (PASSES[True] - 2) / 2  # besides the operator's, as many are read as written
    demand = Demand.of(operator).with_vectors(more, more, operator.space.size)
    facts = _facts(case, demand, rates, median) | {"name": f"CG, {case.name}"}
    return [facts | {"seconds_iteration": median} | clocks(run.device)]


def _iteration(device: Device, operator: Operator, b: Any) -> float:
    """Seconds of an iteration: the difference of the times of a long and a short solve.

    The right-hand side b (n,) must be rough, so that no solve ends too early.
    """
    taken: list[int] = []

    def run(iterations: int) -> None:
        taken.append(cg(operator, b, rtol=0.0, maxiter=iterations, warn=False)[1].iterations)

    run(_FEW)
    few, many = (device.seconds(partial(run, n)) for n in (_FEW, _MANY))
    return (many - few) / max(taken[-1] - taken[-2], 1)
