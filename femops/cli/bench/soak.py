"""Command ``femops bench soak``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from femops.cli.bench.report import Measure, Result, benchmark
from femops.cli.options import ThreadsOption, number, option, set_threads
from femops.cli.output import columns

_WORKS = columns("work; s: seconds .3g; first cycle: first; last cycle: last; differs")
_GROWTH = columns(
    "quantity; start: start .4g; end: end .4g; most: most .4g; growth: growth .3g; bound: bound .3g"
)


def _lines(result: Result) -> list[str]:
    """Lines about the length of the run, and failures."""
    length = f"{result['cycles']} cycles in {result['minutes']:.1f} minutes"
    return [length, *(f"failed: {one}" for one in result["failures"])]


@benchmark(
    "soak",
    ("Work", "rows", _WORKS),
    ("The process: memory in MiB", "growth", _GROWTH),
    lines=_lines,
)
def soak(
    minutes: Annotated[float, option(number(0), "M", "No cycle begins later.")] = 60.0,
    threads: ThreadsOption = None,
) -> Measure:
    """Repeat mixed work, and check that it has the same bits and that the process does not grow.

    A cycle has products, solves, multigrid, eigenpairs, Newton's method, gas dynamics, files,
    threads and interrupts, all made anew. The exit code is 1 if the results of a cycle have other
    bits than those of the first one, or if memory, open files or threads grow beyond a bound.

    \b
    Examples:
      femops bench soak --minutes 5
      nice -n 19 femops bench soak --json > soak.json
    """
    from femops.bench.soak import run_soak

    set_threads(threads)
    return partial(run_soak, minutes)
