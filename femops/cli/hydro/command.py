"""Command ``femops hydro``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from femops.cli.hydro.run import run_problem
from femops.cli.hydro.verify import verify_runs
from femops.cli.options import (
    COUNT,
    NATURAL,
    POSITIVE,
    DeviceOption,
    JsonOption,
    RefineOption,
    ReproducibleOption,
    ThreadsOption,
    given_options,
    number,
    option,
    paragraphs,
    refuse,
    set_threads,
)
from femops.cli.output import Output, one_line_warnings

Ode = StrEnum("Ode", ["EULER", "RK2", "RK3", "RK4", "RK6", "RK2AVG"])
Ode.__doc__ = "Integrators in time."
Assembly = StrEnum("Assembly", ["PARTIAL", "FULL"])
Assembly.__doc__ = "Levels of the force."

_WHAT = (
    "taylor-green, sedov, sod, triple-point, gresho, riemann-12, riemann-6 or rayleigh-taylor; "
    "with --restart that of the checkpoint if omitted; with --verify the numbers of reference "
    "runs, all if there are none."
)
_MESH = (
    "A mesh file, or a built-in mesh (square01_quad); the problem's if omitted. Boundary "
    "attributes 1, 2, 3 are walls across x, y, z."
)
_FORCE = "The force applied from the stress at points (partial, if omitted), or kept as matrices."
_CG = "Relative tolerance of velocity solves; 1e-8 if omitted."
_ALL = "Steps between those of the series and of the movie."
_PICTURE = "Draw the density at the end, and the velocity into FILE-velocity.png."
_RESTART = (
    "Go on from a checkpoint, to the same bits. Options that are omitted are the checkpoint's, but "
    "for the mesh's, --max-steps, --device and --threads; the command says what has changed."
)
_ALE = "Relax the mesh and remap the fields every N steps, and when the mesh is bad; 0: never."
_LENGTH = "Length in elements over which a relaxation smooths; 1 if omitted."
_QUALITY = "Quality below which the mesh is bad; 0.1 if omitted. That of cubes is 1."
_ODE = "Integrator; rk4 if omitted. rk2avg conserves the energy."
_SPACE = "Degree of position and velocity; 2 if omitted."
_VISCOSITY = "Artificial viscosity, whatever the problem has."

_NEED = {("save", "movie"): {"every"}, ("checkpoint",): {"checkpoint_every"}}
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
    what: Annotated[list[str] | None, typer.Argument(metavar="PROBLEM", help=_WHAT)] = None,
    dim: Annotated[int | None, option(COUNT, "D", "Dimension; 2 if the problem has it.")] = None,
    mesh: Annotated[str | None, option(None, "MESH", _MESH)] = None,
    refine: RefineOption = 2,
    order_kinematic: Annotated[int | None, option(COUNT, "K", _SPACE)] = None,
    order_thermo: Annotated[
        int | None, option(NATURAL, "M", "Degree of the energy; 1 if omitted.")
    ] = None,
    t_final: Annotated[
        float | None, option(POSITIVE, "T", "End; that of the problem if omitted.")
    ] = None,
    ode: Annotated[Ode | None, typer.Option(help=_ODE)] = None,
    assembly: Annotated[Assembly | None, typer.Option(help=_FORCE)] = None,
    cfl: Annotated[
        float | None, option(POSITIVE, "C", "Part of the largest time step; 0.5 if omitted.")
    ] = None,
    cg_tol: Annotated[float | None, option(number(0.0, 1.0), "R", _CG)] = None,
    blast: Annotated[
        float | None, option(POSITIVE, "E", "Energy of sedov's blast, in the whole space.")
    ] = None,
    viscosity: Annotated[bool | None, typer.Option(help=_VISCOSITY)] = None,
    max_steps: Annotated[int | None, option(COUNT, "N", "Most steps in all.")] = None,
    save: Annotated[Path | None, option(None, "FILE.pvd", "Write a series for ParaView.")] = None,
    movie: Annotated[Path | None, option(None, "FILE.gif", "Draw the density in time.")] = None,
    every: Annotated[int, option(COUNT, "N", _ALL)] = 50,
    picture: Annotated[Path | None, option(None, "FILE.png", _PICTURE)] = None,
    checkpoint: Annotated[
        Path | None, option(None, "FILE.state", "Write the state there, at the end too.")
    ] = None,
    checkpoint_every: Annotated[int, option(COUNT, "N", "Steps between checkpoints.")] = 100,
    restart: Annotated[Path | None, option(None, "FILE.state", _RESTART)] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Repeat Laghos' reference runs.")
    ] = False,
    fom: Annotated[bool, typer.Option("--fom", help="Print Laghos' figures of merit too.")] = False,
    ale: Annotated[int | None, option(NATURAL, "N", _ALE)] = None,
    ale_length: Annotated[float | None, option(number(1e-6, 1e6), "L", _LENGTH)] = None,
    ale_quality: Annotated[float | None, option(number(1e-6, 1.0), "Q", _QUALITY)] = None,
    device: DeviceOption = None,
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
    """
    given = {
        name: value.value if isinstance(value, StrEnum) else value
        for name, value in sorted(locals().items())
        if name not in ("context", "json", "threads", "verify", "what")
    }
    given["reproducible"] = reproducible or None
    output = Output(json)
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
