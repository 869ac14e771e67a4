"""Pictures of benchmarks, made of the rows that they return.

All of them raise OperatorError where nothing was measured, and what
`femops.io.plots.curves.curves` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import nan
from pathlib import Path
from typing import Any

from femops.errors import OperatorError
from femops.io.plots.curves import Panel, curves

Row = dict[str, Any]
Rows = Sequence[Row]
Target = str | os.PathLike[str]


def draw(path: Target, rows: Rows) -> Path:
    """Draw dofs a second over p, a panel for each problem, footprint and number of threads.

    Curves are meshes (with levels and libraries, where there are several), dashed their limits.
    What was measured at one of several orders only, as other levels are, is left to the table.

    Parameters
    ----------
    path : path ending in .png
    rows : as `femops.bench.run` returns them
    """
    orders = _values(rows)
    if len(orders) > 1:
        rows = _at_several_orders(rows)
    keys = dict.fromkeys((row["footprint"], row["threads"], row["problem"]) for row in rows)
    drawn = [_panel(key, rows, orders) for key in keys]
    problems = len({row["problem"] for row in rows})
    return curves(path, orders, "p", drawn, problems if len(drawn) % problems == 0 else None)


def _at_several_orders(rows: Rows) -> Rows:
    """Those whose like was measured at other orders too; all, if there are none."""
    kinds = ("footprint", "threads", "problem", "mesh", "asked", "implementation")
    orders: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        orders.setdefault(tuple(row[kind] for kind in kinds), set()).add(row["order"])
    kept = [row for row in rows if len(orders[tuple(row[kind] for kind in kinds)]) > 1]
    return kept or rows


def _panel(key: tuple[str, int, str], rows: Rows, orders: Sequence[int]) -> Panel:
    footprint, threads, problem = key
    mine = [row for row in rows if (row["footprint"], row["threads"], row["problem"]) == key]
    # "auto" alone needs no name
    several = {row["asked"] for row in mine if row["implementation"] == "femops"} != {"auto"}

    def name(row: Row) -> str:
        if row["implementation"] != "femops":
            return str(row["implementation"]).split()[0]
        return f"{row['mesh']}, {row['asked']}" if several else str(row["mesh"])

    speeds, limits = (_lines(mine, orders, name, key) for key in ("dofs_per_second", "limit"))
    size = {"ram": "out of cache", "cache": "in cache"}.get(footprint, footprint)
    many = f"{threads} thread{'s' if threads > 1 else ''}"
    return Panel(f"{problem}, {size}, {many}: dofs/s", speeds, limits)


def draw_cg(path: Target, rows: Rows) -> Path:
    """Draw dofs and iterations a second over p, a panel for each mesh."""
    orders = _values(rows)
    panels = []
    for mesh in dict.fromkeys(row["mesh"] for row in rows):
        mine = [row for row in rows if row["mesh"] == mesh]
        speeds: dict[str, list[float]] = {}
        for kind in ("apart", "merged"):
            key = f"seconds_{kind}"
            each = [row | {"speed": row["dofs"] / row[key], "kind": kind} for row in mine]
            speeds |= _lines(each, orders, lambda row: str(row["kind"]), "speed")
        panels.append(Panel(f"{mesh}: dofs x iterations/s", speeds))
    return curves(path, orders, "p", panels)


def draw_numa(path: Target, rows: Rows) -> Path:
    """Draw dofs a second over p, a curve for each placement."""
    orders = _values(rows)
    lines = _lines(rows, orders, lambda row: str(row["placement"]), "dofs_per_second")
    title = f"{rows[0]['problem']}, {rows[0]['mesh']}: dofs/s"
    return curves(path, orders, "p", [Panel(title, lines)])


def draw_gpu(path: Target, rows: Rows) -> Path:
    """Draw speed over p for each problem, dashed its limit, and below the fraction of it.

    Curves are meshes and levels.
    """
    orders, problems = _values(rows), sorted({row["problem"] for row in rows})
    speeds, parts = [], []
    for problem in problems:
        mine = [row for row in rows if row["problem"] == problem]
        speed, limits, fractions = (
            _lines(mine, orders, lambda row: f"{row['mesh']}, {row['level']}", key)
            for key in ("dofs_per_second", "limit", "fraction_of_limit")
        )
        speeds.append(Panel(f"{problem}: dofs/s", speed, limits))
        parts.append(Panel(f"{problem}: fraction of the limit", fractions))
    return curves(path, orders, "p", [*speeds, *parts], len(problems))


def draw_solve(path: Target, rows: Rows) -> Path:
    """Draw iterations, and seconds of setup and solve, over the orders; a curve each mesh."""
    orders = _values(rows)
    kinds = dict.fromkeys(row["preconditioner"] for row in rows)
    panels = []
    for key, what in (("iterations", "iterations"), ("seconds_solve", "seconds of a solve")):
        for kind in kinds:
            mine = [row for row in rows if row["preconditioner"] == kind]
            lines = _lines(mine, orders, lambda row: str(row["mesh"]), key)
            panels.append(Panel(f"{kind}: {what}", lines))
    return curves(path, orders, "p", panels, len(kinds))


def draw_multivector(path: Target, rows: Rows) -> Path:
    """Draw seconds over the vectors, or the width of panels if that varies; a panel each task."""
    widths = {row["width"] for row in rows if row["width"]}
    along = "width" if len(widths) > 1 and len({row["nvec"] for row in rows}) == 1 else "nvec"
    given = [row for row in rows if row[along] is not None]
    x, panels = _values(given, along), []
    for key in dict.fromkeys((row["problem"], row["mesh"], row["order"]) for row in rows):
        mine = [row for row in rows if (row["problem"], row["mesh"], row["order"]) == key]
        lines: dict[str, list[float]] = {}
        for row in mine:
            name = str(row["method"])
            if along == "nvec" and row["width"]:
                name += f" of {row['width']}"
            line = lines.setdefault(name, [nan] * len(x))
            at = range(len(x)) if row[along] is None else [x.index(row[along])]
            for k in at:
                line[k] = row["seconds_median"]
        panels.append(Panel(f"{key[0]}, {key[1]}, p = {key[2]}: seconds", lines))
    return curves(path, x, "vectors of a panel" if along == "width" else "vectors", panels)


def draw_gemm(path: Target, rows: Rows) -> Path:
    """Draw operations a second over n, dashed their limit; a panel for each type and batch."""
    sizes, panels = _values(rows, "n"), []

    def name(row: Row) -> str:
        return f"femops, {row['layout']}" if row["implementation"] == "femops" else _peer(row)

    for key in dict.fromkeys((row["dtype"], row["members"], row["threads"]) for row in rows):
        mine = [row for row in rows if (row["dtype"], row["members"], row["threads"]) == key]
        ours = [row for row in mine if row["implementation"] == "femops"]
        lines = _lines(mine, sizes, name, "gflops", "n")
        limits = _lines(ours, sizes, name, "limit_gflops", "n")
        threads = f", {key[2]} thread{'s' * (key[2] > 1)}" if key[2] else ""  # none on a GPU
        title = f"{key[0]}, {key[1]} members{threads}: GFlop/s"
        panels.append(Panel(title, lines, limits))
    return curves(path, sizes, "n", panels)


def draw_search(path: Target, rows: Rows) -> Path:
    """Draw operations a second of each variant of a kernel, a curve for each n."""
    x = _values(rows, "variant", "tried")
    lines = _lines(rows, x, lambda row: f"n = {row['n']}", "gflops", "variant")
    return curves(path, x, "variant", [Panel("GFlop/s", lines)])


def _peer(row: Row) -> str:
    return str(row["implementation"])


def draw_speedup(path: Target, rows: Rows) -> Path:
    """Draw dofs a second over the ranks that were timed, one curve each task, dashed the ideal."""
    timed = [row for row in rows if row["timed"]]
    x = _values(timed, "ranks", "timed")
    lines = _lines(timed, x, _task, "dofs_per_second", "ranks")
    ideal = {name: [line[0] * many / x[0] for many in x] for name, line in lines.items()}
    return curves(path, x, "ranks", [Panel("dofs/s (dashed: ideal)", lines, ideal)])


def draw_model(path: Target, tables: Rows, rows: Rows) -> Path:
    """Draw the model's efficiencies over the ranks, and what was measured; a panel each task."""
    x = [row["ranks"] for row in tables[0]["weak"]]
    kind = "weak" if any(row["scaling"] == "weak" for row in rows) else "strong"
    panels = []
    for table in tables:
        lines = {
            f"strong, {_short(each['dofs'])} dofs": [row["efficiency"] for row in each["rows"]]
            for each in table["strong"]
        }
        weak = f"weak, {_short(table['strong'][0]['dofs'])} dofs a rank"
        lines[weak] = [row["efficiency"] for row in table["weak"]]
        mine = [row for row in rows if row["timed"] and _task(row) == _task(table)]
        lines |= _lines(mine, x, lambda _: f"measured, {kind}", "efficiency", "ranks")
        panels.append(Panel(f"{_task(table)}: efficiency", lines))
    return curves(path, x, "ranks", panels)


def _values(rows: Rows, along: str = "order", what: str = "measured") -> list[int]:
    """Orders (or else) that were measured, ascending.

    Raises
    ------
    OperatorError
        There are no rows.
    """
    if not rows:
        raise OperatorError(f"nothing to draw: nothing was {what}")
    return sorted({row[along] for row in rows})


def _lines(
    rows: Rows, x: Sequence[int], name: Callable[[Row], str], key: str, along: str = "order"
) -> dict[str, list[float]]:
    """Curves by name: values at each x, NaN where there is none."""
    lines: dict[str, list[float]] = {}
    for row in rows:
        if row[key] is not None:
            line = lines.setdefault(name(row), [nan] * len(x))
            line[x.index(row[along])] = row[key]
    return lines


def _task(row: Row) -> str:
    method = f", {row['nvec']} vectors {row['method']}" if row.get("nvec", 1) > 1 else ""
    return f"{row['problem']}, {row['mesh']}{method}"


def _short(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2g} {letter}"
    return f"{value:g}"
