"""Settings of the benchmark of a GPU, and the operators that it measures.

Several threads make the operators of one order at the same time, for all problems.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, final

import numpy as np

from femops.bench.gpu.cases import FACES, GAS, VECTORS, FacesCase, GasCase, VectorsCase
from femops.bench.gpu.run import Run
from femops.bench.problems import (
    FOOTPRINTS,
    PROBLEMS,
    Problem,
    check_asked,
    choose,
    default_dofs,
    make_mesh,
)
from femops.bench.tensor.products import Products
from femops.operators import Operator
from femops.operators.execution.device import LEVELS
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.rates import Amounts
from femops_kernels.device import Device

GPU_DOFS = 1e7
"""Approximate number of dofs that keeps a GPU busy, with data larger than its caches."""

# NumPy's copies and the compiler can run in parallel.
_WORKERS = 8


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
@dataclass(frozen=True)
class GpuSettings:
    """Settings of the benchmark."""

    # orders in the sequence of their measurement; the most important order is the first
    orders: Sequence[int] = (6, 4, 8, 3, 2, 5, 7, 1)
    problems: Sequence[str] = tuple(PROBLEMS)
    meshes: Sequence[str] = ("cartesian", "multilinear")
    levels: Sequence[str] = tuple(reversed(LEVELS))
    # approximate number of dofs, by default `GPU_DOFS`. By default p = 1 has an eighth of it and
    # p = 2 half, because the setup of a mesh takes longest at these orders.
    dofs: float | None = None
    seconds: float = 0.15  # time for which each case is measured
    # seconds for the benchmark. Steps for which no time is left are skipped, and noted.
    budget: float = 450.0
    products: Products = Products()  # noqa: RUF009  (frozen)
    gas: Sequence[GasCase] = GAS  # runs of gas dynamics
    vectors: Sequence[VectorsCase] = VECTORS  # operators on many vectors
    faces: Sequence[FacesCase] = FACES  # forms over faces between elements
    amounts: Amounts = Amounts()  # noqa: RUF009  (frozen)
    device: str | Device = "cuda"

    def check(self) -> None:
        """Check names, orders and dofs."""
        self.products.check()
        dofs = () if self.dofs is None else (self.dofs,)
        check_asked(problems=self.problems, meshes=self.meshes, orders=self.orders, dofs=dofs)
        choose("level", self.levels, LEVELS, where=" on a GPU")

    def sizes(self, most: float = GPU_DOFS, prefix: str = "") -> list[Sizes]:
        """Return the `Sizes` of each order; their names begin with the prefix."""
        problems = [PROBLEMS[name] for name in dict.fromkeys(self.problems)]
        found = []
        for order in dict.fromkeys(self.orders) if problems and self.meshes else ():
            share = default_dofs("ram", order) / FOOTPRINTS["ram"]
            dofs = share * most if self.dofs is None else self.dofs
            found.append(Sizes(problems, self.meshes, self.levels, order, dofs, prefix))
        return found


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
        kind, ncomp = key

        def first() -> tuple[H1, GpuCase]:
            space = H1(make_mesh(kind, order, sizes.dofs / ncomp), order, ncomp, device=run.device)
            # the first operator also makes the data that all operators on the space share
            return space, GpuCase.make(groups[key][0][0], kind, groups[key][0][1], space)

        return record.attempt(f"{kind}, order {order}", first) or (None, None)

    def rest(task: tuple[str, H1, Problem, str]) -> GpuCase | None:
        kind, space, problem, level = task
        name = f"{group_name(problem, kind, order)}, {level}"
        return record.attempt(name, partial(GpuCase.make, problem, kind, level, space))

    with ThreadPoolExecutor(min(_WORKERS, os.cpu_count() or 1)) as pool:
        begun = dict(zip(groups, pool.map(begin, groups), strict=True))
        tasks = [
            (kind, space, problem, level)
            for (kind, ncomp), (space, _) in begun.items()
            if space is not None
            for problem, level in groups[kind, ncomp][1:]
        ]
        cases = [*(case for _, case in begun.values()), *pool.map(rest, tasks)]
    made = [replace(case, prefix=sizes.prefix) for case in cases if case is not None]
    kernels = {(case.problem.name, case.mesh, case.sweep.kernel.text): case for case in made}
    return list(kernels.values())


def group_name(problem: Problem, mesh: str, order: int) -> str:
    """Name of the group of cases that differ only in their level."""
    return f"{problem.name}, {mesh}, order {order}"
