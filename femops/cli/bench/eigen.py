"""Command ``femops bench eigen``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from femops.cli.bench.report import Progress, Result, RoundsOption, report
from femops.cli.options import (
    JsonOption,
    OrderOption,
    ThreadsOption,
    name_list,
    positive,
    whole_number,
)
from femops.cli.output import columns

_Count = whole_number(1)
_SHELLS = "Eigenpairs; whole shells are 1, 4, 10, 20, 35, 56."

COLUMNS = columns(
    "method; dofs; states; processor s: processor_seconds .3g; s: seconds .3g; "
    "times as long: times_as_long .2f; residual: residual .1e; error: error .1e; converged"
)


def eigen(
    order: OrderOption = 8,
    elements: Annotated[
        int, typer.Option(parser=_Count, metavar="N", help="Elements in each direction.")
    ] = 4,
    states: Annotated[int, typer.Option(parser=_Count, metavar="N", help=_SHELLS)] = 35,
    tol: Annotated[
        float, typer.Option(parser=positive, metavar="X", help="Residual over the energy.")
    ] = 1e-5,
    method: Annotated[
        Any, name_list("Of chebyshev, lobpcg, lobpcg-one-by-one.")
    ] = "chebyshev,lobpcg,lobpcg-one-by-one",
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 1,
    json: JsonOption = False,
) -> None:
    """Measure the eigensolver on a quantum oscillator, beside SciPy's LOBPCG.

    Both solvers stop at the same residual. Ask for whole shells of states, because LOBPCG is slow
    if the next eigenvalue is close.

    \b
    Examples:
      femops bench eigen
      femops bench eigen --order 6 --elements 5 --states 20
    """  # noqa: D301  (\b is click's mark for lines to keep)

    def measure(progress: Progress) -> Result:
        from femops.bench.solvers.eigen import run_eigen

        methods = [name.replace("-", " ") for name in method]
        often: dict[str, Any] = {"threads": threads or 1, "rounds": rounds, "progress": progress}
        return run_eigen(order, elements, states, tol, methods, **often)

    tables = (("Lowest states of an oscillator", "rows", COLUMNS),)
    report("eigenpairs", measure, tables, json=json)
