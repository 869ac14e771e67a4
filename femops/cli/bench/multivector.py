"""``femops bench multivector``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from femops.cli.bench.report import PlotOption, Progress, Result, RoundsOption, report
from femops.cli.options import JsonOption, ThreadsOption, names, numbers, whole_number
from femops.cli.output import Column, Output


def multivector(
    order: Annotated[
        str, typer.Option(metavar="LIST", help="Polynomial degrees: 8, 1-8 or 2,4,6.")
    ] = "7,8",
    problem: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Of mass, laplacian, helmholtz, hamiltonian."),
    ] = "mass",
    mesh: Annotated[
        str, typer.Option(metavar="NAMES", help="Of cartesian, multilinear, curved.")
    ] = "multilinear",
    vectors: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of vectors: 100 or 1,10,100.")
    ] = "100",
    width: Annotated[str, typer.Option(metavar="LIST", help="Vectors of a panel.")] = "16",
    method: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Of columns, panels, cell-matrices, one-by-one."),
    ] = "columns,panels,cell-matrices,one-by-one",
    cells: Annotated[
        int, typer.Option(parser=whole_number(1), metavar="N", help="About how many elements.")
    ] = 27,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
    plot: PlotOption = None,
    json: JsonOption = False,
) -> None:
    """Measure operators on many vectors at once, beside matrices of elements and single vectors.

    \b
    Examples:
      femops bench multivector
      femops bench multivector --vectors 8,16,64,100,256,1024 --plot vectors.png
      femops bench multivector --width 8,16,32,64,100 --method panels,columns --plot widths.png
      femops bench multivector --cells 27000 --order 4 --method columns,one-by-one
    """  # noqa: D301  (\b is click's mark for lines to keep)
    given: dict[str, Any] = {
        "orders": numbers(order, "orders"),
        "vectors": numbers(vectors, "numbers of vectors", option="--vectors"),
        "widths": numbers(width, "widths of panels", option="--width"),
        "forms": names(problem),
        "meshes": names(mesh),
        "methods": [name.replace("-", " ") for name in names(method)],
    }

    def measure(progress: Progress) -> Result:
        from femops.bench.multivector import Settings, run_multivector

        settings = Settings(**given, cells=cells, threads=threads or 1, rounds=rounds)
        return run_multivector(settings, progress)

    report("many vectors", measure, _show, _draw, plot=plot, json=json)


def _draw(path: str, result: Result) -> None:
    from femops.bench.drawing import draw_multivector

    draw_multivector(path, result["rows"])


def _method(row: dict[str, Any]) -> str:
    return str(row["method"]) + (f" of {row['width']}" if row["width"] else "")


COLUMNS = (
    *(Column("problem", "problem"), Column("mesh", "mesh"), Column("p", "order")),
    *(Column("dofs", "dofs"), Column("vectors", "nvec"), Column("method", _method)),
    Column("ms", "seconds_median", ".4g", 1e3),
    Column("Mdofs/s", "dofs_per_second", ".4g", 1e-6),
    Column("of multiply-adds", "fraction_of_fma_peak", ".0%"),
    Column("/ cell matrices", "over_cell_matrices", ".3g"),
    Column("/ one by one", "over_one_by_one", ".3g"),
)


def _show(output: Output, result: Result) -> None:
    """Print the table."""
    output.records("Many vectors", COLUMNS, result["rows"])
