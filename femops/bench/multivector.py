"""Operators on many vectors: at once, by matrices of elements, and one vector after the other.

The cases are those of the paper on multivectors (seed 003): few elements of high order, p + 1 Gauss
points, up to a thousand vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import gauss
from femops.bench.machine import Meter, one_blas_thread, using
from femops.bench.problems import Progress, check_asked, choose, make_mesh
from femops.bench.timing import in_turns, median_seconds
from femops.errors import OperatorError
from femops.fields.multivector import MultiVector
from femops.forms import form
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.compiled import Panels
from femops_kernels.cpu import machine
from femops_kernels.cpu.kernels.blas import gemm_address
from femops_kernels.cpu.kernels.kernel import Kernel
from femops_kernels.pointwise.sum_factorization import contraction_operations

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]


FORMS: dict[str, Callable[..., Any]] = {
    "mass": lambda u: {"value": u},
    "laplacian": lambda u: {"grad": u.grad},
    "helmholtz": lambda u: {"value": u, "grad": u.grad},
    "hamiltonian": lambda u, x: {"value": 0.5 * sum(c * c for c in x) * u, "grad": 0.5 * u.grad},
}
"""Forms that are measured; the Hamiltonian is that of the harmonic oscillator."""

METHODS = ("columns", "panels", "cell matrices", "one by one")
"""``columns``: all at once, (size, nvec). ``panels``: all at once, (panels, size, width)."""


@final
@dataclass(frozen=True)
class Settings:
    """Choice of what is measured.

    Attributes
    ----------
    forms, meshes, methods : sequence of str
    orders, vectors : sequence of int
        Degrees, and numbers of vectors.
    widths : sequence of int
        Vectors of a panel.
    cells : int
        About how many elements.
    threads, rounds : int
    seconds : float
        About how long each case is timed in a round.
    """

    forms: Sequence[str] = ("mass",)
    meshes: Sequence[str] = ("multilinear",)
    methods: Sequence[str] = METHODS
    orders: Sequence[int] = (7, 8)
    vectors: Sequence[int] = (100,)
    widths: Sequence[int] = (16,)
    cells: int = 27
    threads: int = 1
    rounds: int = 5
    seconds: float = 0.05

    def check(self) -> None:
        """Refuse what can't be measured.

        Raises
        ------
        OperatorError
        """
        check_asked(meshes=self.meshes, orders=self.orders, rounds=self.rounds)
        choose("problem", self.forms, FORMS)
        choose("method", self.methods, METHODS)
        slots = machine.lane_width()
        if min(self.vectors, default=0) < 1 or self.cells < 1:
            raise OperatorError("nothing to measure: give at least one vector, one cell")
        if min(self.widths, default=0) < slots:
            raise OperatorError(f"panels of {min(self.widths)} vectors: give {slots} or more")
        if max(self.vectors) < slots and "one by one" not in self.methods:
            raise OperatorError(
                f"{max(self.vectors)} vectors at most: give {slots} or more, as lanes have "
                "slots, or the method one-by-one"
            )


def run_multivector(asked: Settings, progress: Progress | None = None) -> dict[str, Any]:
    """Time the methods in turns, beside the machine's rate of multiply-adds.

    Parameters
    ----------
    asked : Settings
    progress : callable, optional

    Returns
    -------
    dict
        ``machine``, ``rows`` and ``notes``.  A row has ``problem``, ``mesh``, ``order``, ``cells``,
        ``dofs``, ``nvec``, ``method``, ``width`` (of panels), ``threads``, ``seconds_min``,
        ``seconds_median``, ``dofs_per_second`` (times vectors), ``fraction_of_fma_peak`` (of
        instructions on lanes after even-odd, a multiply-add is one; where known), and
        ``over_cell_matrices``, ``over_one_by_one``: how many times as fast.

    Raises
    ------
    OperatorError
        Something unknown, or nothing.
    """
    asked.check()
    meter, rows = Meter((asked.threads,)), list[dict[str, Any]]()
    blas, _ = gemm_address(np.float64)
    notes = [f"cell matrices are multiplied by the BLAS of {blas}"]
    slots = machine.lane_width()
    if min(asked.vectors) < slots:
        notes.append(
            f"fewer than {slots} vectors are measured one by one only: A @ X fills up lanes"
        )
    alone = one_blas_thread()  # femops' own share the elements out
    if alone is None:
        notes.append("BLAS uses threads of its own: pip install threadpoolctl to forbid it")
    with alone or nullcontext():
        for order, mesh, name in dict.fromkeys(product(asked.orders, asked.meshes, asked.forms)):
            if progress:
                progress(f"{name}, order {order}, {mesh}")
            rows += _measured(asked, meter, order, mesh, name)
    return {"machine": meter.describe(), "rows": rows, "notes": notes}


def _measured(
    asked: Settings, meter: Meter, order: int, mesh: str, name: str
) -> list[dict[str, Any]]:
    """Rows of one form on one space."""
    nodes = float(round(asked.cells ** (1 / 3)) * order + 1) ** 3
    V = H1(make_mesh(mesh, order, nodes), order)
    operator = form(FORMS[name], V, quadrature=gauss(order + 1))
    facts = {"problem": name, "mesh": mesh, "order": order}
    facts |= {"cells": V.mesh.num_elements, "dofs": V.size}
    cases = [case for nvec in asked.vectors for case in _cases(asked, operator, nvec)]
    measures = {k: partial(median_seconds, case.run, asked.seconds) for k, case in enumerate(cases)}
    with using(asked.threads):
        times = in_turns(measures, asked.rounds, meter.round)
    # instructions on lanes a second at the peak, where each is a multiply-add, so two flops
    peak = meter.peak(asked.threads) * 1e9 / (2 * machine.lane_width())
    rows = []
    for case, seconds in zip(cases, times.values(), strict=True):
        median = float(np.median(seconds))
        row = facts | {"nvec": case.nvec, "method": case.method, "width": case.width}
        row |= {"threads": asked.threads, "seconds_min": min(seconds), "seconds_median": median}
        row |= {"dofs_per_second": V.size * case.nvec / median}
        part = case.instructions / median / peak if case.instructions else None
        rows.append(row | {"fraction_of_fma_peak": part})
    return _compared(rows)


def _compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with how many times as fast as the slower methods they are."""
    times = {(row["nvec"], row["method"]): row["seconds_median"] for row in rows}
    for row in rows:
        for key in ("cell matrices", "one by one"):
            other = times.get((row["nvec"], key))
            ratio = None if other is None else other / row["seconds_median"]
            row[f"over_{key.replace(' ', '_')}"] = ratio
    return rows


