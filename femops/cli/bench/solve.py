"""``femops bench solve``: whole solves, with multigrid and with Jacobi."""

from __future__ import annotations

from typing import Annotated

import typer

from femops.cli.bench.report import (
    DofsOption,
    LevelOption,
    OrdersOption,
    PlotOption,
    Progress,
    Result,
    RoundsOption,
    report,
)
from femops.cli.options import JsonOption, ThreadsOption, names, numbers
from femops.cli.output import Column, Output

MESHES = "cartesian,multilinear,ball,fichera"


def solve(
    order: OrdersOption = "2,4,6,8",
    dofs: DofsOption = None,
    mesh: Annotated[
        str,
        typer.Option("--mesh", metavar="NAMES", help="Of cartesian, multilinear, ball, fichera."),
    ] = MESHES,
    level: LevelOption = "partial",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 3,
    peers: Annotated[
        bool, typer.Option("--peers", help="Solve by ngsolve and mfem beside, if installed.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Solve on a GPU, as cuda; else on the host."),
    ] = None,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure solves of Poisson's equation, with multigrid and with Jacobi.

    To a relative residual of 1e-9, with about a million dofs. Setup and solve are given in seconds
    and in products with the operator.

    \b
    Examples:
      femops bench solve --json --plot
      femops bench solve --order 4 --threads 1 --mesh ball --dofs 2e5
      femops bench solve --order 4,6 --threads 1 --mesh multilinear --dofs 2.27e5 --peers
      femops bench solve --order 4 --device cuda --dofs 1e7
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders = numbers(order)

    def measure(progress: Progress) -> Result:
        from femops import bench
        from femops.bench.peers.solves import SOLVERS

        return bench.run_solve(
            orders,
            1e6 if dofs is None else dofs,
            threads,
            meshes=names(mesh),
            level=level,
            rounds=rounds,
            peers=SOLVERS if peers else (),
            device=device,
            progress=progress,
        )

    def draw(path: str, result: Result) -> None:
        from femops.bench.drawing import draw_solve

        draw_solve(path, result["rows"])

    report("solve", measure, _show, draw, plot=plot, json=json)


SOLVES = (
    *(Column("mesh", "mesh"), Column("p", "order"), Column("dofs", "dofs")),
    *(Column("threads", "threads"), Column("with", "preconditioner")),
    Column("iterations", "iterations"),
    Column("product ms", "seconds_apply", ".3g", 1e3),
    Column("setup s", "seconds_setup", ".3g"),
    Column("solve s", "seconds_solve", ".3g"),
    Column("setup", "setup_applications", ".3g"),
    Column("solve", "solve_applications", ".3g"),
    Column("faster", "faster_than_jacobi", ".3g"),
)

BESIDE = (
    *(Column("with", "label"), Column("p", "order"), Column("dofs", "dofs")),
    Column("iterations", "iterations"),
    Column("setup s", "seconds_setup", ".3g"),
    Column("solve s", "seconds_solve", ".3g"),
    Column("times as long", "times_as_long", ".3g"),
)


def _show(output: Output, result: Result) -> None:
    title = "Setup and solve in seconds, and in products with the operator"
    output.records(title, SOLVES, result["rows"])
    title = "Setup and solve in seconds beside other libraries, on one core"
    output.records(title, BESIDE, result["peers"])
