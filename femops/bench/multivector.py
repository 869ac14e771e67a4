"""Benchmark of three methods for many vectors: at once, by element matrices, and one by one.

The cases are those of the paper on multivectors (seed 003): few elements of high order, p + 1 Gauss
points in each direction, and up to a thousand vectors.
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
from femops_kernels.cpu.kernels.separable import SeparableKernel
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
"""``columns``: vectors (size, nvec) at once. ``panels``: vectors (panels, size, width) at once."""


def run_multivector(
    forms: Sequence[str] = ("mass",),
    meshes: Sequence[str] = ("multilinear",),
    methods: Sequence[str] = METHODS,
    orders: Sequence[int] = (7, 8),
    vectors: Sequence[int] = (100,),
    widths: Sequence[int] = (16,),
    *,
    cells: int = 27,
    threads: int = 1,
    rounds: int = 5,
    seconds: float = 0.05,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Time the methods in turns, and compare them with the machine's rate of multiply-adds."""
    check_asked(meshes=meshes, orders=orders, rounds=rounds)
    _check(forms, methods, vectors, widths, cells)
    meter, rows, slots = Meter((threads,)), list[dict[str, Any]](), machine.lane_width()
    notes = [f"cell matrices are multiplied by the BLAS of {gemm_address(np.float64)[0]}"]
    if min(vectors) < slots:
        notes.append(
            f"fewer than {slots} vectors are measured one by one only: A @ X fills up lanes"
        )
    alone = one_blas_thread()  # femops' own threads share the elements
    if alone is None:
        notes.append("BLAS uses threads of its own: pip install threadpoolctl to forbid it")
    with alone or nullcontext():
        for order, mesh, name in dict.fromkeys(product(orders, meshes, forms)):
            progress(f"{name}, order {order}, {mesh}")
            V = H1(make_mesh(mesh, order, float(round(cells ** (1 / 3)) * order + 1) ** 3), order)
            operator = form(FORMS[name], V, quadrature=gauss(order + 1))
            cases = [case for nvec in vectors for case in _cases(operator, methods, nvec, widths)]
            facts = {"problem": name, "mesh": mesh, "order": order}
            rows += _rows(facts, operator, cases, meter, rounds, seconds)
    return {"machine": meter.describe(), "rows": rows, "notes": notes}


def _check(
    forms: Sequence[str],
    methods: Sequence[str],
    vectors: Sequence[int],
    widths: Sequence[int],
    cells: int,
) -> None:
    choose("problem", forms, FORMS)
    choose("method", methods, METHODS)
    slots = machine.lane_width()
    if min(vectors, default=0) < 1 or cells < 1:
        raise OperatorError("nothing to measure: give at least one vector, one cell")
    if min(widths, default=0) < slots:
        raise OperatorError(f"panels of {min(widths)} vectors: give {slots} or more")
    if max(vectors) < slots and "one by one" not in methods:
        raise OperatorError(
            f"{max(vectors)} vectors at most: give {slots} or more, as lanes have slots, or the "
            "method one-by-one"
        )


def _rows(
    facts: dict[str, Any],
    operator: Operator,
    cases: list[_Case],
    meter: Meter,
    rounds: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Make the rows of one form on one space, with speedups over the slower methods."""
    (threads,), V = meter.threads, operator.space
    measures = {k: partial(median_seconds, case.run, seconds) for k, case in enumerate(cases)}
    with using(threads):
        times = in_turns(measures, rounds, meter.round)
    medians = [float(np.median(each)) for each in times.values()]
    slow = {(case.nvec, case.method): median for case, median in zip(cases, medians, strict=True)}
    # instructions on lanes a second at the peak, where each is a multiply-add, so two flops
    peak = meter.peak(threads) * 1e9 / (2 * machine.lane_width())
    rows = []
    for case, median, each in zip(cases, medians, times.values(), strict=True):
        row = facts | {"cells": V.mesh.num_elements, "dofs": V.size}
        row |= {"nvec": case.nvec, "method": case.method, "width": case.width}
        row |= {"threads": threads, "seconds_min": min(each), "seconds_median": median}
        row |= {"dofs_per_second": V.size * case.nvec / median}
        row["fraction_of_fma_peak"] = case.instructions / median / peak or None
        for name in ("cell matrices", "one by one"):
            other = slow.get((case.nvec, name))
            row[f"over_{name.replace(' ', '_')}"] = None if other is None else other / median
        rows.append(row)
    return rows


@final
@dataclass(frozen=True)
class _Case:
    """One method on some vectors, and its number of instructions on lanes."""

    method: str
    nvec: int
    run: Callable[[], object]
    instructions: float
    width: int | None


def _cases(
    operator: Operator, methods: Sequence[str], nvec: int, widths: Sequence[int]
) -> list[_Case]:
    """Make the cases for ``nvec`` vectors. With fewer vectors than lanes, only "one by one"."""
    found, slots = [], machine.lane_width()

    def add(method: str, run: Callable[[], object], done: int, width: int | None = None) -> None:
        found.append(_Case(method, nvec, run, _operations(operator) * done / slots, width))

    for method in dict.fromkeys(methods):
        if method == "one by one":
            add(method, _one_by_one(operator, nvec), nvec)
        elif nvec >= slots and method == "columns":
            add(method, _at_once(operator, Panels(nvec)), nvec)
        elif nvec >= slots and method == "cell matrices":
            add(method, _at_once(operator.at_level("element"), Panels(nvec)), 0)
        elif nvec >= slots:
            for width in dict.fromkeys(widths):
                panels = Panels(width, -(-nvec // width))
                add(method, _at_once(operator, panels), width * panels.count, width)
    return found


def _operations(operator: Operator) -> float:
    """Number of SIMD instructions of an application to as many vectors as a SIMD vector has lanes.

    Zero if the number is not known.
    """
    total = 0
    for sweep in operator.compiled.sweeps:
        kernel = sweep.kernel
        if isinstance(kernel, SeparableKernel):
            operations = kernel.contraction_operations()
        elif isinstance(kernel, Kernel):
            operations = contraction_operations(kernel)
        else:
            return 0.0
        total += operations * operator.space.mesh.num_elements
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