@final
@dataclass(frozen=True)
class _Case:
    """One method on some vectors, and the instructions on lanes that it takes."""

    method: str
    nvec: int
    run: Callable[[], object]
    instructions: float
    width: int | None


def _cases(asked: Settings, operator: Operator, nvec: int) -> list[_Case]:
    """The methods on so many vectors; if these are too few for a lane, one by one alone."""
    found, slots = [], machine.lane_width()

    def add(method: str, run: Callable[[], object], done: int, width: int | None = None) -> None:
        found.append(_Case(method, nvec, run, _operations(operator) * done / slots, width))

    for method in dict.fromkeys(asked.methods):
        if method == "one by one":
            add(method, _one_by_one(operator, nvec), nvec)
        elif nvec >= slots and method == "columns":
            add(method, _at_once(operator, Panels(nvec)), nvec)
        elif nvec >= slots and method == "cell matrices":
            add(method, _at_once(operator.at_level("element"), Panels(nvec)), 0)
        elif nvec >= slots:
            for width in dict.fromkeys(asked.widths):
                panels = Panels(width, -(-nvec // width))
                add(method, _at_once(operator, panels), width * panels.count, width)
    return found


def _operations(operator: Operator) -> float:
    """Instructions on lanes of an application to as many vectors as a lane has slots.

    Zero where it is not known.
    """
    total = 0
    for sweep in operator.compiled.sweeps:
        kernel = sweep.kernel
        if not isinstance(kernel, Kernel):
            return 0.0
        total += contraction_operations(kernel) * operator.space.mesh.num_elements
    return float(total)


def _vectors(*shape: int) -> Arrays:
    x = np.random.default_rng(0).standard_normal(shape)
    return x, np.zeros_like(x)


def _at_once(operator: Operator, panels: Panels) -> Callable[[], object]:
    space = operator.space
    x, y = (MultiVector(space, a) for a in _vectors(panels.count, space.size, panels.nvec))
    return lambda: operator.apply_many(x, y)


def _one_by_one(operator: Operator, nvec: int) -> Callable[[], object]:
    x, y = _vectors(nvec, operator.space.size)

    def run() -> None:
        for k in range(nvec):
            operator.apply(x[k], y[k])

    return run
