"""``femops bench gpu``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    MeshesOption,
    OrdersOption,
    PlotOption,
    Progress,
    Result,
    report,
)
from femops.cli.options import JsonOption, names, numbers
from femops.cli.output import Column, Output, quantity


def gpu(
    order: OrdersOption = "1-8",
    problem: Annotated[
        str, typer.Option(metavar="NAMES", help="Of bp1 to bp6.")
    ] = "bp1,bp2,bp3,bp4,bp5,bp6",
    dofs: DofsOption = None,
    mesh: MeshesOption = "cartesian,multilinear",
    level: Annotated[
        str, typer.Option(metavar="NAMES", help="Of matrix-free, partial.")
    ] = "matrix-free,partial",
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Try launch shapes instead, and keep the fastest in a table."),
    ] = False,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a GPU's kernels with the CPU's, and measure them beside what it allows.

    With --plot all results so far are kept in a .json file beside the picture, from the first on.

    \b
    Examples:
      femops bench gpu --json --plot
      femops bench gpu --order 3,6 --problem bp1,bp3
      femops bench gpu --sweep --order 3,6 --problem bp3
    """  # noqa: D301  (\b is click's mark for lines to keep)
    if sweep and plot is not None:
        raise typer.BadParameter("give --sweep or --plot, not both")
    orders = numbers(order)

    def measure(progress: Progress) -> Result:
        from femops.bench.gpu import GpuSettings, run_gpu, run_tuning

        settings = GpuSettings(orders, names(problem), names(mesh), names(level), dofs)
        if sweep:
            return run_tuning(settings, progress)
        return run_gpu(settings, progress, _keeper(plot))

    def draw(path: str, result: Result) -> None:
        from femops.bench.drawing import draw_gpu

        draw_gpu(path, result["rows"])

    report("gpu", measure, _show, draw, plot=plot, json=json, lasting=True)


def _keeper(plot: str | None) -> Callable[[Result], None] | None:
    """Return the function that writes results beside the picture, if one is asked for."""
    if plot is None:
        return None
    import json

    from femops.io.atomic import replacing

    path = Path(plot).with_suffix(".json")

    def keep(result: Result) -> None:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(result, indent=2, allow_nan=False), encoding="utf-8")

    return keep


def _agreement(row: dict[str, Any]) -> str:
    return "" if row["agrees"] else row["message"] or "differs"


_CASE = (Column("problem", "problem"), Column("mesh", "mesh"))
_LIMIT = (
    Column("GDoF/s", "dofs_per_second", ".3g", 1e-9),
    Column("limit", "limit", ".3g", 1e-9),
    Column("of it", "fraction_of_limit", ".0%"),
    Column("bound", "bound"),
)
FORMS = (
    *(Column("form", "form"), Column("dimension", "dim"), Column("off by", "error", ".1e")),
    Column("", _agreement),
)
ROWS = (
    *(*_CASE, Column("level", lambda row: row["level"] + " *" * row["best"])),
    *(Column("p", "order"), Column("q", "q1d"), Column("dofs", "dofs")),
    *(Column("us", "seconds_median", ".4g", 1e6), *_LIMIT, Column("B/dof", "bytes_per_dof", ".3g")),
    *(Column("elements", "elements"), Column("registers", "registers")),
    Column("spills", "local_bytes"),
)
CG = (
    *(Column("CG on", "problem"), Column("mesh", "mesh"), Column("level", "level")),
    *(Column("p", "order"), Column("dofs", "dofs")),
    *(Column("us", "seconds_iteration", ".4g", 1e6), *_LIMIT),
)
SHAPES = (
    *(*_CASE, Column("level", "level"), Column("p", "order"), Column("elements", "elements")),
    *(Column("blocks", "blocks"), Column("us", "seconds", ".4g", 1e6)),
    *(Column("before", "seconds_before", ".4g", 1e6), Column("tried", "tried")),
)


def _show(output: Output, result: Result) -> None:
    """Print tables, then what is missing."""
    device = result["device"]
    output.say(f"{device['name']} ({device['arch']}), {device['processors']} multiprocessors")
    if "table" in result:
        output.records("Launch shapes", SHAPES, result["rows"])
        output.say(f"written to {result['table']}")
    else:
        _show_measured(output, result)
    for failure in result["failures"]:
        output.say(f"failed: {failure['what']}: {failure['message']}")


def _show_measured(output: Output, result: Result) -> None:
    title = "Results beside the CPU's, relative to the largest entry"
    output.records(title, FORMS, result["agreement"])
    if not result["agrees"]:
        output.say("results differ by more than round-off: see above")
    for when, rates in (("", result["rates"]), ("at the end ", result["rates_after"])):
        if rates is not None:
            output.say(
                f"{when}copy {quantity(rates['copied_bytes'], 'B/s')}, "
                f"shared memory {quantity(rates['shared_bytes'], 'B/s')}, "
                f"multiply-adds {quantity(rates['flops'], 'Flop/s')}, "
                f"atomics {quantity(rates['atomics'], '/s')}"
            )
    output.records("One application; * the better level", ROWS, result["rows"])
    output.records("One iteration", CG, result["cg"])
