"""``femops bench gpu``: its options and tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.options import names
from femops.cli.output import Output, quantity

SweepOption = Annotated[
    bool,
    typer.Option(
        "--sweep", help="gpu: try launch shapes instead, and keep the fastest in a table."
    ),
]

FORM_HEADINGS = ("form", "dimension", "off by", "")
HEADINGS = (
    *("problem", "mesh", "level", "p", "q", "dofs", "us", "GDoF/s", "limit", "of it", "bound"),
    *("B/dof", "elements", "registers", "spills"),
)
CG_HEADINGS = ("CG on", "mesh", "level", "p", "dofs", "us", "GDoF/s", "limit", "of it", "bound")
SHAPE_HEADINGS = ("problem", "mesh", "level", "p", "elements", "blocks", "us", "before", "tried")


def measured(
    orders: list[int], given: dict[str, Any], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Run the benchmark, or try launch shapes.

    Parameters
    ----------
    orders : list of int
    given : dict
        What options say; None where they do not.
    progress : callable
    """
    from femops.bench.gpu import GpuSettings, run_gpu, run_tuning

    asked: dict[str, Any] = {"orders": orders, "dofs": given["dofs"]}
    for option, name in (("problem", "problems"), ("mesh", "meshes"), ("level", "levels")):
        if given[option] is not None:
            asked[name] = names(given[option])
    settings = GpuSettings(**asked)
    if given["sweep"]:
        return run_tuning(settings, progress)
    return run_gpu(settings, progress, _keeper(given["plot"]))


def _keeper(plot: str | None) -> Callable[[dict[str, Any]], None] | None:
    """What writes results beside the picture that is asked for, if one is."""
    if plot is None:
        return None
    from femops.io.atomic import replacing

    path = Path(plot).with_suffix(".json")

    def keep(result: dict[str, Any]) -> None:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(result, indent=2, allow_nan=False), encoding="utf-8")

    return keep


def show(output: Output, result: dict[str, Any]) -> None:
    """Print tables, then what is missing, then what was to be reached."""
    device, rows = result["device"], result["rows"]
    output.say(f"{device['name']} ({device['arch']}), {device['processors']} multiprocessors")
    if "table" in result:
        output.rows("Launch shapes", SHAPE_HEADINGS, [_shape_row(row) for row in rows], 3)
        output.say(f"written to {result['table']}")
    else:
        _show_measured(output, result)
    for note in result["notes"]:
        output.say(note)
    for failure in result["failures"]:
        output.say(f"failed: {failure['what']}: {failure['message']}")
    for aim in result.get("targets", ()):
        output.say(": ".join(filter(None, (aim["target"], aim["verdict"], aim["measured"]))))


def _show_measured(output: Output, result: dict[str, Any]) -> None:
    title = "Results beside the CPU's, relative to the largest entry"
    output.rows(title, FORM_HEADINGS, [_form_row(row) for row in result["agreement"]], 1)
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
    title = "One application; * the better level"
    output.rows(title, HEADINGS, [_row(row) for row in result["rows"]], 3)
    output.rows("One iteration", CG_HEADINGS, [_cg_row(row) for row in result["cg"]], 3)


def _form_row(row: dict[str, Any]) -> list[str]:
    off = "-" if row["error"] is None else f"{row['error']:.1e}"
    return [row["form"], str(row["dim"]), off, "" if row["agrees"] else row["message"] or "differs"]


def _speed(row: dict[str, Any], seconds: float) -> list[str]:
    return [
        f"{1e6 * seconds:.4g}",
        f"{1e-9 * row['dofs_per_second']:.3g}",
        f"{1e-9 * row['limit']:.3g}",
        f"{row['fraction_of_limit']:.0%}",
        row["bound"],
    ]


def _row(row: dict[str, Any]) -> list[str]:
    return [
        *(row["problem"], row["mesh"], row["level"] + " *" * row["best"]),
        *(str(row[key]) for key in ("order", "q1d", "dofs")),
        *_speed(row, row["seconds_median"]),
        f"{row['bytes_per_dof']:.3g}",
        *(str(row[key]) for key in ("elements", "registers", "local_bytes")),
    ]


def _cg_row(row: dict[str, Any]) -> list[str]:
    facts = [row["problem"], row["mesh"], row["level"], str(row["order"]), str(row["dofs"])]
    return [*facts, *_speed(row, row["seconds_iteration"])]


def _shape_row(row: dict[str, Any]) -> list[str]:
    return [
        *(row["problem"], row["mesh"], row["level"], str(row["order"])),
        *(str(row["elements"]), str(row["blocks"])),
        f"{1e6 * row['seconds']:.4g}",
        f"{1e6 * row['seconds_before']:.4g}",
        str(row["tried"]),
    ]
