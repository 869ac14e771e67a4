"""Command ``femops bench eigen``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from femops.cli.bench.report import Measure, RoundsOption, benchmark
from femops.cli.options import COUNT, POSITIVE, OrderOption, ThreadsOption, name_list, option
from femops.cli.output import columns

_SHELLS = "Eigenpairs; whole shells are 1, 4, 10, 20, 35, 56."
_METHODS = "chebyshev,lobpcg,lobpcg-one-by-one"

COLUMNS = columns(
    "method; dofs; states; processor s: processor_seconds .3g; s: seconds .3g; "
    "times as long: times_as_long .2f; residual: residual .1e; error: error .1e; converged"
)


@benchmark("eigenpairs", ("Lowest states of an oscillator", "rows", COLUMNS))
def eigen(
    order: OrderOption = 8,
    elements: Annotated[int, option(COUNT, "N", "Elements in each direction.")] = 4,
    states: Annotated[int, option(COUNT, "N", _SHELLS)] = 35,
    tol: Annotated[float, option(POSITIVE, "X", "Residual over the energy.")] = 1e-5,
    method: Annotated[Any, name_list("Of chebyshev, lobpcg, lobpcg-one-by-one.")] = _METHODS,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 1,
) -> Measure:
    """Measure the eigensolver on a quantum oscillator, beside SciPy's LOBPCG.

    Both solvers stop at the same residual. Ask for whole shells of states, because LOBPCG is slow
    if the next eigenvalue is close.

    \b
    Examples:
      femops bench eigen
      femops bench eigen --order 6 --elements 5 --states 20
    """
    from femops.bench.solvers.eigen import run_eigen

    methods = [name.replace("-", " ") for name in method]
    often: dict[str, Any] = {"threads": threads or 1, "rounds": rounds}
    return partial(run_eigen, order, elements, states, tol, methods, **often)
