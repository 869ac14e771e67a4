"""Command ``femops tune``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    MeshesOption,
    OrdersOption,
    ProblemsOption,
    RoundsOption,
)
from femops.cli.options import (
    JsonOption,
    ThreadsOption,
    given_options,
    name_list,
    number_list,
    refuse,
)
from femops.cli.output import Output, columns, one_line_warnings

COLUMNS = columns("case; setting; found; times as fast: gain .2f; tried")
_SIZES = "Rows of the matrices of products: 2-32 or 4,8."


def _check_used(context: typer.Context, settings: Sequence[str]) -> None:
    """Raise if an option is set that has no effect on the settings to measure."""
    unused = set() if "products" in settings else {"size"}
    if set(settings) == {"products"}:
        unused = {"order", "problem", "mesh", "level", "dofs"}
    why = f"it has no part in --setting {','.join(settings)}"
    refuse(given_options(context) & unused, why)


def tune(
    context: typer.Context,
    order: OrdersOption = "1-8",
    problem: ProblemsOption = "bp1,bp3",
    mesh: MeshesOption = "multilinear",
    level: Annotated[Any, name_list("Of partial, matrix-free.")] = "partial,matrix-free",
    setting: Annotated[
        Any, name_list("Of prefetch, chunks, level, vectors, products.")
    ] = "prefetch,chunks,level,vectors,products",
    size: Annotated[Any, number_list(_SIZES, "sizes", "--size")] = "2-32",
    dofs: DofsOption = None,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 9,
    again: Annotated[bool, typer.Option("--again", help="Measure known settings, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure which settings of kernels are fastest on this machine, and keep them.

    A setting changes only if another value is clearly faster. Each result is saved at once, in
    tuning.json of the cache folder. So an interrupted run goes on where it ended.

    \b
    Examples:
      femops tune
      femops tune --order 4 --problem bp3 --setting prefetch,chunks
      femops tune --order 1-3 --setting level --threads 2
      femops tune --setting products --size 4,8,16
    """
    from femops.bench.tune import TuneSettings, run_tune

    given = problem, mesh, level, setting, order, size, dofs, threads or 1, rounds, again
    settings = TuneSettings(*given)
    settings.check()
    _check_used(context, setting)
    output = Output(json)
    with one_line_warnings(), output.counting("tuning") as (total, step):
        result = run_tune(settings, step, total)
    output.json(result)
    output.records("Settings", COLUMNS, result["rows"])
    known = f"; {result['known']} were known" if result["known"] else ""
    output.say(f"{len(result['rows'])} settings are in {result['table']}{known}")
