"""Common parts of benchmarks: options, and the way from a measurement to tables and pictures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, final

import typer
from typer.core import TyperCommand

from femops.cli.options import (
    COUNT,
    JsonOption,
    documentation,
    name_list,
    number,
    number_list,
    option,
    paragraphs,
)
from femops.cli.output import Column, Output, check_files, one_line_warnings

PICTURE = "bench.png"
"""Default file of ``--plot``."""

Result = dict[str, Any]
Table = tuple[str, str, Sequence[Column]]
"""Title, key of the rows in the result, columns."""

Measure = Callable[..., Result]
"""Function that measures. It takes a function for its progress, `Progress`, as ``progress``."""

_DOFS = "About how many dofs instead."
_FOOTPRINT = "ram: 1.8 M dofs (default); cache: 0.12 M."
_LEVELS = "Of full, element, partial, matrix-free, auto (measured)."
_PEERS = "Run other libraries beside, if installed."
_PLOT = f"Draw it into this PNG file (default: {PICTURE})."

OrdersOption = Annotated[
    Any, number_list("Polynomial degrees: 4, 1-8 or 2,4,6.", "orders", "--order")
]
ProblemsOption = Annotated[Any, name_list("Of bp1 to bp6.")]
FootprintOption = Annotated[str | None, option(None, "NAME", _FOOTPRINT)]
DofsOption = Annotated[float | None, option(number(8), "N", _DOFS)]
MeshesOption = Annotated[Any, name_list("Of cartesian, multilinear, curved.", "--mesh")]
LevelOption = Annotated[str, option(None, "NAME", _LEVELS)]
RoundsOption = Annotated[int, option(COUNT, "N", "Turns of each.")]
PeersOption = Annotated[bool, typer.Option("--peers", help=_PEERS)]
PlotOption = Annotated[str | None, option(None, "[FILE]", _PLOT)]


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


def _shown(plot: PlotOption = None, json: JsonOption = False) -> None:
    """Last options of benchmarks."""


def benchmark(what: str, *tables: Table, **shown: Any) -> Callable[..., Callable[..., None]]:
    """Return a decorator that makes a command.

    The decorated function takes the options, and returns what measures. The command has --json too,
    and --plot if there is a picture. ``shown`` are options of `report`.
    """

    def decorate(function: Callable[..., Measure]) -> Callable[..., None]:
        given, last = (
            list(inspect.signature(each, eval_str=True).parameters.values())
            for each in (function, _shown)
        )

        def command(*, json: bool, plot: str | None = None, **options: Any) -> None:
            report(what, function(**options), tables, plot=plot, json=json, **shown)

        parameters = [*given, *(last if "picture" in shown else last[1:])]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {}
        command.__name__, command.__doc__ = function.__name__, documentation(function)
        return paragraphs(command)

    return decorate


def report(
    name: str,
    measure: Measure,
    tables: Sequence[Table],
    *,
    lines: Callable[[Result], Sequence[str]] = lambda _: (),
    picture: str = "",
    plot: str | None = None,
    json: bool,
    lasting: bool = False,
) -> None:
    """Run a benchmark, and print or draw its result."""
    check_files((plot, ".png"))
    output = Output(json)
    working = output.telling() if lasting else output.working(f"measuring {name}")
    with one_line_warnings(), working as progress:
        result = measure(progress=progress)
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


def limit_lines(result: Result) -> list[str]:
    """Lines with the machine's limits for each number of threads."""
    return [
        f"threads {limits['threads']}: triad {limits['triad_gbytes_per_second']:.3g} GB/s, "
        f"multiply-adds {limits['fma_gflops_per_second']:.3g} GFlop/s"
        for limits in result.get("limits", ())
    ]
