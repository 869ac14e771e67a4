"""Command ``femops bench soak``."""

from __future__ import annotations

from math import inf
from typing import Annotated

import typer

from femops.cli.bench.report import Progress, Result, report
from femops.cli.options import JsonOption, ThreadsOption, number, set_threads
from femops.cli.output import columns

_WORKS = columns("work; s: seconds .3g; first cycle: first; last cycle: last; differs")
_GROWTH = columns(
    "quantity; start: start .4g; end: end .4g; most: most .4g; growth: growth .3g; bound: bound .3g"
)


def soak(
    minutes: Annotated[
        float, typer.Option(parser=number(0, inf), metavar="M", help="No cycle begins later.")
    ] = 60.0,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Repeat mixed work, and check that it has the same bits and that the process does not grow.

    A cycle has products, solves, multigrid, eigenpairs, Newton's method, gas dynamics, files,
    threads and interrupts, all made anew. The exit code is 1 if the results of a cycle have other
    bits than those of the first one, or if memory, open files or threads grow beyond a bound.

    \b
    Examples:
      femops bench soak --minutes 5
      nice -n 19 femops bench soak --json > soak.json
    """  # noqa: D301  (\b is click's mark for lines to keep)

    def measure(progress: Progress) -> Result:
        from femops.bench.soak import run_soak

        set_threads(threads)
        return run_soak(minutes, progress=progress)

    tables = (("Work", "rows", _WORKS), ("The process: memory in MiB", "growth", _GROWTH))
    report("soak", measure, tables, lines=_lines, json=json)


def _lines(result: Result) -> list[str]:
    """Lines about the length of the run, and failures."""
    length = f"{result['cycles']} cycles in {result['minutes']:.1f} minutes"
    return [length, *(f"failed: {one}" for one in result["failures"])]
