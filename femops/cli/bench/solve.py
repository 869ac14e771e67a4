"""Command ``femops bench solve``: complete solves, with multigrid and with Jacobi."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    LevelOption,
    Measure,
    OrdersOption,
    RoundsOption,
    benchmark,
)
from femops.cli.options import ThreadsOption, name_list, option
from femops.cli.output import columns

MESHES = "cartesian,multilinear,ball,fichera"

_SECONDS = "setup s: seconds_setup .3g; solve s: seconds_solve .3g"
SOLVES = columns(
    "mesh; p: order; dofs; threads; with: preconditioner; iterations; "
    f"product ms: seconds_apply .3g 1e3; {_SECONDS}; setup: setup_applications .3g; "
    "solve: solve_applications .3g; faster: faster_than_jacobi .3g"
)
BESIDE = columns(
    f"with: label; p: order; dofs; iterations; {_SECONDS}; times as long: times_as_long .3g"
)
_PEERS = "Solve by other libraries beside, if installed."
_DEVICE = "Solve on a GPU, as cuda; else on the host."


@benchmark(
    "solve",
    ("Setup and solve in seconds, and in products with the operator", "rows", SOLVES),
    ("Setup and solve in seconds beside other libraries, on one core", "peers", BESIDE),
    picture="solve",
)
def solve(
    order: OrdersOption = "2,4,6,8",
    dofs: DofsOption = None,
    mesh: Annotated[Any, name_list("Of cartesian, multilinear, ball, fichera.", "--mesh")] = MESHES,
    level: LevelOption = "partial",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 3,
    peers: Annotated[bool, typer.Option("--peers", help=_PEERS)] = False,
    device: Annotated[str | None, option(None, "NAME", _DEVICE)] = None,
) -> Measure:
    """Measure solves of Poisson's equation, with multigrid and with Jacobi.

    The relative residual is 1e-9, and there are about a million dofs. Times of setup and solve are
    in seconds and in products with the operator.

    \b
    Examples:
      femops bench solve --json --plot
      femops bench solve --order 4 --threads 1 --mesh ball --dofs 2e5
      femops bench solve --order 4,6 --threads 1 --mesh multilinear --dofs 2.27e5 --peers
      femops bench solve --order 4 --device cuda --dofs 1e7
    """
    from femops import bench
    from femops.bench.peers.interface import SOLVERS

    often: dict[str, Any] = {"meshes": mesh, "level": level, "rounds": rounds, "device": device}
    often["peers"] = SOLVERS if peers else ()
    return partial(bench.run_solve, order, 1e6 if dofs is None else dofs, threads, **often)
