"""The benchmark of a GPU: its kinds of work, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, product
from typing import Any, TypeVar

from femops.bench.gpu.cases import (
    OFF,
    FacesCase,
    GasCase,
    VectorsCase,
    faces_rows,
    gas_rows,
    product_rows,
    vectors_rows,
)
from femops.bench.gpu.record import Record, Row
from femops.bench.gpu.rows import operator_rows
from femops.bench.gpu.run import ROUND_OFF, Run, Step
from femops.bench.gpu.setup import GpuSettings
from femops.bench.gpu.tuning import tune
from femops.bench.problems import Progress
from femops.bench.solvers.multigrid import prepared
from femops.bench.tensor.products import ProductCase, mean_over_peers
from femops_kernels.cpu import machine
from femops_kernels.tuning.database import users_table

Case = TypeVar("Case", GasCase, VectorsCase, FacesCase, ProductCase)

_SWEPT_DOFS = 8e6  # their data are in no cache


# Problems and mesh of the rows that are measured first, and of the shapes that are tried.
_FIRST, _TUNED, _MESH = ("bp3", "bp1"), ("bp3", "bp5", "bp1"), "multilinear"
_SOLVED_ORDERS = (4, 6)


def _operators(settings: GpuSettings, prefix: str = "") -> list[Step]:
    """Steps that measure operators and conjugate gradients, one for each order."""
    return [
        Step(sizes.name, partial(operator_rows, sizes), sizes.effort)
        for sizes in settings.sizes(prefix=prefix)
    ]


def _solves(settings: GpuSettings) -> list[Step]:
    """Steps that measure solves of Poisson's equation; see `femops.bench.run_solve`."""
    steps = []
    for sizes, mesh, level in product(settings.sizes(), settings.meshes, settings.levels):
        name = f"solves, {mesh}, order {sizes.order}, {level}"
        case = mesh, sizes.order, sizes.dofs, level
        steps.append(Step(name, partial(_solve, name, case)))
    return steps


def _solve(name: str, case: tuple[str, int, float, str], run: Run) -> None:
    """Measure one problem (mesh, order, approximate dofs, level) with each preconditioner."""

    def rows() -> list[Row]:
        solves = prepared(*case, run.device)
        solves.round(run.seconds)
        found = solves.rows(machine.get_threads())
        return [{"name": f"{name}, {row['preconditioner']}"} | row for row in found]

    run.measure("solves", name, rows)


def _shapes(settings: GpuSettings) -> list[Step]:
    """Steps that tune launch shapes of the kernels, one for each order."""
    return [
        Step(sizes.name, partial(tune, sizes), sizes.effort)
        for sizes in settings.sizes(_SWEPT_DOFS, "shapes, ")
    ]


def _each(table: str, cases: Iterable[Case], rows: Callable[[Case, Run], list[Row]]) -> list[Step]:
    """Make a step for each case. The step adds rows to a table if the limits were measured."""

    def do(case: Case, run: Run) -> None:
        if run.rates is not None:
            run.measure(table, case.name, partial(rows, case, run))

    return [Step(case.name, partial(do, case)) for case in cases]


def _chosen(settings: GpuSettings, problems: Sequence[str]) -> GpuSettings:
    """Restrict settings to ``problems`` and to one mesh, as far as the settings have them."""
    return replace(
        settings,
        problems=[name for name in problems if name in settings.problems],
        meshes=[_MESH] if _MESH in settings.meshes else [],
    )


def _first_solves(settings: GpuSettings) -> list[Step]:
    orders = [p for p in _SOLVED_ORDERS if p in settings.orders]
    return _solves(replace(_chosen(settings, _FIRST), orders=orders))


WORKS: dict[str, Callable[[GpuSettings], list[Step]]] = {
    "operators": _operators,
    "solves": _solves,
    "products": lambda s: _each("products", s.products.cases(), product_rows),
    "gas": lambda s: _each("gas", s.gas, gas_rows),
    "vectors": lambda s: _each("vectors", s.vectors, vectors_rows),
    "faces": lambda s: _each("faces", s.faces, faces_rows),
    "shapes": _shapes,
    "limits": lambda _: [Step("limits at the end", Run.measure_rates, 0.0)],
    "first": lambda s: _operators(_chosen(s, _FIRST)),
    "first solves": _first_solves,
    "first shapes": lambda s: _shapes(_chosen(s, _TUNED)),
    "tuned": lambda s: _operators(_chosen(s, _FIRST), "tuned, "),
}
"""Kinds of work by name, and functions that make their steps."""

PHASES = (
    *("first", "first solves", "products", "gas", "vectors", "faces", "operators"),
    *("first shapes", "tuned", "limits"),
)
"""Kinds of work, the most important first. The last kind measures with tuned launch shapes, and its
rows replace the rows of the first kind."""


def run_gpu(
    settings: GpuSettings,
    progress: Progress | None = None,
    found: Record | None = None,
    works: Sequence[str] = ("operators", "limits"),
) -> dict[str, Any]:
    """Check a GPU's kernels against the CPU, and compare their speed with the GPU's limits.

    Cases that fail are listed in ``failures``. The benchmark goes on while the GPU answers.
    """
    settings.check()
    found = found or Record()
    given = settings.device, settings.seconds, settings.budget, settings.amounts
    run = Run(*given, found, progress or (lambda _: None))
    for work in works:
        run.do(WORKS[work](settings))
    found.complete = not found.notes and not found.dead
    found.keep()
    table = {"table": str(users_table())} if "shapes" in works else {}
    return result_of(found) | table


def result_of(found: Record) -> dict[str, Any]:
    """Make the result from a record: sort the rows, and mark the best level of each group."""
    tables, marked = dict(found.tables), list[Row]()
    for name in ("rows", "cg", "shapes"):  # later rows replace earlier rows
        placed = {_place(row): row for row in tables[name]}
        tables[name] = [placed[place] for place in sorted(placed)]
    agrees = all(
        (row[key] or 0.0) <= most
        for table, key, most in (
            ("rows", "off_other_level", ROUND_OFF),
            ("rows", "off_cpu", ROUND_OFF),
            ("gas", "off_cpu", OFF),
            ("vectors", "off_one", ROUND_OFF),
            ("faces", "off_cpu", ROUND_OFF),
        )
        for row in tables[table]
    )
    for _, rows in groupby(tables["rows"], lambda row: _place(row)[:-1]):
        group = list(rows)
        fastest = min(group, key=lambda row: row["seconds_median"])
        most = max(row["limit"] for row in group)
        marked += [row | {"best": row is fastest, "limit_of_levels": most} for row in group]
    tables["rows"] = marked
    rates = {
        "rates": found.rates[0] if found.rates else None,
        "rates_after": found.rates[-1] if len(found.rates) > 1 else None,
    }
    mean = {"products_over_best_peer": mean_over_peers(tables["products"])}
    rest = {name: getattr(found, name) for name in ("failures", "seconds", "notes")}
    return found.facts | {"agrees": agrees} | rates | tables | mean | rest


def _place(row: Row) -> tuple[Any, ...]:
    return row["problem"], row["mesh"], row["order"], row["level"]
