"""Command ``femops hydro --verify``: Laghos' reference runs."""

from __future__ import annotations

from typing import Any

from femops.cli.hydro.progress import teller
from femops.cli.options import whole_number
from femops.cli.output import Column, Output


def verify_runs(output: Output, what: list[str], cg_tol: float) -> None:
    """Repeat reference runs (all by default). Print femops' and Laghos' results."""
    from femops.errors import HydroError
    from femops.hydro import RUNS
    from femops.hydro import verify as verified
    from femops.parallel import world

    numbers = [*map(whole_number(1, hint="--verify"), what)] or list(RUNS)
    results, comm = [], world()
    for n in numbers:
        with output.working(f"run {n}") as update:
            results.append(verified(n, cg_tol, teller(update, f"run {n}", comm), comm))
    output.json(results)
    columns = [
        Column("run", "run"),
        Column("problem", "problem"),
        Column("steps", "steps"),
        Column("Laghos", "steps_laghos"),
        Column("dt", "dt", ".6f"),
        Column("Laghos", "dt_laghos", ".6f"),
        Column("|e|", "e_norm", ".10e"),
        Column("Laghos", "e_norm_laghos", ".10e"),
        Column("seconds", "seconds", ".1f"),
    ]
    output.records("Laghos' reference runs", columns, results)
    off = [r["run"] for r in results if not _agrees(r)]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _agrees(result: dict[str, Any]) -> bool:
    same_steps: bool = result["steps"] == result["steps_laghos"]
    return (
        same_steps
        and abs(result["dt"] - result["dt_laghos"]) < 6e-7
        and (result["relative"] < 1e-7)
    )
