"""Operators on a device, of all problems of an order, made by several threads at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, final

import numpy as np

from femops.bench.gpu.record import Record
from femops.bench.problems import Problem, make_mesh
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.sweep import DeviceSweep

# What works side by side: NumPy's copies, and the compiler.
_WORKERS = 8


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

    @staticmethod
    def make(problem: Problem, mesh: str, level: str, space: H1) -> GpuCase:
        """Make the operator, its kernel and its data; nothing is run."""
        device = space.device
        assert device is not None
        operator = problem.operator(space, level)
        _ = operator.compiled
        random = np.random.default_rng(space.order).standard_normal(space.shape)
        return GpuCase(problem, mesh, level, operator, device.upload(random), space.zeros())

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return _name(self.problem, self.mesh, self.operator.space.order, self.level)

    @property
    def group(self) -> str:
        """Name of the cases that differ from it by their level alone."""
        return group_name(self.problem, self.mesh, self.operator.space.order)

    @property
    def sweep(self) -> DeviceSweep:
        """The one kernel that applies the operator."""
        (sweep,) = self.operator.compiled.sweeps
        assert isinstance(sweep, DeviceSweep)
        return sweep

    def apply(self) -> None:
        """Launch it."""
        self.operator.apply(self.x, self.y)


@final
@dataclass(frozen=True)
class Sizes:
    """Problems, meshes and levels that are measured for one order, and about how many dofs."""

    problems: Sequence[Problem]
    meshes: Sequence[str]
    levels: Sequence[str]
    order: int
    dofs: float

    @property
    def work(self) -> float:
        """Time of the set-up but for a factor: by elements, and by points."""
        points, elements = (self.order + 2) ** 3, self.dofs / self.order**3
        shares = sum(1.0 / problem.ncomp for problem in self.problems)
        return len(self.meshes) * shares * elements * (40.0 + points)


def set_up(device: Device, sizes: Sizes, record: Record) -> list[GpuCase]:
    """All cases of an order, of levels that are the same kernel one; `record` has what failed.

    Cases of groups that are done are left out.
    """
    groups: dict[tuple[str, int], list[tuple[Problem, str]]] = {}
    for kind, problem, level in product(sizes.meshes, sizes.problems, sizes.levels):
        if group_name(problem, kind, sizes.order) not in record.done:
            groups.setdefault((kind, problem.ncomp), []).append((problem, level))

    def begin(key: tuple[str, int]) -> tuple[H1 | None, GpuCase | None]:
        kind, ncomp = key

        def first() -> tuple[H1, GpuCase]:
            mesh = make_mesh(kind, sizes.order, sizes.dofs / ncomp)
            space = H1(mesh, sizes.order, ncomp, device=device)
            # what all operators on the space have in common is made with the first
            return space, GpuCase.make(groups[key][0][0], kind, groups[key][0][1], space)

        return record.attempt(f"{kind}, order {sizes.order}", first) or (None, None)

    def rest(task: tuple[str, H1, Problem, str]) -> GpuCase | None:
        kind, space, problem, level = task
        name = _name(problem, kind, sizes.order, level)
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
    return _distinct([case for case in cases if case is not None])


def _distinct(cases: Sequence[GpuCase]) -> list[GpuCase]:
    """Return the cases without twins: of levels that are the same kernel, the last."""
    kernels = {(case.problem.name, case.mesh, case.sweep.kernel.text): case for case in cases}
    return list(kernels.values())


def group_name(problem: Problem, mesh: str, order: int) -> str:
    """Name of the cases that differ by their level alone."""
    return f"{problem.name}, {mesh}, order {order}"


def _name(problem: Problem, mesh: str, order: int, level: str) -> str:
    return f"{group_name(problem, mesh, order)}, {level}"
