"""Operators of the benchmark of a GPU, and conjugate gradients, compared with the bound.

Several threads make the operators of one order at the same time, for all problems.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, final

import numpy as np
from scipy.sparse import csr_array

from femops.bench.bounds import Demand
from femops.bench.gpu.run import ALL, Row, Run, clocks, relative_difference
from femops.bench.problems import Problem, make_mesh
from femops.bench.solvers.cg import PASSES
from femops.bench.timing import batch_times, call_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.solvers import cg
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.operator.kernel import LineKernel
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.rates import Rates
from femops_kernels.device import Device
from femops_meshes import Mesh

_WORKERS = 8  # NumPy's copies and the compiler can run in parallel
# Problems that are solved by conjugate gradients, and orders.
_SOLVED, _SOLVED_ORDERS = ("bp3", "bp1"), (3, 6)
# Iterations of the two solves. Both have a recorded burst, and the same work besides iterations.
_FEW, _MANY = 16, 80
_ROUNDS = 5


@final
@dataclass(frozen=True)
class Sizes:
    """Problems, meshes and levels that are measured for one order, and the number of dofs."""

    problems: Sequence[Problem]
    meshes: Sequence[str]
    levels: Sequence[str]
    order: int
    dofs: float
    prefix: str = ""

    @property
    def name(self) -> str:
        """Name in words."""
        given = (*(problem.name for problem in self.problems), *self.meshes, *self.levels)
        return f"{self.prefix}order {self.order}, {', '.join(given)}"

    @property
    def effort(self) -> float:
        """Relative time of the setup, from the numbers of elements and points."""
        points, elements = (self.order + 2) ** 3, self.dofs / self.order**3
        shares = sum(1.0 / problem.ncomp for problem in self.problems)
        return len(self.meshes) * shares * elements * (40.0 + points)


@final
@dataclass(eq=False)
class GpuCase:
    """An operator that is to be measured, with vectors on its device."""

    problem: Problem
    mesh: str
    level: str
    operator: Operator
    x: Any
    y: Any
    prefix: str = ""

    @staticmethod
    def make(problem: Problem, mesh: str, level: str, space: H1) -> GpuCase:
        """Make the operator, its kernel and its data, without running the kernel."""
        device = space.device
        assert device is not None
        operator = problem.operator(space, level)
        _ = operator.compiled
        random = np.random.default_rng(space.order).standard_normal(space.shape)
        return GpuCase(problem, mesh, level, operator, device.upload(random), space.zeros())

    @property
    def facts(self) -> dict[str, Any]:
        """Name, problem, mesh, order and level: the first entries of the case's rows."""
        order = self.operator.space.order
        facts = {"problem": self.problem.name, "mesh": self.mesh, "order": order}
        return {"name": f"{self.group}, {self.level}"} | facts | {"level": self.level}

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return str(self.facts["name"])

    @property
    def group(self) -> str:
        """Name of the group of cases that differ only in their level."""
        order = self.operator.space.order
        return self.prefix + group_name(self.problem, self.mesh, order)

    @property
    def kernel(self) -> LineKernel:
        """Kernel of the operator."""
        kernel = self.sweep.kernel
        assert isinstance(kernel, LineKernel)
        return kernel

    @property
    def sweep(self) -> DeviceSweep:
        """The one kernel that applies the operator."""
        (sweep,) = self.operator.compiled.sweeps
        assert isinstance(sweep, DeviceSweep)
        return sweep

    def apply(self) -> None:
        """Launch the kernel."""
        self.operator.apply(self.x, self.y)


