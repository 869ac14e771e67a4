"""``femops bench gpu``."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.bench.report import (
    DofsOption,
    MeshesOption,
    OrdersOption,
    PlotOption,
    Progress,
    Result,
    report,
)
from femops.cli.options import JsonOption, names, number, numbers
from femops.cli.output import Column, Output, quantity


def gpu(
    order: OrdersOption = "6,4,8,3,2,5,7,1",
    problem: Annotated[
        str, typer.Option(metavar="NAMES", help="Of bp1 to bp6.")
    ] = "bp1,bp2,bp3,bp4,bp5,bp6",
    dofs: DofsOption = None,
    mesh: MeshesOption = "cartesian,multilinear",
    level: Annotated[
        str, typer.Option(metavar="NAMES", help="Of matrix-free, partial.")
    ] = "matrix-free,partial",
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Try launch shapes instead, and keep the fastest in a table."),
    ] = False,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Do all of it in phases, launch shapes too, and keep everything there.",
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(parser=number(1, inf), metavar="SECONDS", help="For all of it.")
    ] = 450.0,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a GPU's kernels with the CPU's, and measure them beside what it allows.

    With --into, phases are processes of their own, what matters most comes first, and results are
    written after each row. The same command goes on where it stopped.

    \b
    Examples:
      femops bench gpu --into results --budget 540 --plot
      femops bench gpu --order 3,6 --problem bp1,bp3
      femops bench gpu --sweep --order 3,6 --problem bp3
    """  # noqa: D301  (\b is click's mark for lines to keep)
    if sweep and plot is not None:
        raise typer.BadParameter("give --sweep or --plot, not both")
    if sweep and into is not None:
        raise typer.BadParameter("give --sweep or --into, which has a phase for it")
    orders = numbers(order)

    def measure(progress: Progress) -> Result:
        from femops.bench.gpu import GpuSettings, run_gpu, run_phases, run_tuning

        settings = GpuSettings(
            orders, names(problem), names(mesh), names(level), dofs, budget=budget
        )
        if into is not None:
            folder = Path(into)
            folder.mkdir(parents=True, exist_ok=True)
            return run_phases(settings, folder, progress)
        return (run_tuning if sweep else run_gpu)(settings, progress)

    def draw(path: str, result: Result) -> None:
        from femops.bench.drawing import draw_gpu

        draw_gpu(path, result["rows"])

    report("gpu", measure, _show, draw, plot=plot, json=json, lasting=True)


def _validation(row: dict[str, Any]) -> str:
    return "" if row["agrees"] else row["message"] or "differs"


