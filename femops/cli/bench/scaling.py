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
    Progress,
    Result,
    RoundsOption,
    dofs_of,
    report,
)
from femops.cli.options import (
    JsonOption,
    OrderOption,
    names,
    numbers,
    positive,
    whole_number,
)
from femops.cli.output import Column, Output, quantity

_MESSAGES = "Of the model's messages; else measured."


def scaling(
    ranks: Annotated[
        str,
        typer.Option(
            metavar="N,N",
            help="Numbers of ranks. With more than there are cores messages are counted and "
            "nothing is timed.",
        ),
    ] = "1,2",
    problem: Annotated[str, typer.Option(metavar="NAMES", help="Of bp1 to bp6.")] = "bp1,bp3",
    order: OrderOption = 4,
    footprint: FootprintOption = None,
    dofs: DofsOption = None,
    weak: Annotated[bool, typer.Option("--weak", help="The dofs are of each rank.")] = False,
    mesh: MeshesOption = "cartesian,multilinear",
    level: LevelOption = "auto",
    vectors: Annotated[
        int,
        typer.Option(
            parser=whole_number(1),
            metavar="N",
            help="Many at once, beside matrices of elements and one by one.",
        ),
    ] = 1,
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
    many = numbers(ranks, "numbers of ranks", option="--ranks")
    if not model and (latency, bandwidth) != (None, None):
        raise typer.BadParameter("--latency and --bandwidth are the model's: add --model")
    size = dofs_of(dofs, footprint)

    def measure(progress: Progress) -> Result:
        from femops.bench.scaling import MEMORY_RANKS, Settings, run_scaling

        asked = Settings(
            many, order, size, names(problem), names(mesh), level, weak, rounds, nvec=vectors
        )
        return run_scaling(
            asked,
            model=model,
            latency=latency,
            bandwidth=bandwidth,
            memory_ranks=MEMORY_RANKS if memory else (),
            progress=progress,
        )

    report("scaling", measure, _show, _draw, plot=plot, json=json)


def _draw(path: str, result: Result) -> None:
    """Draw the model with what was measured, if there is one, else the speed over the ranks."""
    from femops.bench.drawing import draw_model, draw_speedup

    if result["model"]:
        draw_model(path, result["model"], result["rows"])
    elif any(row["timed"] for row in result["rows"]):
        draw_speedup(path, result["rows"])


_CASE = (Column("problem", "problem"), Column("mesh", "mesh"))
_WAIT = (
    Column("wait, ms", "wait", ".3g", 1e3),
    Column("no overlap", "wait_without_overlap", ".3g", 1e3),
)
MEASURED = (
    *(*_CASE, Column("level", "level"), Column("p", "order"), Column("dofs", "dofs")),
    Column("vectors", lambda row: f"{row['nvec']} {row['method']}" if row["nvec"] > 1 else "1"),
    Column("ranks", "ranks"),
    Column("ms", "seconds", ".3g", 1e3),
    Column("Mdofs/s", "dofs_per_second", ".4g", 1e-6),
    Column("speed-up", "speedup", ".3f"),
    Column("efficiency", "efficiency", ".1%"),
    *(*_WAIT, Column("messages", "messages", "g")),
    Column("kB", "bytes", ".4g", 1e-3),
    Column("least", "least_bytes", ".4g", 1e-3),
)
MEMORY = (
    *(*_CASE, Column("ranks", "ranks"), Column("MB a rank", "bytes", ".4g", 1e-6)),
    *(Column("all", "sum", ".4g", 1e-6), Column("of 1/ranks", "times_share", ".2f")),
)
MODEL = (
    *(Column("ranks", "ranks"), Column("elements", "elements")),
    *(Column("ms", "seconds", ".3g", 1e3), Column("efficiency", "efficiency", ".1%")),
    *(*_WAIT, Column("halo", "halo")),
)


def _show(output: Output, result: Result) -> None:
    output.records("", MEASURED, result["rows"])
    output.records("Memory of mesh, space and operator, at its peak", MEMORY, result["memory"])
    for table in result["model"]:
        _show_model(output, table)


def _show_model(output: Output, table: dict[str, Any]) -> None:
    name = f"Model of {table['problem']}, {table['mesh']}"
    links = f"{1e6 * table['latency']:.3g} us, {quantity(table['bandwidth'], 'B/s')}"
    kinds = [(f"strong, {each['dofs']:.3g} dofs", each["rows"]) for each in table["strong"]]
    kinds.append((f"weak, {table['strong'][0]['dofs']:.3g} dofs a rank", table["weak"]))
    for kind, rows in kinds:
        output.records(f"{name}: {kind}; {links}", MODEL, rows)
