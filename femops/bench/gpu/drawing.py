"""Pictures of a GPU's benchmark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

from femops.bench.drawing import orders_of
from femops.io.plots.curves import Panel, curves

Rows = Sequence[dict[str, Any]]


def draw_gpu(path: str | os.PathLike[str], rows: Rows) -> Path:
    """Draw speed over p for each problem, dashed its limit, and below the fraction of it.

    Curves are meshes and levels.

    Parameters
    ----------
    path : path ending in .png
    rows : as `femops.bench.gpu.run_gpu` returns them

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
    orders, problems = orders_of(rows), sorted({row["problem"] for row in rows})
    speeds, parts = [], []
    for problem in problems:
        mine = [row for row in rows if row["problem"] == problem]
        speed, limits = (_lines(mine, orders, key, 1e-9) for key in ("dofs_per_second", "limit"))
        speeds.append(Panel(f"{problem}: GDoF/s", speed, limits))
        fractions = _lines(mine, orders, "fraction_of_limit", 1.0)
        parts.append(Panel(f"{problem}: fraction of the limit", fractions))
    return curves(path, orders, "p", [*speeds, *parts], len(problems))


def _lines(rows: Rows, orders: Sequence[int], key: str, scale: float) -> dict[str, list[float]]:
    lines: dict[str, list[float]] = {}
    for row in rows:
        line = lines.setdefault(f"{row['mesh']}, {row['level']}", [nan] * len(orders))
        line[orders.index(row["order"])] = scale * row[key]
    return lines
