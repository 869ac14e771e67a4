"""Benchmark of three methods for many vectors: at once, by element matrices, and one by one.

The cases are those of the paper on multivectors (seed 003): few elements of high order, p + 1 Gauss
points in each direction, and up to a thousand vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from femops.basis import gauss
from femops.bench.machine import Meter, one_blas_thread
from femops.bench.problems import Progress, check_asked, choose, make_mesh
from femops.bench.timing import medians
from femops.errors import OperatorError
from femops.fields.multivector import MultiVector
from femops.forms import form
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.cpu import machine
from femops_kernels.cpu.multivector import gemm_address
from femops_kernels.spec import PointSpec, SeparableSpec

Row = dict[str, Any]

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
    slots = machine.lane_width()
    check_asked(meshes=meshes, orders=orders, rounds=rounds)
    choose("problem", forms, FORMS)
    choose("method", methods, METHODS)
    if min(vectors, default=0) < 1 or cells < 1:
        raise OperatorError("nothing to measure: give at least one vector, one cell")
    if min(widths, default=0) < slots:
        raise OperatorError(f"panels of {min(widths)} vectors: give {slots} or more")
    if max(vectors) < slots and "one by one" not in methods:
        raise OperatorError(
            f"{max(vectors)} vectors at most: give {slots} or more, as lanes have slots, or the "
            "method one-by-one"
        )
    meter, rows = Meter((threads,)), list[Row]()
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
            cases = dict.fromkeys(_cases(methods, vectors, widths, slots))
            calls = {case: _application(operator, case) for case in cases}
            times = meter.turns(calls, threads, rounds, seconds)
            facts = {"problem": name, "mesh": mesh, "order": order}
            rows += _rows(facts, operator, times, meter)
    return {"machine": meter.describe(), "rows": rows, "notes": notes}


Case = tuple[int, str, int | None]
"""Number of vectors, method, width of panels."""


def _cases(
    methods: Sequence[str], vectors: Sequence[int], widths: Sequence[int], slots: int
) -> Iterator[Case]:
    """Cases of the methods. Fewer vectors than lanes have slots go one by one alone."""
    for nvec, method in product(vectors, methods):
        if method == "one by one" or nvec >= slots:
            for width in widths if method == "panels" else (None,):
                yield nvec, method, width


def _application(operator: Operator, case: Case) -> Callable[[], object]:
    """Return a function that applies an operator to many vectors by a method."""
    (nvec, method, width), V = case, operator.space
    if method == "one by one":
        x, y = _vectors(nvec, V.size)

        def run() -> None:
            for k in range(nvec):
                operator.apply(x[k], y[k])

        return run
    A = operator.at_level("element") if method == "cell matrices" else operator
    panels = nvec if width is None else width
    x, y = _vectors(-(-nvec // panels), V.size, panels)
    return partial(A.apply_many, MultiVector(V, x), MultiVector(V, y))


def _vectors(*shape: int) -> tuple[Any, Any]:
    x = np.random.default_rng(0).standard_normal(shape)
    return x, np.zeros_like(x)


def _rows(
    facts: Row, operator: Operator, times: dict[Case, list[float]], meter: Meter
) -> list[Row]:
    """Make the rows of one form on one space, with speedups over the slower methods."""
    (threads,), V, slots, median = (
        meter.threads,
        operator.space,
        machine.lane_width(),
        medians(times),
    )
    # instructions on lanes a second at the peak, where each is a multiply-add, so two flops
    peak = meter.peak(threads) * 1e9 / (2 * slots)
    each = _operations(operator) / slots
    facts = facts | {"cells": V.mesh.num_elements, "dofs": V.size}
    rows = []
    for case, seconds in times.items():
        nvec, method, width = case
        done = 0 if method == "cell matrices" else -(-nvec // (width or nvec)) * (width or nvec)
        row = facts | {"nvec": nvec, "method": method, "width": width, "threads": threads}
        row |= {"seconds_min": min(seconds), "seconds_median": median[case]}
        row |= {"dofs_per_second": V.size * nvec / median[case]}
        row["fraction_of_fma_peak"] = each * done / median[case] / peak or None
        for name in ("cell matrices", "one by one"):
            other = median.get((nvec, name, None))
            row[f"over_{name.replace(' ', '_')}"] = other and other / median[case]
        rows.append(row)
    return rows


def _operations(operator: Operator) -> float:
    """Number of SIMD instructions of an application to as many vectors as a SIMD vector has lanes.

    Zero if the number is not known.
    """
    total = 0
    for sweep in operator.compiled.sweeps:
        kernel = sweep.kernel
        if not isinstance(kernel.spec, PointSpec | SeparableSpec):
            return 0.0
        total += kernel.spec.contraction_operations() * operator.space.mesh.num_elements
    return float(total)
