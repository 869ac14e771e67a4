"""Common parts of benchmarks: options, and the way from a measurement to tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Annotated, Any, final

import typer
from typer.core import TyperCommand

from femops.cli.options import name_list, number, number_list, whole_number
from femops.cli.output import Column, Output, one_line_warnings

PICTURE = "bench.png"
"""Default file of ``--plot``."""

Result = dict[str, Any]
Progress = Callable[[str], None]
Table = tuple[str, str, Sequence[Column]]
"""Title, key of the rows in the result, columns."""

OrdersOption = Annotated[
    Any, number_list("Polynomial degrees: 4, 1-8 or 2,4,6.", "orders", "--order")
]
ProblemsOption = Annotated[Any, name_list("Of bp1 to bp6.")]
FootprintOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="ram: 1.8 M dofs (default); cache: 0.12 M.")
]
DofsOption = Annotated[
    float | None,
    typer.Option(parser=number(8, inf), metavar="N", help="About how many dofs instead."),
]
MeshesOption = Annotated[Any, name_list("Of cartesian, multilinear, curved.", "--mesh")]
LevelOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="Of full, element, partial, matrix-free, auto (measured)."),
]
RoundsOption = Annotated[
    int, typer.Option(parser=whole_number(1), metavar="N", help="Turns of each.")
]
PeersOption = Annotated[
    bool, typer.Option("--peers", help="Run other libraries beside, if installed.")
]
PlotOption = Annotated[
    str | None,
    typer.Option(metavar="[FILE]", help=f"Draw it into this PNG file (default: {PICTURE})."),
]


@final
class PlotCommand(TyperCommand):
    """Command whose ``--plot`` needs no value. typer has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default file after a ``--plot`` without a value."""
        given = []
        for word, following in pairwise([*args, "--"]):
            given += [word, PICTURE] if word == "--plot" and following[:1] == "-" else [word]
        return super().parse_args(ctx, given)


def dofs_of(dofs: float | None, footprint: str | None) -> float:
    """Return the approximate number of dofs, from a number or a footprint's name."""
    from femops.bench.problems import FOOTPRINTS, check_asked

    check_one_size(dofs, footprint)
    if dofs is not None:
        return dofs
    check_asked(footprints=(footprint or "ram",))
    return FOOTPRINTS[footprint or "ram"]


def check_one_size(dofs: float | None, footprint: str | None) -> None:
    """Raise if both a number of dofs and a footprint are given."""
    if dofs is not None and footprint is not None:
        raise typer.BadParameter("give --dofs or --footprint, not both")


def report(
    name: str,
    measure: Callable[[Progress], Result],
    tables: Sequence[Table],
    *,
    lines: Callable[[Result], Sequence[str]] = lambda _: (),
    picture: str = "",
    plot: str | None = None,
    json: bool,
    lasting: bool = False,
) -> None:
    """Run a benchmark, and print or draw its result."""
    _check_plot(plot)
    output = Output(json)
    working = output.telling() if lasting else output.working(f"measuring {name}")
    with one_line_warnings(), working as progress:
        result = measure(progress)
    output.json(result)
    for line in (f"{name} on {result['machine']['processor']}", *lines(result)):
        output.say(line)
    for title, key, columns in tables:
        output.records(title, columns, result[key])
    for note in result.get("notes", ()):
        output.say(note)
    if plot is not None and any(row.get("timed", True) for row in result["rows"]):
        from femops.bench.drawing import draw

        draw(plot, picture, result["rows"])
    if result.get("failures") or not result.get("agrees", True):
        raise typer.Exit(1)


def _check_plot(plot: str | None) -> None:
    """Check, before measuring, that the picture can be drawn and written."""
    if plot is not None:
        from femops.io.atomic import check_writable, checked_path
        from femops.io.plots.with_matplotlib import check_matplotlib

        check_writable(checked_path(plot, ".png"))
        check_matplotlib()


def limit_lines(result: Result) -> list[str]:
    """Lines with the machine's limits for each number of threads."""
    return [
        f"threads {limits['threads']}: triad {limits['triad_gbytes_per_second']:.3g} GB/s, "
        f"multiply-adds {limits['fma_gflops_per_second']:.3g} GFlop/s"
        for limits in result.get("limits", ())
    ]
