"""Pictures of benchmarks, drawn from the rows that they return."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any, final

from femops.errors import OperatorError
from femops.io.plots.curves import Panel, curves

Row = dict[str, Any]
Rows = Sequence[Row]


@final
@dataclass(frozen=True)
class Picture:
    """Description of a picture: how rows are sorted into panels and curves."""

    # panel and line: formats for the title of a row's panel and the name of its curve, filled in
    # by `str.format` with the row
    panel: str
    line: str
    # value and limit: keys of the values that are drawn, and of the values that are drawn dashed,
    # if any
    value: str
    limit: str = ""
    along: str = "order"  # key of the horizontal axis

    def panels(self, rows: Rows, x: Sequence[int]) -> list[Panel]:
        """Sort rows into panels, in the order in which their titles first appear."""
        found = []
        for title in dict.fromkeys(self.panel.format(**row) for row in rows):
            mine = [row for row in rows if self.panel.format(**row) == title]
            dashed = self._lines(mine, x, self.limit) if self.limit else {}
            found.append(Panel(title, self._lines(mine, x, self.value), dashed))
        return found

    def _lines(self, rows: Rows, x: Sequence[int], key: str) -> dict[str, list[float]]:
        """Curves by name: the values at each x, NaN where one is missing."""
        lines: dict[str, list[float]] = {}
        for row in rows:
            if row[key] is not None:
                line = lines.setdefault(self.line.format(**row).strip(", "), [nan] * len(x))
                line[x.index(row[self.along])] = row[key]
        return lines


_SPEED = "dofs_per_second"
_LABELS = {"order": "p", "nvec": "vectors", "width": "vectors of a panel"}
_VECTORS = "{problem}, {mesh}, p = {order}: seconds"
_PRODUCTS = "{dtype}, {members} members, {threads} threads: GFlop/s"
_WHERE = "{problem}, {footprint}, {threads} threads: dofs/s"
PICTURES = {
    "operators": (Picture(_WHERE, "{kind}", _SPEED, "limit"),),
    "cg": (Picture("{mesh}: dofs x iterations/s, updates apart and merged", "{kind}", _SPEED),),
    "gpu": (
        Picture("{problem}: dofs/s", "{mesh}, {level}", _SPEED, "limit"),
        Picture("{problem}: fraction of the limit", "{mesh}, {level}", "fraction_of_limit"),
    ),
    "solve": (
        Picture("{preconditioner}: iterations", "{mesh}", "iterations"),
        Picture("{preconditioner}: seconds of a solve", "{mesh}", "seconds_solve"),
    ),
    "vectors": (Picture(_VECTORS, "{kind}", "seconds_median", along="nvec"),),
    "widths": (Picture(_VECTORS, "{method}", "seconds_median", along="width"),),
    "gemm": (Picture(_PRODUCTS, "{implementation}, {layout}", "gflops", "limit_gflops", "n"),),
    "search": (Picture("GFlop/s", "n = {n}", "gflops", along="variant"),),
    "machines": (Picture("{machine}\n{problem}, {mesh}: dofs/s", "{library}", _SPEED),),
    "ranks": (
        Picture("dofs/s (dashed: ideal)", "{problem}, {mesh}, {method}", _SPEED, "ideal", "ranks"),
    ),
}
"""Pictures by name."""


def draw(path: str | os.PathLike[str], name: str, rows: Rows) -> Path:
    """Draw rows into a PNG file."""
    if name == "multivector":
        name = "widths" if _widths_vary(rows) else "vectors"
    rows = _PREPARED.get(name, list)(rows)
    pictures = PICTURES[name]
    if not rows:
        raise OperatorError("nothing to draw: nothing was measured")
    along = pictures[0].along
    x = sorted({row[along] for row in rows})
    panels = [picture.panels(rows, x) for picture in pictures]
    across = len(panels[0])
    if name == "machines":  # a row for each machine
        across = len({(row["problem"], row["mesh"]) for row in rows})
    if name == "operators":  # a row for each size and number of threads
        problems = len({row["problem"] for row in rows})
        across = across if across % problems else problems
    return curves(path, x, _LABELS.get(along, along), [*chain(*panels)], across)


def _at_several_orders(rows: Rows) -> Rows:
    """Rows of cases that were measured at several orders. If no case was, all rows."""
    kinds = ("footprint", "threads", "problem", "mesh", "asked", "implementation")
    orders: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        orders.setdefault(tuple(row[kind] for kind in kinds), set()).add(row["order"])
    return [row for row in rows if len(orders[tuple(row[kind] for kind in kinds)]) > 1] or rows


def _named(rows: Rows) -> Rows:
    """Add to rows the name of their curve: a library, or a mesh with the level if it varies."""
    several = {row["asked"] for row in rows if row["implementation"] == "femops"} != {"auto"}
    return [
        row
        | {
            "kind": row["implementation"].split()[0]
            if row["implementation"] != "femops"
            else f"{row['mesh']}, {row['asked']}" * several or row["mesh"]
        }
        for row in rows
    ]


def _widths_vary(rows: Rows) -> bool:
    """True if the width of panels varies, but not the number of vectors."""
    widths = {row["width"] for row in rows if row["width"]}
    return len(widths) > 1 and len({row["nvec"] for row in rows}) == 1


def _at_each_width(rows: Rows) -> Rows:
    """Repeat the rows of methods without panels at every panel width."""
    widths = sorted({row["width"] for row in rows if row["width"]})
    return [
        row | {"width": w} for row in rows for w in ([row["width"]] if row["width"] else widths)
    ]


def _with_ideal(rows: Rows) -> Rows:
    """Add the ideal speed to timed rows: the speed per rank on the fewest ranks, times ranks."""
    first: dict[tuple[str, ...], Row] = {}
    timed = sorted((row for row in rows if row["timed"]), key=lambda row: int(row["ranks"]))
    for row in timed:
        first.setdefault((row["problem"], row["mesh"], row["method"]), row)
    return [
        row | {"ideal": base[_SPEED] * row["ranks"] / base["ranks"]}
        for row in timed
        for base in [first[row["problem"], row["mesh"], row["method"]]]
    ]


_PREPARED: dict[str, Callable[[Rows], Rows]] = {
    "operators": lambda rows: _named(_at_several_orders(rows)),
    "cg": lambda rows: [
        row | {"kind": kind, _SPEED: row["dofs"] / row[f"seconds_{kind}"]}
        for row in rows
        for kind in ("apart", "merged")
    ],
    "vectors": lambda rows: [
        row | {"kind": f"{row['method']} {row['width'] or ''}"} for row in rows
    ],
    "widths": _at_each_width,
    "ranks": _with_ideal,
}
