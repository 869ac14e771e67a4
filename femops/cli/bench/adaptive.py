"""Command ``femops bench adaptive``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from femops.cli.bench.report import Measure, MeshesOption, OrdersOption, RoundsOption, benchmark
from femops.cli.options import ThreadsOption, name_list, option
from femops.cli.output import columns

COLUMNS = columns(
    "kind; mesh; p: order; level; elements; hanging: hanging .2g; dofs; "
    "ms: seconds_median .4g 1e3; us/element: seconds_element .4g 1e6; / uniform: over_uniform .3g"
)
SOLVES = columns(
    "kind; mesh; p: order; dofs; iterations; meshes and spaces s: seconds_refine .3g; "
    "setup s: seconds_setup .3g; solve s: seconds_solve .3g"
)


@benchmark(
    "locally refined meshes",
    ("Products", "rows", COLUMNS),
    ("Solves of Poisson's equation", "solves", SOLVES),
)
def adaptive(
    order: OrdersOption = "2,4,6",
    mesh: MeshesOption = "multilinear",
    level: Annotated[Any, name_list("Of full, element, partial, matrix-free.")] = (
        "partial,matrix-free"
    ),
    footprint: Annotated[str, option(None, "NAME", "ram or cache.")] = "ram",
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure diffusion on a mesh that is refined in a ball, beside a uniform mesh.

    About a fifth of the elements have hanging faces or edges. Times are those of an element.

    \b
    Examples:
      femops bench adaptive --order 4
      femops bench adaptive --footprint cache --json
    """
    from femops.bench.adaptive import run_adaptive

    often: dict[str, Any] = {"footprint": footprint, "threads": threads or 1, "rounds": rounds}
    return partial(run_adaptive, mesh, order, level, **often)
