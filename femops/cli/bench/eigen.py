"""``femops bench eigen``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from femops.cli.bench.report import Progress, Result, RoundsOption, report
from femops.cli.options import JsonOption, OrderOption, ThreadsOption, names, positive, whole_number
from femops.cli.output import Column, Output

_Count = whole_number(1)


def eigen(
    order: OrderOption = 8,
    elements: Annotated[
        int, typer.Option(parser=_Count, metavar="N", help="Elements in each direction.")
    ] = 4,
    states: Annotated[
        int,
        typer.Option(
            parser=_Count, metavar="N", help="Eigenpairs; whole shells are 1, 4, 10, 20, 35, 56."
        ),
    ] = 35,
    tol: Annotated[
        float, typer.Option(parser=positive, metavar="X", help="Residual over the energy.")
    ] = 1e-5,
    method: Annotated[
        str, typer.Option(metavar="NAMES", help="Of chebyshev, lobpcg, lobpcg-one-by-one.")
    ] = "chebyshev,lobpcg,lobpcg-one-by-one",
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 1,
    json: JsonOption = False,
) -> None:
    """Measure the eigensolver on a quantum oscillator, beside SciPy's LOBPCG.

    Both go on to the same residual. Take whole shells of states: LOBPCG is slow where the next
    eigenvalue is close.

    \b
    Examples:
      femops bench eigen
      femops bench eigen --order 6 --elements 5 --states 20
    """  # noqa: D301  (\b is click's mark for lines to keep)
    given: dict[str, Any] = {
        "methods": [name.replace("-", " ") for name in names(method)],
        "order": order,
        "elements": elements,
        "states": states,
        "tol": tol,
    }

    def measure(progress: Progress) -> Result:
        from femops.bench.solvers.eigen import Settings, run_eigen

        return run_eigen(Settings(**given, threads=threads or 1, rounds=rounds), progress)

    report("eigenpairs", measure, _show, json=json)


COLUMNS = (
    *(Column("method", "method"), Column("dofs", "dofs"), Column("states", "states")),
    Column("processor s", "processor_seconds", ".3g"),
    Column("s", "seconds", ".3g"),
    Column("times as long", "times_as_long", ".2f"),
    Column("residual", "residual", ".1e"),
    Column("error", "error", ".1e"),
    Column("converged", "converged"),
)


def _show(output: Output, result: Result) -> None:
    output.records("Lowest states of an oscillator", COLUMNS, result["rows"])
