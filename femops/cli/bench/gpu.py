"""Command ``femops bench gpu``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    MeshesOption,
    OrdersOption,
    PlotOption,
    ProblemsOption,
    Result,
    report,
)
from femops.cli.options import JsonOption, name_list, number, option, paragraphs
from femops.cli.output import Column, columns, quantity, unwinding

_LIMIT = (
    "GDoF/s: dofs_per_second .3g 1e-9; limit: limit .3g 1e-9; of it: fraction_of_limit .0%; bound"
)
_US = "us: seconds .4g 1e6"
ROWS = (
    *columns("problem; mesh"),
    Column("level", lambda row: row["level"] + " *" * row["best"]),
    *columns(f"p: order; q: q1d; dofs; us: seconds_median .4g 1e6; {_LIMIT}"),
    *columns("B/dof: bytes_per_dof .3g; elements; registers; spills: local_bytes"),
)
CG = columns(
    f"CG on: problem; mesh; level; p: order; dofs; us: seconds_iteration .4g 1e6; {_LIMIT}"
)
SOLVES = columns(
    "mesh; level; p: order; dofs; with: preconditioner; iterations; setup s: seconds_setup .3g; "
    "solve s: seconds_solve .3g; solve: solve_applications .3g; faster: faster_than_jacobi .3g"
)
PRODUCTS = columns(
    f"type: dtype; n; members; library: implementation; layout; {_US}; GFlop/s: gflops .3g; "
    "limit: limit_gflops .3g; of it: fraction_of_limit .0%; bound; "
    "/ cuBLAS: over_best_peer .3g; off by: off_peer .1e"
)
GAS = columns(
    "p: order; elements; dofs; forces us: seconds_forces .4g 1e6; step us: seconds_step .4g 1e6; "
    "Gpoints/s: forces_points_per_second .3g 1e-9; off by: off_cpu .1e"
)
VECTORS = columns(
    f"problem; p: order; dofs; vectors: nvec; width; us: seconds_median .4g 1e6; {_LIMIT}; "
    "/ one by one: over_one_by_one .3g; off by: off_one .1e"
)
FACES = columns(
    f"problem; mesh; p: order; dofs; {_US}; GDoF/s: dofs_per_second .3g 1e-9; off by: off_cpu .1e"
)
REFINED = columns(
    f"mesh; level; p: order; dofs; elements; hanging: hanging .0%; {_US}; "
    "/ uniform: over_uniform .3g; diagonal us: seconds_diagonal .4g 1e6; off by: off_cpu .1e"
)
SIMPLICES = columns(
    "form; cells; curved; p: order; points: points .3g; dofs; us: seconds_median .4g 1e6; "
    f"{_LIMIT}; B/dof: bytes_per_dof .3g; registers; off by: off_cpu .1e"
)
SHAPES = columns(
    f"problem; mesh; level; p: order; elements; blocks; staged; persistent; {_US}; "
    "before: seconds_before .4g 1e6; tried"
)
_TABLES = (
    ("One application; * the better level", "rows", ROWS),
    ("One iteration", "cg", CG),
    ("Setup and solve in seconds, and the solve in products with the operator", "solves", SOLVES),
    ("C = A B, in batches", "products", PRODUCTS),
    ("Gas dynamics: the forces, and a step of four stages", "gas", GAS),
    ("Many vectors at once", "vectors", VECTORS),
    ("Discontinuous functions beside bp3", "faces", FACES),
    ("bp3 on locally refined meshes, an element over one of a uniform mesh", "refined", REFINED),
    ("Forms on tetrahedra and prisms", "simplices", SIMPLICES),
    ("Launch shapes", "shapes", SHAPES),
)
_SWEEP = "Try launch shapes instead, and keep the fastest in a table."
_INTO = "Do all of it in phases, launch shapes too, and keep everything there."


def _lines(result: Result) -> list[str]:
    """Lines about the device, its limits, and failures."""
    found = []
    for when, rates in (("", result["rates"]), ("at the end ", result["rates_after"])):
        if rates is not None:
            found.append(
                f"{when}copy {quantity(rates['copied_bytes'], 'B/s')}, "
                f"read {quantity(rates['read_bytes'], 'B/s')}, "
                f"shared memory {quantity(rates['shared_bytes'], 'B/s')}, "
                f"multiply-adds {quantity(rates['flops'], 'Flop/s')}, "
                f"atomics {quantity(rates['atomics'], '/s')}"
            )
    if not result["agrees"]:
        found.append("results differ by more than round-off: see below")
    if "table" in result:
        found.append(f"launch shapes are written to {result['table']}")
    return [*product_lines(result), *found]


def product_lines(result: Result) -> list[str]:
    """Lines about the device, failures, and the speed of products relative to cuBLAS."""
    device, mean = result["device"], result["products_over_best_peer"]
    found = [f"{device['name']} ({device['arch']}), {device['processors']} multiprocessors"]
    found += [f"failed: {one['what']}: {one['message']}" for one in result["failures"]]
    return [*found, f"{mean:.3g} times cuBLAS on average"] if mean else found


@paragraphs
def gpu(
    order: OrdersOption = "6,4,8,3,2,5,7,1",
    problem: ProblemsOption = "bp1,bp2,bp3,bp4,bp5,bp6",
    dofs: DofsOption = None,
    mesh: MeshesOption = "cartesian,multilinear",
    level: Annotated[Any, name_list("Of matrix-free, partial.")] = "matrix-free,partial",
    sweep: Annotated[bool, typer.Option("--sweep", help=_SWEEP)] = False,
    into: Annotated[str | None, option(None, "FOLDER", _INTO)] = None,
    budget: Annotated[float, option(number(1), "SECONDS", "For all of it.")] = 450.0,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a GPU's kernels with the CPU's, and with the limits of the GPU.

    With --into, each phase is a process of its own. The most important rows come first, and results
    are written after each row. Run the same command again to continue after an interruption.

    \b
    Examples:
      femops bench gpu --into results --budget 540 --plot
      femops bench gpu --order 3,6 --problem bp1,bp3
      femops bench gpu --sweep --order 3,6 --problem bp3
    """
    if sweep and plot is not None:
        raise typer.BadParameter("give --sweep or --plot, not both")
    if sweep and into is not None:
        raise typer.BadParameter("give --sweep or --into, which has a phase for it")
    from femops.bench.gpu import GpuSettings, run_gpu, run_phases

    settings = GpuSettings(order, problem, mesh, level, dofs, budget=budget)
    works = ("shapes",) if sweep else ("operators", "limits")

    def measure(progress: Callable[[str], None]) -> Result:
        if into is None:
            return run_gpu(settings, progress, works=works)
        Path(into).mkdir(parents=True, exist_ok=True)
        with unwinding():
            return run_phases(settings, Path(into), progress)

    shown: dict[str, Any] = {"lines": _lines, "picture": "gpu", "lasting": True}
    report("gpu", measure, _TABLES, **shown, plot=plot, json=json)
