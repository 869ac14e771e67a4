"""Command ``femops hydro``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, final

import typer

from femops.cli.hydro.run import run_problem
from femops.cli.hydro.verify import verify_runs
from femops.cli.options import (
    JsonOption,
    RefineOption,
    ReproducibleOption,
    ThreadsOption,
    given_options,
    number,
    paragraphs,
    positive,
    refuse,
    set_threads,
    whole_number,
)
from femops.cli.output import Output, one_line_warnings


@final
class Ode(StrEnum):
    """Integrators in time."""

    EULER = "euler"
    RK2 = "rk2"
    RK3 = "rk3"
    RK4 = "rk4"
    RK6 = "rk6"
    RK2AVG = "rk2avg"


@final
class Assembly(StrEnum):
    """Levels of the force."""

    PARTIAL = "partial"
    FULL = "full"


def _option(reader: Any, metavar: str, text: str) -> Any:
    return typer.Option(parser=reader, metavar=metavar, help=text)


_NEED = {
    ("save", "movie"): {"every"},
    ("checkpoint",): {"checkpoint_every"},
}
"""Options without effect unless one of others is given."""


def _refuse_idle(given: dict[str, Any], named: set[str]) -> None:
    """Refuse options on the command line that have no effect beside the other options."""
    for needed, idle in _NEED.items():
        if all(given[name] is None for name in needed):
            options = " or ".join(f"--{name}" for name in needed)
            refuse(named & idle, f"it has no effect without {options}")


@paragraphs
def hydro(
    context: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEM",
            help="taylor-green, sedov, sod, triple-point, gresho, riemann-12, riemann-6 or "
            "rayleigh-taylor; with --restart that of the checkpoint if omitted; with --verify the "
            "numbers of reference runs, all if there are none.",
        ),
    ] = None,
    dim: Annotated[
        int | None, _option(whole_number(1), "D", "Dimension; 2 if the problem has it.")
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="MESH",
            help="A mesh file, or a built-in mesh (square01_quad); the problem's if omitted. "
            "Boundary attributes 1, 2, 3 are walls across x, y, z.",
        ),
    ] = None,
    refine: RefineOption = 2,
    order_kinematic: Annotated[
        int | None, _option(whole_number(1), "K", "Degree of position and velocity; 2 if omitted.")
    ] = None,
    order_thermo: Annotated[
        int | None, _option(whole_number(0), "M", "Degree of the energy; 1 if omitted.")
    ] = None,
    t_final: Annotated[
        float | None, _option(positive, "T", "End; that of the problem if omitted.")
    ] = None,
    ode: Annotated[
        Ode | None,
        typer.Option(help="Integrator; rk4 if omitted. rk2avg conserves the energy."),
    ] = None,
    assembly: Annotated[
        Assembly | None,
        typer.Option(
            help="The force applied from the stress at points (partial, if omitted), or kept as "
            "matrices."
        ),
    ] = None,
    cfl: Annotated[
        float | None, _option(positive, "C", "Part of the largest time step; 0.5 if omitted.")
    ] = None,
    cg_tol: Annotated[
        float | None,
        _option(number(0.0, 1.0), "R", "Relative tolerance of velocity solves; 1e-8 if omitted."),
    ] = None,
    blast: Annotated[
        float | None, _option(positive, "E", "Energy of sedov's blast, in the whole space.")
    ] = None,
    viscosity: Annotated[
        bool | None, typer.Option(help="Artificial viscosity, whatever the problem has.")
    ] = None,
    max_steps: Annotated[int | None, _option(whole_number(1), "N", "Most steps in all.")] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.pvd", help="Write a series for ParaView.")
    ] = None,
    movie: Annotated[
        Path | None, typer.Option(metavar="FILE.gif", help="Draw the density in time.")
    ] = None,
    every: Annotated[
        int, _option(whole_number(1), "N", "Steps between those of the series and of the movie.")
    ] = 50,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="Draw the density at the end, and the velocity into FILE-velocity.png.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE.state", help="Write the state there, at the end too."),
    ] = None,
    checkpoint_every: Annotated[
        int, _option(whole_number(1), "N", "Steps between checkpoints.")
    ] = 100,
    restart: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.state",
            help="Go on from a checkpoint, to the same bits. Options that are omitted are the "
            "checkpoint's, but for the mesh's, --max-steps, --device and --threads; the command "
            "says what has changed.",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Repeat Laghos' reference runs.")
    ] = False,
    fom: Annotated[bool, typer.Option("--fom", help="Print Laghos' figures of merit too.")] = False,
    ale: Annotated[
        int | None,
        _option(
            whole_number(0),
            "N",
            "Relax the mesh and remap the fields every N steps, and when the mesh is bad; "
            "0: never.",
        ),
    ] = None,
    ale_length: Annotated[
        float | None,
        _option(positive, "L", "Length in elements over which a relaxation smooths; 1 if omitted."),
    ] = None,
    ale_quality: Annotated[
        float | None,
        _option(
            number(1e-6, 1.0),
            "Q",
            "Quality below which the mesh is bad; 0.1 if omitted. That of cubes is 1.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cuda: compute on a GPU.")
    ] = None,
    threads: ThreadsOption = None,
    reproducible: ReproducibleOption = False,
    json: JsonOption = False,
) -> None:
    """Run a problem of gas dynamics on a mesh that moves with the gas.

    Solves the compressible Euler equations in a Lagrangian frame, on curved elements of high order.
    The method is that of Dobrev, Kolev and Rieben (2012), and of LLNL's proxy Laghos. With --verify
    the command repeats published results of Laghos.

    \b
    Examples:
      femops hydro sedov --dim 3 --save sedov.pvd
      femops hydro triple-point --t-final 5 --ale 20
      femops hydro triple-point --refine 3 --picture triple.png --movie triple.gif
      femops hydro sedov --checkpoint run.state --checkpoint-every 50
      femops hydro --verify 1 3 5
    """  # noqa: D301  (\b is click's mark for lines to keep)
    output = Output(json)
    given = {
        "ale": ale,
        "ale_length": ale_length,
        "ale_quality": ale_quality,
        "assembly": assembly and assembly.value,
        "blast": blast,
        "cfl": cfl,
        "cg_tol": cg_tol,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "device": device,
        "dim": dim,
        "every": every,
        "fom": fom,
        "max_steps": max_steps,
        "mesh": mesh,
        "movie": movie,
        "ode": ode and ode.value,
        "order_kinematic": order_kinematic,
        "order_thermo": order_thermo,
        "picture": picture,
        "refine": refine,
        "reproducible": reproducible or None,
        "restart": restart,
        "save": save,
        "t_final": t_final,
        "viscosity": viscosity,
    }
    named = given_options(context)
    if verify:
        refuse(named - {"what", "verify", "cg_tol", "threads", "json"}, "--verify does not take it")
    _refuse_idle(given, named)
    with one_line_warnings():
        set_threads(threads)
        if verify:
            verify_runs(output, what or [], 1e-8 if cg_tol is None else cg_tol)
            return
        run_problem(output, what or [], given)
