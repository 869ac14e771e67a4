"""Command ``femops remap``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.options import (
    JsonOption,
    RefineOption,
    ThreadsOption,
    given_options,
    paragraphs,
    positive,
    refuse,
    set_threads,
    whole_number,
)
from femops.cli.output import Output, one_line_warnings
from femops.cli.remap.run import run_problem
from femops.cli.remap.verify import verify_runs


def _option(reader: Any, metavar: str, text: str, *names: str) -> Any:
    return typer.Option(*names, parser=reader, metavar=metavar, help=text)


@paragraphs
def remap(
    context: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEM",
            help="0 (a bump) or 5 (shapes with jumps) on a fixed mesh, 10 (a bump) or 14 (a "
            "slotted disc) under a mesh that moves; with --verify the numbers of published runs, "
            "all if there are none.",
        ),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="MESH",
            help="A mesh file, a box (8x8), or a mesh of Remhos: periodic-square, "
            "periodic-hexagon, periodic-cube, inline-quad, cube01_hex.",
        ),
    ] = None,
    refine: RefineOption = 2,
    order: Annotated[int, _option(whole_number(1), "N", "Degree of the function.")] = 3,
    mesh_order: Annotated[int, _option(whole_number(1), "N", "Degree of the mesh.")] = 2,
    t_final: Annotated[float, _option(positive, "T", "End of the motion.")] = 1.0,
    dt: Annotated[float, _option(positive, "DT", "Length of a step.")] = 0.002,
    ho: Annotated[
        int,
        _option(
            whole_number(0),
            "N",
            "High order: 1 Jacobi's iteration, 3 exact inverse of the mass, 0 none.",
            "--ho",
            "-ho",
        ),
    ] = 1,
    lo: Annotated[
        int,
        _option(
            whole_number(0),
            "N",
            "Low order: 1 discrete upwind, 2 preconditioned, 3 residual distribution, 4 in "
            "subcells, 0 none.",
            "--lo",
            "-lo",
        ),
    ] = 4,
    fct: Annotated[
        int, _option(whole_number(0), "N", "Limiter: 2 clip and scale, 0 none.", "--fct", "-fct")
    ] = 2,
    verify: Annotated[
        bool, typer.Option("--verify", help="Repeat Remhos' published runs.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the function at the end.")
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
    """  # noqa: D301  (\b is click's mark for lines to keep)
    output = Output(json)
    given = {
        "mesh": mesh,
        "refine": refine,
        "order": order,
        "mesh_order": mesh_order,
        "t_final": t_final,
        "dt": dt,
        "methods": {"ho": ho, "lo": lo, "fct": fct},
        "picture": picture,
    }
    if verify:
        others = given_options(context) - {"what", "verify", "threads", "json"}
        refuse(others, "--verify does not take it")
    with one_line_warnings():
        set_threads(threads)
        if verify:
            verify_runs(output, what or [])
        else:
            run_problem(output, what or [], given)
