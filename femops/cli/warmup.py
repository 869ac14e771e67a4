"""``femops warmup``."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from femops.cli.options import ThreadsOption, numbers, paragraphs, set_threads
from femops.cli.output import Output, one_line_warnings


@paragraphs
def warmup(
    order: Annotated[str, typer.Option(help="Polynomial degrees: 4, 1-8 or 2,4,6.")] = "1-4",
    dim: Annotated[str, typer.Option(help="Dimensions: 3, 1-3 or 2,3.")] = "2,3",
    threads: ThreadsOption = None,
) -> None:
    """Compile kernels before they are needed.

    Those of mass, diffusion and the solver. They are kept on disk, for this machine and this
    version of femops.

    \b
    Examples:
      femops warmup
      femops warmup --order 1-8 --dim 3
    """  # noqa: D301  (\b is click's mark for lines to keep)
    orders, dims = numbers(order), numbers(dim)
    if max(dims) > 3:
        raise typer.BadParameter(f"--dim {dim}: dimensions are 1 to 3")
    output = Output()
    begin = perf_counter()
    with one_line_warnings():
        set_threads(threads)
        for d in dims:
            for p in orders:
                with output.working(f"{d}-D, order {p}"):
                    _compile(d, p)
    count = 2 * len(orders) * len(dims)
    output.say(f"{count} operators are ready after {perf_counter() - begin:.1f} s")


def _compile(dim: int, order: int) -> None:
    import femops

    V = femops.H1(femops.box((2,) * dim), order)
    for A in (femops.mass(V), femops.diffusion(V).constrained(V.boundary_dofs())):
        femops.cg(A, A.rhs(femops.load(V, 1.0)), M=femops.jacobi(A), maxiter=1)
