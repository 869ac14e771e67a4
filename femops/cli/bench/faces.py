"""Command ``femops bench faces``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from femops.cli.bench.report import Measure, MeshesOption, OrdersOption, RoundsOption, benchmark
from femops.cli.options import ThreadsOption, name_list, option
from femops.cli.output import columns

COLUMNS = columns(
    "problem; mesh; p: order; dofs; ms: seconds_median .4g 1e3; "
    "Mdofs/s: dofs_per_second .4g 1e-6; / bp3: over_bp3 .3g"
)
SOLVES = columns(
    "problem; mesh; p: order; dofs; iterations; setup s: seconds_setup .3g; "
    "solve s: seconds_solve .3g; / bp3: over_bp3 .3g"
)
_PROBLEMS = "sip,sip-hermite,advection,advection-gll"


@benchmark(
    "faces between elements",
    ("Products", "rows", COLUMNS),
    ("Solves of Poisson's equation", "solves", SOLVES),
)
def faces(
    order: OrdersOption = "2,4,6,8",
    problem: Annotated[
        Any, name_list("Of sip, sip-hermite, advection, advection-gll.")
    ] = _PROBLEMS,
    mesh: MeshesOption = "multilinear",
    footprint: Annotated[str, option(None, "NAME", "ram or cache.")] = "ram",
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure discontinuous functions: interior penalty and upwind convection.

    Times per dof stand beside those of bp3, diffusion of continuous functions on the same mesh.

    \b
    Examples:
      femops bench faces --order 2,4
      femops bench faces --problem sip --footprint cache --json
    """
    from femops.bench.faces import run_faces

    names = [name.replace("-", " ") for name in problem]
    often: dict[str, Any] = {"footprint": footprint, "threads": threads or 1, "rounds": rounds}
    return partial(run_faces, names, mesh, order, **often)
