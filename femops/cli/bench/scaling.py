"""Command ``femops bench scaling``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    FootprintOption,
    LevelOption,
    Measure,
    MeshesOption,
    ProblemsOption,
    RoundsOption,
    benchmark,
    dofs_of,
)
from femops.cli.options import COUNT, OrderOption, number_list, option
from femops.cli.output import Column, columns

_RANKS = "Numbers of ranks. With more than there are cores messages are counted, nothing is timed."
_VECTORS = "Many at once, beside matrices of elements and one by one."

_WAIT = "wait, ms: wait .3g 1e3; no overlap: wait_without_overlap .3g 1e3"
MEASURED = (
    *columns("problem; mesh; level; p: order; dofs"),
    Column("vectors", lambda row: f"{row['nvec']} {row['method']}" if row["nvec"] > 1 else "1"),
    *columns("ranks; ms: seconds .3g 1e3; Mdofs/s: dofs_per_second .4g 1e-6"),
    *columns(f"speed-up: speedup .3f; efficiency: efficiency .1%; {_WAIT}"),
    *columns("messages: messages g; kB: bytes .4g 1e-3; least: least_bytes .4g 1e-3"),
)
MEMORY = columns(
    "problem; mesh; ranks; MB a rank: bytes .4g 1e-6; all: sum .4g 1e-6; "
    "of 1/ranks: times_share .2f"
)
_MEMORY = "Measure memory on 1, 2, 4 and 8 ranks."


@benchmark(
    "scaling",
    ("", "rows", MEASURED),
    ("Memory of mesh, space and operator, at its peak", "memory", MEMORY),
    picture="ranks",
)
def scaling(
    ranks: Annotated[Any, number_list(_RANKS, "numbers of ranks", "--ranks")] = "1,2",
    problem: ProblemsOption = "bp1,bp3",
    order: OrderOption = 4,
    footprint: FootprintOption = None,
    dofs: DofsOption = None,
    weak: Annotated[bool, typer.Option("--weak", help="The dofs are of each rank.")] = False,
    mesh: MeshesOption = "cartesian,multilinear",
    level: LevelOption = "auto",
    vectors: Annotated[int, option(COUNT, "N", _VECTORS)] = 1,
    rounds: RoundsOption = 5,
    memory: Annotated[bool, typer.Option("--memory", help=_MEMORY)] = False,
) -> Measure:
    """Measure operators on one rank of MPI and on several.

    \b
    Examples:
      femops bench scaling --ranks 1,2 --json --plot scaling.png
      femops bench scaling --ranks 1,2,4,8 --problem bp1 --mesh multilinear --memory
      femops bench scaling --vectors 300 --order 8 --dofs 274625 --plot vectors.png
    """
    size = dofs_of(dofs, footprint)
    from femops.bench.scaling import MEMORY_RANKS, Settings, run_scaling

    asked = Settings(ranks, order, size, problem, mesh, level, weak, rounds, nvec=vectors)
    return partial(run_scaling, asked, memory_ranks=MEMORY_RANKS if memory else ())