def set_up(run: Run, sizes: Sizes) -> list[GpuCase]:
    """Make all cases of an order, except groups that are done. Failures go to the record.

    If several levels have the same kernel, only the case of the last such level is returned.
    """
    order, record = sizes.order, run.found
    run.show(f"order {order}: setting up")
    groups: dict[tuple[str, int], list[tuple[Problem, str]]] = {}
    for kind, problem, level in product(sizes.meshes, sizes.problems, sizes.levels):
        if sizes.prefix + group_name(problem, kind, order) not in record.done:
            groups.setdefault((kind, problem.ncomp), []).append((problem, level))

    def begin(key: tuple[str, int]) -> tuple[H1 | None, GpuCase | None]:
        (kind, ncomp), (problem, level) = key, groups[key][0]

        def first() -> tuple[H1, GpuCase]:
            space = H1(make_mesh(kind, order, sizes.dofs / ncomp), order, ncomp, device=run.device)
            # the first operator also makes the data that all operators on the space share
            return space, GpuCase.make(problem, kind, level, space)

        return record.attempt(f"{kind}, order {order}", first) or (None, None)

    def rest(task: tuple[Problem, str, str, H1]) -> GpuCase | None:
        problem, kind, level, _ = task
        name = f"{group_name(problem, kind, order)}, {level}"
        return record.attempt(name, partial(GpuCase.make, *task))

    with ThreadPoolExecutor(min(_WORKERS, os.cpu_count() or 1)) as pool:
        begun = dict(zip(groups, pool.map(begin, groups), strict=True))
        tasks = [
            (problem, key[0], level, space)
            for key, (space, _) in begun.items()
            if space is not None
            for problem, level in groups[key][1:]
        ]
        cases = [*(case for _, case in begun.values()), *pool.map(rest, tasks)]
    made = [replace(case, prefix=sizes.prefix) for case in cases if case is not None]
    kernels = {(case.problem.name, case.mesh, case.sweep.kernel.text): case for case in made}
    return list(kernels.values())


def group_name(problem: Problem, mesh: str, order: int) -> str:
    """Name of the group of cases that differ only in their level."""
    return f"{problem.name}, {mesh}, order {order}"


# --- rows ----------------------------------------------------------------------------------------


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
    demand, space = Demand.of(case.operator), case.operator.space
    assert isinstance(space, H1)
    # the operator is made again, with its kernels compiled, and with checks of the computed data
    setup = call_seconds(lambda: case.problem.operator(space, case.level).compiled)
    function = run.device.function(kernel.text)
    row = _facts(case, demand, rates, times.median) | {"q1d": kernel.spec.q1d}
    row |= {"seconds_min": min(times.seconds), "seconds_median": times.median}
    row |= {"seconds_launch": times.launch, "seconds_setup": setup}
    row |= {"shared_bytes_per_dof": demand.shared / space.size}
    row |= {f"{name}_per_dof": getattr(demand, name) / space.size for name in ("flops", "atomics")}
    row |= {f"seconds_{name}": needed for name, needed in demand.bound(rates).items()}
    row |= asdict(kernel.shape) | {"staged": kernel.staged, "persistent": kernel.persistent}
    row |= {"threads": kernel.threads, "registers": function.registers}
    row |= {"local_bytes": function.local_bytes, **clocks(run.device)}
    return [row | {"off_other_level": None, "off_cpu": None}]


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


@lru_cache(maxsize=8)  # levels, and problems with the same form, follow each other
def _matrix(problem: Problem, kind: str, order: int) -> csr_array:
    return problem.operator(H1(_small(kind, order), order)).assemble()


def _small(kind: str, order: int) -> Mesh:
    """Make a mesh of few elements. At low orders it has more elements than a thread block."""
    n = 3 if order < 5 else 2
    return make_mesh(kind, order, (n * order + 1.0) ** 3)


# --- conjugate gradients --------------------------------------------------------------------------


def _solve_row(run: Run, case: GpuCase, rates: Rates) -> list[Row]:
    """Measure an iteration of conjugate gradients, and return its row."""
    operator = case.operator
    if case.problem.form == "diffusion":
        operator = operator.constrained(operator.space.boundary_dofs())
    each = [_iteration(run.device, operator, case.x) for _ in range(_ROUNDS)]
    median = float(np.median(each))
    more = (PASSES["merged"] - 2) / 2  # besides the operator's, as many are read as written
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
