"""Commands ``femops bench machine`` and ``compare``: this machine, and those of a folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from femops.cli.bench.operators import OPERATORS
from femops.cli.bench.report import Measure, Result, benchmark, limit_lines
from femops.cli.bench.solve import BESIDE
from femops.cli.options import COUNT, JsonOption, option, paragraphs
from femops.cli.output import Output

_QUICK: dict[str, Any] = {"orders": (2, 4), "dofs": 1e5, "solves": {2: 2e4}}
_QUICK |= {"rounds": 1, "seconds": 0.03}
_SAVE = "Save the result there, by processor and date."
_SMALL = "Two orders, small meshes and one round."


@benchmark(
    "machine",
    ("", "rows", OPERATORS),
    ("Setup and solve in seconds, on one core", "solves", BESIDE),
    lines=limit_lines,
    lasting=True,
)
def machine(
    save: Annotated[str | None, option(None, "FOLDER", _SAVE)] = None,
    quick: Annotated[bool, typer.Option("--quick", help=_SMALL)] = False,
    rounds: Annotated[int | None, option(COUNT, "N", "Turns: 3, or 1 with --quick.")] = None,
) -> Measure:
    """Compare libraries on this machine: bp1, bp3 and solves.

    All installed peers of libceed, mfem, ngsolve, scikit-fem and warp-lang run in turns with
    femops, on one core, on boxes and on multilinear elements. It takes some 15 minutes, or two with
    --quick. Let nothing else run. Warp compiles for a minute or two at its first run.

    \b
    Examples:
      femops bench machine --quick
      femops bench machine --save docs/benchmarks
    """
    from femops.bench.comparison import check_folder, run_comparison, save_comparison

    if save is not None:
        check_folder(save)

    def measure(progress: Callable[[str], None]) -> Result:
        given = (_QUICK if quick else {}) | ({} if rounds is None else {"rounds": rounds})
        result = run_comparison(**given, progress=progress)
        if save is not None:
            progress(f"saved as {save_comparison(save, result)}")
        return result

    return measure


@paragraphs
def compare(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Files of femops bench machine.")],
    plot: Annotated[str | None, option(None, "FILE", "Draw the speeds into this PNG file.")] = None,
    json: JsonOption = False,
) -> None:
    """Print tables of measured machines in Markdown, and draw them.

    \b
    Examples:
      femops bench compare docs/benchmarks
      femops bench compare docs/benchmarks --plot machines.png
    """
    from femops.bench.comparison import markdown, read_comparisons, speed_rows

    documents, output = read_comparisons(folder), Output(json)
    output.json(documents)
    for line in markdown(documents):
        output.say(line)
    if plot is not None:
        from femops.bench.drawing import draw

        draw(plot, "machines", speed_rows(documents))
