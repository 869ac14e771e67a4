"""Command ``femops hydro --verify``: Laghos' reference runs."""

from __future__ import annotations

from typing import Any

from femops.cli.hydro.progress import teller
from femops.cli.options import whole_number
from femops.cli.output import Output, columns

_COLUMNS = columns(
    "run; problem; steps; Laghos: steps_laghos; dt: dt .6f; Laghos: dt_laghos .6f; "
    "|e|: e_norm .10e; Laghos: e_norm_laghos .10e; seconds: seconds .1f"
)


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
    output.records("Laghos' reference runs", _COLUMNS, results)
    off = [r["run"] for r in results if not _agrees(r)]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _agrees(result: dict[str, Any]) -> bool:
    same = result["steps"] == result["steps_laghos"], result["relative"] < 1e-7
    return all(same) and abs(result["dt"] - result["dt_laghos"]) < 6e-7
