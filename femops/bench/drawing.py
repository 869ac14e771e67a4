"""Pictures of benchmarks: speed over the order, beside the limit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

from femops.errors import OperatorError
from femops.io.plots.curves import Panel, curves

Rows = Sequence[dict[str, Any]]


def draw(path: str | os.PathLike[str], rows: Rows) -> Path:
    """Draw dofs a second over p, a panel for each problem, footprint and number of threads.

    Curves are meshes (with levels and libraries, where there are several), dashed their limits.
    What was measured at one of several orders only, as other levels are, is left to the table.

    Parameters
    ----------
    path : path ending in .png
    rows : as `femops.bench.run` returns them

    Returns
    -------
    pathlib.Path

    Raises
    ------
    OperatorError
        There are no rows.
    FileError, MissingExtraError
        See `femops.io.plots.curves.curves`.
    """
    orders = orders_of(rows)
    if len(orders) > 1:
        rows = _lines(rows)
    panels: dict[tuple[str, int, str], None] = {}
    for row in rows:
        panels[row["footprint"], row["threads"], row["problem"]] = None
    drawn = [_panel(key, rows, orders) for key in panels]
    problems = len({row["problem"] for row in rows})
    return curves(path, orders, "p", drawn, problems if len(drawn) % problems == 0 else None)


def orders_of(rows: Rows) -> list[int]:
    """Orders that were measured, ascending.

    Raises
    ------
    OperatorError
        There are no rows.
    """
    if not rows:
        raise OperatorError("nothing to draw: nothing was measured")
    return sorted({row["order"] for row in rows})


def _lines(rows: Rows) -> Rows:
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
    names = {id(row): _name(row, _several(mine)) for row in mine}
    lines: dict[str, list[float]] = {}
    limits: dict[str, list[float]] = {}
    for row in mine:
        name, at = names[id(row)], orders.index(row["order"])
        lines.setdefault(name, [nan] * len(orders))[at] = row["dofs_per_second"]
        if row["limit"] is not None:
            limits.setdefault(name, [nan] * len(orders))[at] = row["limit"]
    size = {"ram": "out of cache", "cache": "in cache"}.get(footprint, footprint)
    many = f"{threads} thread{'s' if threads > 1 else ''}"
    return Panel(f"{problem}, {size}, {many}: dofs/s", lines, limits)


def _several(rows: Rows) -> bool:
    """Whether levels were forced: "auto" alone needs no name."""
    return {row["asked"] for row in rows if row["implementation"] == "femops"} != {"auto"}


def _name(row: dict[str, Any], several: bool) -> str:
    if row["implementation"] != "femops":
        return str(row["implementation"]).split()[0]
    return f"{row['mesh']}, {row['asked']}" if several else str(row["mesh"])
