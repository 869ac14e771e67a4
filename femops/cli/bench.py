"""``femops bench``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from femops.cli.options import JsonOption, ThreadsOption, numbers
from femops.cli.output import Output, one_line_warnings, quantity


class Problem(StrEnum):
    """CEED's bake-off problems."""

    bp1 = "bp1"
    bp3 = "bp3"


def bench(
    problem: Annotated[Problem, typer.Argument(help="bp1: mass; bp3: diffusion.")],
    order: Annotated[str, typer.Option(help="Polynomial degrees: 4, 1-8 or 2,4,6.")] = "1-8",
    dofs: Annotated[float, typer.Option(min=8, help="About how many dofs.")] = 1.8e6,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Measure how fast an operator is applied.

    Beside it stands what the memory and cores of this machine allow, measured in the same run.
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
        f"multiply-adds {machine['fma_gflops_per_second']:.3g} GFlop/s"
    )
    right = "right"
    columns = [("mesh", "left"), ("p", right), ("q", right), ("dofs", right), ("threads", right)]
    columns += [("median", right), ("speed", right), ("roofline", right), ("B/dof", right)]
    output.table("", columns, [_row(row) for row in result["rows"]])


def _row(row: dict[str, Any]) -> list[str]:
    return [
        str(row["mesh"]),
        str(row["order"]),
        str(row["q1d"]),
        str(row["dofs"]),
        str(row["threads"]),
        f"{1e3 * row['seconds_median']:.3g} ms",
        quantity(row["dofs_per_second"], "dofs/s"),
        quantity(row["roofline"], "dofs/s"),
        f"{row['bytes_per_dof']:.3g}",
    ]
