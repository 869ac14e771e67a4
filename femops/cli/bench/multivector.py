"""Command ``femops bench multivector``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from femops.cli.bench.report import Measure, MeshesOption, OrdersOption, RoundsOption, benchmark
from femops.cli.options import COUNT, ThreadsOption, name_list, number_list, option
from femops.cli.output import Column, columns

_COUNTS = number_list("Numbers of vectors: 100 or 1,10,100.", "numbers of vectors", "--vectors")
_WIDTHS = number_list("Vectors of a panel.", "widths of panels", "--width")


def _method(row: dict[str, Any]) -> str:
    return str(row["method"]) + (f" of {row['width']}" if row["width"] else "")


COLUMNS = (
    *columns("problem; mesh; p: order; dofs; vectors: nvec"),
    Column("method", _method),
    *columns("ms: seconds_median .4g 1e3; Mdofs/s: dofs_per_second .4g 1e-6"),
    *columns("of multiply-adds: fraction_of_fma_peak .0%"),
    *columns("/ cell matrices: over_cell_matrices .3g; / one by one: over_one_by_one .3g"),
)
_METHODS = "columns,panels,cell-matrices,one-by-one"


@benchmark("many vectors", ("Many vectors", "rows", COLUMNS), picture="multivector")
def multivector(
    order: OrdersOption = "7,8",
    problem: Annotated[Any, name_list("Of mass, laplacian, helmholtz, hamiltonian.")] = "mass",
    mesh: MeshesOption = "multilinear",
    vectors: Annotated[Any, _COUNTS] = "100",
    width: Annotated[Any, _WIDTHS] = "16",
    method: Annotated[Any, name_list("Of columns, panels, cell-matrices, one-by-one.")] = _METHODS,
    cells: Annotated[int, option(COUNT, "N", "About how many elements.")] = 27,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 5,
) -> Measure:
    """Measure operators on many vectors at once, beside matrices of elements and single vectors.

    \b
    Examples:
      femops bench multivector
      femops bench multivector --vectors 8,16,64,100,256,1024 --plot vectors.png
      femops bench multivector --width 8,16,32,64,100 --method panels,columns --plot widths.png
      femops bench multivector --cells 27000 --order 4 --method columns,one-by-one
    """
    from femops.bench.multivector import run_multivector

    methods = [name.replace("-", " ") for name in method]
    often: dict[str, Any] = {"cells": cells, "threads": threads or 1, "rounds": rounds}
    return partial(run_multivector, problem, mesh, methods, order, vectors, width, **often)
