"""``femops bench scaling``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    FootprintOption,
    LevelOption,
    MeshesOption,
    PlotOption,
    ProblemsOption,
    Progress,
    Result,
    RoundsOption,
    dofs_of,
    report,
)
from femops.cli.options import JsonOption, OrderOption, number_list, positive, whole_number
from femops.cli.output import Column, Output, columns, quantity

_MESSAGES = "Of the model's messages; else measured."
_RANKS = "Numbers of ranks. With more than there are cores messages are counted, nothing is timed."
_VECTORS = "Many at once, beside matrices of elements and one by one."

_WAIT = "wait, ms: wait .3g 1e3; no overlap: wait_without_overlap .3g 1e3"
MEASURED = (
    *columns("problem; mesh; level; p: order; dofs"),
    Column("vectors", lambda row: f"{row['nvec']} {row['method']}" if row["nvec"] > 1 else "1"),
    *columns("ranks; ms: seconds .3g 1e3; Mdofs/s: dofs_per_second .4g 1e-6"),
    *columns(f"speed-up: speedup .3f; efficiency: efficiency .1%; {_WAIT}"),
    *columns("messages: messages g; kB: bytes .4g 1e-3; least: least_bytes .4g 1e-3"),
)
MEMORY = columns(
    "problem; mesh; ranks; MB a rank: bytes .4g 1e-6; all: sum .4g 1e-6; "
    "of 1/ranks: times_share .2f"
)
MODEL = columns(f"ranks; elements; ms: seconds .3g 1e3; efficiency: efficiency .1%; {_WAIT}; halo")


def scaling(
    ranks: Annotated[Any, number_list(_RANKS, "numbers of ranks", "--ranks")] = "1,2",
    problem: ProblemsOption = "bp1,bp3",
    order: OrderOption = 4,
    footprint: FootprintOption = None,
    dofs: DofsOption = None,
    weak: Annotated[bool, typer.Option("--weak", help="The dofs are of each rank.")] = False,
    mesh: MeshesOption = "cartesian,multilinear",
    level: LevelOption = "auto",
    vectors: Annotated[int, typer.Option(parser=whole_number(1), metavar="N", help=_VECTORS)] = 1,
    rounds: RoundsOption = 5,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure memory on 1, 2, 4 and 8 ranks.")
    ] = False,
    model: Annotated[bool, typer.Option("--model", help="Predict it up to 100,000 ranks.")] = False,
    latency: Annotated[
        float | None, typer.Option(parser=positive, metavar="S", help=_MESSAGES)
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(parser=positive, metavar="B/S", help=_MESSAGES)
    ] = None,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure operators on one rank of MPI and on several, and predict it for many.

    \b
    Examples:
      femops bench scaling --ranks 1,2 --json --plot scaling.png
      femops bench scaling --ranks 1,2,4,8 --problem bp1 --mesh multilinear --memory
      femops bench scaling --vectors 300 --order 8 --dofs 274625 --plot vectors.png
      femops bench scaling --model --latency 1.5e-6 --bandwidth 1e10 --plot model.png
    """  # noqa: D301  (\b is click's mark for lines to keep)
    if not model and (latency, bandwidth) != (None, None):
        raise typer.BadParameter("--latency and --bandwidth are the model's: add --model")
    size = dofs_of(dofs, footprint)

    def measure(progress: Progress) -> Result:
        from femops.bench.scaling import MEMORY_RANKS, Settings, run_scaling

        asked = Settings(ranks, order, size, problem, mesh, level, weak, rounds, nvec=vectors)
        links: dict[str, Any] = {"model": model, "latency": latency, "bandwidth": bandwidth}
        many = MEMORY_RANKS if memory else ()
        return run_scaling(asked, **links, memory_ranks=many, progress=progress)

    tables = (
        ("", "rows", MEASURED),
        ("Memory of mesh, space and operator, at its peak", "memory", MEMORY),
    )
    report("scaling", measure, tables, after=_show_models, picture="ranks", plot=plot, json=json)


def _show_models(output: Output, result: Result) -> None:
    for table in result["model"]:
        name = f"Model of {table['problem']}, {table['mesh']}"
        links = f"{1e6 * table['latency']:.3g} us, {quantity(table['bandwidth'], 'B/s')}"
        kinds = [(f"strong, {each['dofs']:.3g} dofs", each["rows"]) for each in table["strong"]]
        kinds.append((f"weak, {table['strong'][0]['dofs']:.3g} dofs a rank", table["weak"]))
        for kind, rows in kinds:
            output.records(f"{name}: {kind}; {links}", MODEL, rows)
