"""Command ``femops remap --verify``: runs that Remhos publishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from femops.cli.options import whole_number
from femops.cli.output import Output, columns

_COLUMNS = columns(
    "run; mesh; problem; steps; mass: mass .10g; Remhos: mass_remhos .10g; max: max .10f; "
    "Remhos: max_remhos .10f; seconds: seconds .1f"
)


def verify_runs(output: Output, what: list[str]) -> None:
    """Repeat published runs (all by default). Print femops' and Remhos' results. Collective."""
    from femops.errors import HydroError
    from femops.hydro.remap import PUBLISHED, verify_advection
    from femops.parallel import world

    numbers = [*map(whole_number(0, hint="--verify"), what)] or list(PUBLISHED)
    results = []
    for n in numbers:
        with output.working(f"run {n}") as update:
            tell = partial(_tell, update, f"run {n}")
            results.append(verify_advection(n, tell, world()))
    output.json(results)
    output.records("Remhos' published runs", _COLUMNS, results)
    off = [result["run"] for result in results if not result["agrees"]]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _tell(update: Callable[[str], None], what: str, t: float, _: Any) -> None:
    update(f"{what}: t = {t:.4f}")
