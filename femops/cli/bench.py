"""``femops bench``."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Annotated, Any

import typer

from femops.cli.options import JsonOption, ThreadsOption, number, numbers, paragraphs
from femops.cli.output import Output, one_line_warnings


class Problem(StrEnum):
    """CEED's bake-off problems."""

    bp1 = "bp1"
    bp3 = "bp3"


@paragraphs
def bench(
    problem: Annotated[Problem, typer.Argument(help="bp1: mass; bp3: diffusion.")],
    order: Annotated[str, typer.Option(help="Polynomial degrees: 4, 1-8 or 2,4,6.")] = "1-8",
    dofs: Annotated[
        float, typer.Option(parser=number(8, inf), metavar="N", help="About how many dofs.")
    ] = 1.8e6,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Measure how fast an operator is applied.

    Beside it stands what the memory and cores of this machine allow, measured in the same run
    (median time in ms; speed and roofline in millions of dofs a second).
    The problems are CEED's: p + 2 Gauss points, on a box whose elements are all deformed and on a
    Cartesian one.

    \b
    Examples:
      femops bench bp1
      femops bench bp3 --order 2,4,6 --threads 1
      femops bench bp1 --order 1-8 --dofs 1.8e6 --threads 1 --json
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders = numbers(order)
    from femops import bench as benchmarks

    output = Output(json)
    with one_line_warnings(), output.working(f"measuring {problem.value}") as show:
        result = benchmarks.run(problem.value, orders, dofs, threads, progress=show)
    output.json(result)
    machine = result["machine"]
    output.say(
        f"{problem.value} on {machine['processor']}: "
        f"triad {machine['triad_gbytes_per_second']:.3g} GB/s, "
        f"multiply-adds {machine['fma_gflops_per_second']:.3g} GFlop/s, "
        f"threads {result['rows'][0]['threads']}"
    )
    right = "right"
    columns = [("mesh", "left"), ("p", right), ("q", right), ("dofs", right)]
    columns += [("ms", right), ("Mdofs/s", right), ("roofline", right), ("B/dof", right)]
    output.table("", columns, [_row(row) for row in result["rows"]])


def _row(row: dict[str, Any]) -> list[str]:
    return [
        str(row["mesh"]),
        str(row["order"]),
        str(row["q1d"]),
        str(row["dofs"]),
        f"{1e3 * row['seconds_median']:.3g}",
        f"{row['dofs_per_second'] / 1e6:.4g}",
        f"{row['roofline'] / 1e6:.4g}",
        f"{row['bytes_per_dof']:.3g}",
    ]