_CASE = (Column("problem", "problem"), Column("mesh", "mesh"))
_LIMIT = (
    Column("GDoF/s", "dofs_per_second", ".3g", 1e-9),
    Column("limit", "limit", ".3g", 1e-9),
    Column("of it", "fraction_of_limit", ".0%"),
    Column("bound", "bound"),
)
FORMS = (
    *(Column("form", "form"), Column("dimension", "dim"), Column("off by", "error", ".1e")),
    Column("", _validation),
)
ROWS = (
    *(*_CASE, Column("level", lambda row: row["level"] + " *" * row["best"])),
    *(Column("p", "order"), Column("q", "q1d"), Column("dofs", "dofs")),
    *(Column("us", "seconds_median", ".4g", 1e6), *_LIMIT, Column("B/dof", "bytes_per_dof", ".3g")),
    *(Column("elements", "elements"), Column("registers", "registers")),
    Column("spills", "local_bytes"),
)
CG = (
    *(Column("CG on", "problem"), Column("mesh", "mesh"), Column("level", "level")),
    *(Column("p", "order"), Column("dofs", "dofs")),
    *(Column("us", "seconds_iteration", ".4g", 1e6), *_LIMIT),
)
SOLVES = (
    *(Column("mesh", "mesh"), Column("level", "level"), Column("p", "order")),
    *(Column("dofs", "dofs"), Column("with", "preconditioner"), Column("iterations", "iterations")),
    *(Column("setup s", "seconds_setup", ".3g"), Column("solve s", "seconds_solve", ".3g")),
    *(Column("solve", "solve_applications", ".3g"), Column("faster", "faster_than_jacobi", ".3g")),
)
PRODUCTS = (
    *(Column("type", "dtype"), Column("n", "n"), Column("members", "members")),
    *(Column("library", "implementation"), Column("layout", "layout")),
    *(Column("us", "seconds", ".4g", 1e6), Column("GFlop/s", "gflops", ".3g")),
    *(Column("limit", "limit_gflops", ".3g"), Column("of it", "fraction_of_limit", ".0%")),
    *(Column("bound", "bound"), Column("/ cuBLAS", "over_best_peer", ".3g")),
    Column("off by", "off_peer", ".1e"),
)
GAS = (
    *(Column("p", "order"), Column("elements", "elements"), Column("dofs", "dofs")),
    Column("forces us", "seconds_forces", ".4g", 1e6),
    Column("step us", "seconds_step", ".4g", 1e6),
    Column("Gpoints/s", "forces_points_per_second", ".3g", 1e-9),
    Column("off by", "off_cpu", ".1e"),
)
VECTORS = (
    *(Column("problem", "problem"), Column("p", "order"), Column("dofs", "dofs")),
    *(Column("vectors", "nvec"), Column("width", "width")),
    *(Column("us", "seconds_median", ".4g", 1e6), *_LIMIT),
    *(Column("/ one by one", "over_one_by_one", ".3g"), Column("off by", "off_one", ".1e")),
)
SHAPES = (
    *(*_CASE, Column("level", "level"), Column("p", "order"), Column("elements", "elements")),
    *(Column("blocks", "blocks"), Column("staged", "staged"), Column("persistent", "persistent")),
    Column("us", "seconds", ".4g", 1e6),
    *(Column("before", "seconds_before", ".4g", 1e6), Column("tried", "tried")),
)


def _show(output: Output, result: Result) -> None:
    """Print tables, then what is missing."""
    _show_device(output, result)
    if "table" not in result:
        _show_measured(output, result)
    output.records("Launch shapes", SHAPES, result["shapes"])
    if "table" in result:
        output.say(f"written to {result['table']}")
    _show_failures(output, result)


def _show_device(output: Output, result: Result) -> None:
    device = result["device"]
    output.say(f"{device['name']} ({device['arch']}), {device['processors']} multiprocessors")


def _show_failures(output: Output, result: Result) -> None:
    for failure in result["failures"]:
        output.say(f"failed: {failure['what']}: {failure['message']}")


def _show_measured(output: Output, result: Result) -> None:
    title = "Results beside the CPU's, relative to the largest entry"
    output.records(title, FORMS, result["validation"])
    if not result["agrees"]:
        output.say("results differ by more than round-off: see above")
    for when, rates in (("", result["rates"]), ("at the end ", result["rates_after"])):
        if rates is not None:
            output.say(
                f"{when}copy {quantity(rates['copied_bytes'], 'B/s')}, "
                f"read {quantity(rates['read_bytes'], 'B/s')}, "
                f"shared memory {quantity(rates['shared_bytes'], 'B/s')}, "
                f"multiply-adds {quantity(rates['flops'], 'Flop/s')}, "
                f"atomics {quantity(rates['atomics'], '/s')}"
            )
    output.records("One application; * the better level", ROWS, result["rows"])
    output.records("One iteration", CG, result["cg"])
    title = "Setup and solve in seconds, and the solve in products with the operator"
    output.records(title, SOLVES, result["solves"])
    _show_products(output, result)
    output.records("Gas dynamics: the forces, and a step of four stages", GAS, result["gas"])
    output.records("Many vectors at once", VECTORS, result["vectors"])


def show_device_products(output: Output, result: Result) -> None:
    """Print the device, its products of small matrices, and what failed."""
    _show_device(output, result)
    _show_products(output, result)
    _show_failures(output, result)


def _show_products(output: Output, result: Result) -> None:
    output.records("C = A B, in batches", PRODUCTS, result["products"])
    if result["products_over_best_peer"]:
        output.say(f"{result['products_over_best_peer']:.3g} times cuBLAS on average")
