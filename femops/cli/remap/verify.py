"""Command ``femops remap --verify``: runs that Remhos publishes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from femops.cli.options import whole_number
from femops.cli.output import Column, Output


def verify_runs(output: Output, what: list[str]) -> None:
    """Repeat published runs (all by default). Print femops' and Remhos' results. Collective."""
    from femops.errors import HydroError
    from femops.hydro.remap import PUBLISHED, verify_advection
    from femops.parallel import world

    numbers = [*map(whole_number(0, hint="--verify"), what)] or list(PUBLISHED)
    results = []
    for n in numbers:
        with output.working(f"run {n}") as update:
            results.append(verify_advection(n, _teller(update, f"run {n}"), world()))
    output.json(results)
    columns = [
        Column("run", "run"),
        Column("mesh", "mesh"),
        Column("problem", "problem"),
        Column("steps", "steps"),
        Column("mass", "mass", ".10g"),
        Column("Remhos", "mass_remhos", ".10g"),
        Column("max", "max", ".10f"),
        Column("Remhos", "max_remhos", ".10f"),
        Column("seconds", "seconds", ".1f"),
    ]
    output.records("Remhos' published runs", columns, results)
    off = [result["run"] for result in results if not result["agrees"]]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _teller(update: Callable[[str], None], what: str) -> Callable[[float, Any], None]:
    """Return a function that shows the time after each step."""
    return lambda t, _: update(f"{what}: t = {t:.4f}")
