"""What this project means to reach on an H200, beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from femops.bench.gpu.agreement import ROUND_OFF

MESH = "multilinear"
"""Of which no element is affine: boxes are easier."""

FRACTIONS = {"bp3": 0.60, "bp1": 0.45}
"""Least parts of the limit of its own level, at `ORDERS`, of the faster one."""

ORDERS = range(2, 9)

CG_SPEEDS = {3: 4.0e9, 6: 4.4e9}
"""Dofs a second of an iteration on bp3, by order: the best published of GPUs of this generation."""

Rows = Sequence[Mapping[str, Any]]


def verdicts(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """What was to be reached, what was, and whether it is met.

    Parameters
    ----------
    result : as `run_gpu` returns it

    Returns
    -------
    list of dict
        ``target`` and ``measured`` in words, ``verdict``: met, missed or not measured.
    """
    return [
        _agreement(result["agreement"], result["rows"]),
        *(_fraction(name, least, result["rows"]) for name, least in FRACTIONS.items()),
        *(_speed(order, least, result["cg"]) for order, least in CG_SPEEDS.items()),
    ]


def _agreement(forms: Rows, rows: Rows) -> dict[str, str]:
    target, limit = "results are the CPU's to 1e-12", ROUND_OFF["float64"]
    errors = [form["error"] for form in forms if form["limit"] == limit]
    errors += [row["off_cpu"] for row in rows]
    found = [error for error in errors if error is not None]
    if not errors:
        return _told(target, "not measured", "")
    met = len(found) == len(errors) and max(found) <= limit
    measured = f"{len(found)} of {len(errors)} compared, off by up to {max(found, default=0.0):.1e}"
    return _told(target, "met" if met else "missed", measured)


def _fraction(problem: str, least: float, rows: Rows) -> dict[str, str]:
    target = f"{problem} at p = {ORDERS[0]} to {ORDERS[-1]}: at least {least:.0%} of the limit"
    mine = [row for row in rows if row["problem"] == problem and row["mesh"] == MESH]
    found = {row["order"]: row for row in mine if row["best"] and row["order"] in ORDERS}
    missing = [order for order in ORDERS if order not in found]
    measured = ", ".join(
        f"p = {order} {row['fraction_of_limit']:.0%}" for order, row in sorted(found.items())
    )
    parts = [row["dofs_per_second"] / row["limit_of_levels"] for row in found.values()]
    if parts:
        measured += f"; {min(parts):.0%} to {max(parts):.0%} of the larger limit of all levels"
    if any(row["fraction_of_limit"] < least for row in found.values()):
        return _told(target, "missed", measured)
    return _told(target, "not measured" if missing else "met", measured)


def _speed(order: int, least: float, rows: Rows) -> dict[str, str]:
    target = f"CG on bp3 at p = {order}: more than {1e-9 * least:.1f} GDoF/s"
    mine = [row for row in rows if row["problem"] == "bp3" and row["mesh"] == MESH]
    speeds = [row["dofs_per_second"] for row in mine if row["order"] == order]
    if not speeds:
        return _told(target, "not measured", "")
    met = max(speeds) > least
    return _told(target, "met" if met else "missed", f"{1e-9 * max(speeds):.3g} GDoF/s")


def _told(target: str, verdict: str, measured: str) -> dict[str, str]:
    return {"target": target, "verdict": verdict, "measured": measured}
