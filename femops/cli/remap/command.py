"""Command ``femops remap``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from femops.cli.options import (
    COUNT,
    NATURAL,
    POSITIVE,
    JsonOption,
    RefineOption,
    ThreadsOption,
    given_options,
    option,
    paragraphs,
    refuse,
    set_threads,
)
from femops.cli.output import Output, one_line_warnings
from femops.cli.remap.run import run_problem
from femops.cli.remap.verify import verify_runs

_WHAT = (
    "0 (a bump) or 5 (shapes with jumps) on a fixed mesh, 10 (a bump) or 14 (a slotted disc) under "
    "a mesh that moves; with --verify the numbers of published runs, all if there are none."
)
_MESH = (
    "A mesh file, a box (8x8), or a mesh of Remhos: periodic-square, periodic-hexagon, "
    "periodic-cube, inline-quad, cube01_hex."
)
_HIGH = "High order: 1 Jacobi's iteration, 3 exact inverse of the mass, 0 none."
_LOW = (
    "Low order: 1 discrete upwind, 2 preconditioned, 3 residual distribution, 4 in subcells, "
    "0 none."
)
_LIMITER = "Limiter: 2 clip and scale, 0 none."
_VERIFY = "Repeat Remhos' published runs."


@paragraphs
def remap(
    context: typer.Context,
    what: Annotated[list[str] | None, typer.Argument(metavar="PROBLEM", help=_WHAT)] = None,
    mesh: Annotated[str | None, option(None, "MESH", _MESH)] = None,
    refine: RefineOption = 2,
    order: Annotated[int, option(COUNT, "N", "Degree of the function.")] = 3,
    mesh_order: Annotated[int, option(COUNT, "N", "Degree of the mesh.")] = 2,
    t_final: Annotated[float, option(POSITIVE, "T", "End of the motion.")] = 1.0,
    dt: Annotated[float, option(POSITIVE, "DT", "Length of a step.")] = 0.002,
    ho: Annotated[int, option(NATURAL, "N", _HIGH, "--ho", "-ho")] = 1,
    lo: Annotated[int, option(NATURAL, "N", _LOW, "--lo", "-lo")] = 4,
    fct: Annotated[int, option(NATURAL, "N", _LIMITER, "--fct", "-fct")] = 2,
    verify: Annotated[bool, typer.Option("--verify", help=_VERIFY)] = False,
    picture: Annotated[
        Path | None, option(None, "FILE.png", "Draw the function at the end.")
    ] = None,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Advect a discontinuous function, with its mass and its bounds kept.

    Advects on a fixed mesh, or from a mesh to its moved nodes (remap). The methods are those of
    CEED's proxy Remhos, and the options have the same names. With --verify the command repeats
    published results of Remhos.

    \b
    Examples:
      femops remap 5 --mesh periodic-square --refine 3 --t-final 0.8
      femops remap 14 --mesh inline-quad -ho 3 -lo 2 --picture disc.png
      femops remap --verify 5 9
    """
    given = dict(locals())
    if verify:
        others = given_options(context) - {"what", "verify", "threads", "json"}
        refuse(others, "--verify does not take it")
    output = Output(json)
    with one_line_warnings():
        set_threads(threads)
        if verify:
            verify_runs(output, what or [])
        else:
            run_problem(output, what or [], given)
