"""``femops hydro``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from femops.cli.options import (
    JsonOption,
    RefineOption,
    ReproducibleOption,
    ThreadsOption,
    number,
    paragraphs,
    positive,
    set_threads,
    share_mesh,
    whole_number,
)
from femops.cli.output import Column, Output, one_line_warnings

if TYPE_CHECKING:
    from femops.hydro import Lagrangian, Simulation

_PROGRESS_SECONDS = 0.1


@final
class Ode(StrEnum):
    """Integrators in time."""

    EULER = "euler"
    RK2 = "rk2"
    RK3 = "rk3"
    RK4 = "rk4"
    RK6 = "rk6"
    RK2AVG = "rk2avg"


def _option(reader: Any, metavar: str, text: str) -> Any:
    return typer.Option(parser=reader, metavar=metavar, help=text)


@paragraphs
def hydro(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="PROBLEM",
            help="taylor-green, sedov, sod, triple-point, gresho, riemann-12, riemann-6 or "
            "rayleigh-taylor; with --verify the numbers of reference runs, all if there are none.",
        ),
    ] = [],  # noqa: B006  (typer needs a list)
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
        int, _option(whole_number(1), "K", "Degree of position and velocity.")
    ] = 2,
    order_thermo: Annotated[int, _option(whole_number(0), "M", "Degree of the energy.")] = 1,
    t_final: Annotated[
        float | None, _option(positive, "T", "End; that of the problem if omitted.")
    ] = None,
    ode: Annotated[
        Ode | None,
        typer.Option(help="Integrator; rk4, or the checkpoint's. rk2avg conserves the energy."),
    ] = None,
    cfl: Annotated[float, _option(positive, "C", "Part of the largest time step.")] = 0.5,
    cg_tol: Annotated[
        float, _option(number(0.0, 1.0), "R", "Relative tolerance of velocity solves.")
    ] = 1e-8,
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
    every: Annotated[int, _option(whole_number(1), "N", "Steps between those of the series.")] = 50,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the density at the end.")
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
        typer.Option(metavar="FILE.state", help="Go on from a checkpoint, to the same bits."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Repeat Laghos' reference runs.")
    ] = False,
    fom: Annotated[bool, typer.Option("--fom", help="Print Laghos' figures of merit too.")] = False,
    threads: ThreadsOption = None,
    reproducible: ReproducibleOption = False,
    json: JsonOption = False,
) -> None:
    """Run a problem of gas dynamics on a mesh that moves with the gas.

    The compressible Euler equations in a Lagrangian frame, on curved elements of high order: the
    method of Dobrev, Kolev and Rieben (2012), as in LLNL's proxy Laghos, whose published results
    --verify repeats.

    \b
    Examples:
      femops hydro sedov --dim 3 --save sedov.pvd
      femops hydro triple-point --refine 3 --picture triple.png
      femops hydro sedov --checkpoint run.state --checkpoint-every 50
      femops hydro --verify 1 3 5
    """  # noqa: D301  (\b is click's mark for lines to keep)
    output = Output(json)
    given = {
        "blast": blast,
        "cfl": cfl,
        "cg_tol": cg_tol,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "dim": dim,
        "every": every,
        "fom": fom,
        "max_steps": max_steps,
        "mesh": mesh,
        "ode": ode and ode.value,
        "order_kinematic": order_kinematic,
        "order_thermo": order_thermo,
        "picture": picture,
        "refine": refine,
        "reproducible": reproducible,
        "restart": restart,
        "save": save,
        "t_final": t_final,
        "viscosity": viscosity,
    }
    with one_line_warnings():
        set_threads(threads)
        if verify:
            _verify(output, what, cg_tol)
            return
        _run(output, what, given)


def _verify(output: Output, what: list[str], cg_tol: float) -> None:
    from femops.errors import HydroError
    from femops.hydro import RUNS
    from femops.hydro import verify as verified

    numbers = [whole_number(1)(text) for text in what] or list(RUNS)
    results = []
    for n in numbers:
        with output.working(f"run {n}") as update:
            begin = perf_counter()
            found = verified(n, cg_tol, _teller(update, f"run {n}"))
            results.append(found | {"seconds": perf_counter() - begin})
    output.json(results)
    columns = [
        Column("run", "run"),
        Column("problem", "problem"),
        Column("steps", "steps"),
        Column("Laghos", "steps_laghos"),
        Column("dt", "dt", ".6f"),
        Column("Laghos", "dt_laghos", ".6f"),
        Column("|e|", "e_norm", ".10e"),
        Column("Laghos", "e_norm_laghos", ".10e"),
        Column("seconds", "seconds", ".1f"),
    ]
    output.records("Laghos' reference runs", columns, results)
    off = [r["run"] for r in results if not _agrees(r)]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _agrees(result: dict[str, Any]) -> bool:
    same_steps: bool = result["steps"] == result["steps_laghos"]
    return (
        same_steps
        and abs(result["dt"] - result["dt_laghos"]) < 6e-7
        and (result["relative"] < 1e-7)
    )


def _teller(update: Any, what: str) -> Any:
    """Return a function that tells of steps on a terminal, some times a second; else None."""
    if not sys.stderr.isatty():
        return None
    last = [0.0]

    def tell(run: Simulation) -> None:
        now = perf_counter()
        if now - last[0] > _PROGRESS_SECONDS:
            last[0] = now
            update(
                f"{what}: step {run.steps}, t = {run.t:.4f}, dt = {run.dt:.2e}, "
                f"|e| = {run.e_norm:.6e}"
            )

    return tell


def _run(output: Output, what: list[str], given: dict[str, Any]) -> None:
    from femops.errors import HydroError
    from femops.hydro import Clock, Simulation, load_run

    if len(what) != 1:
        raise typer.BadParameter("give one problem, or --verify", param_hint="PROBLEM")
    equations = _equations(what[0], given)
    begin = perf_counter()
    if given["restart"] is None:
        run = Simulation.begin(equations, given["ode"] or "rk4")
    else:
        run = load_run(given["restart"], equations)
        run.ode = given["ode"] or run.ode
    equations.acceleration(equations.forces(run.state))  # compiles what is not compiled yet
    compile_seconds = perf_counter() - begin
    energy, equations.clock = equations.total_energy(run.state), Clock()
    t_final = given["t_final"] or equations.problem.t_final
    begin = perf_counter()
    try:
        with output.working(what[0]) as update:
            run.run(t_final, given["max_steps"], _watch(run, given, _teller(update, what[0])))
    except HydroError:
        output.say(f"saved the last good state: {_save_last(run, given)}")
        raise
    seconds = perf_counter() - begin
    _finish(output, run, given)
    _report(output, run, given, energy, (seconds, compile_seconds))


def _equations(name: str, given: dict[str, Any]) -> Lagrangian:
    from femops.hydro import MESHES, Lagrangian, built_in, problem
    from femops.parallel import distribute, world

    case = problem(name, blast=given["blast"], viscosity=given["viscosity"])
    dim = given["dim"] or (2 if 2 in case.mesh else min(case.mesh))
    named = given["mesh"] or case.mesh.get(dim, "")
    comm = world()
    if named in MESHES:
        mesh: Any = built_in(named).refine(given["refine"])
        if comm.size > 1 or given["reproducible"]:
            mesh = distribute(
                mesh if comm.rank == 0 else None, comm, reproducible=given["reproducible"]
            )
    elif given["mesh"]:
        reproducible = given["reproducible"]
        mesh = share_mesh(given["mesh"], given["refine"], comm, reproducible=reproducible)
    else:
        dims = ", ".join(map(str, case.mesh))
        raise typer.BadParameter(f"{name} is a problem of dimension {dims}", param_hint="--dim")
    orders = given["order_kinematic"], given["order_thermo"]
    return Lagrangian(case, mesh, *orders, cfl=given["cfl"], cg_tol=given["cg_tol"])


def _watch(run: Simulation, given: dict[str, Any], tell: Any) -> Any:
    """Return a function that is called after each step: it writes files."""
    import femops
    from femops.hydro import Snapshot, save_run

    series = None
    if given["save"] is not None:
        series = femops.TimeSeries(
            given["save"], existing="continue" if given["restart"] else "replace"
        )
        given["series"] = series
        if not series.times or series.times[-1] < run.t:
            Snapshot.of(run).save(series, run.t)

    def watch(run: Simulation) -> None:
        if tell is not None:
            tell(run)
        if series is not None and run.steps % given["every"] == 0:
            Snapshot.of(run).save(series, run.t)
        if given["checkpoint"] is not None and run.steps % given["checkpoint_every"] == 0:
            save_run(given["checkpoint"], run)

    return watch


def _save_last(run: Simulation, given: dict[str, Any]) -> Path:
    from femops.hydro import save_run

    default = Path(f"{run.equations.problem.name}-last.state")
    return save_run(given["checkpoint"] or default, run)


def _finish(output: Output, run: Simulation, given: dict[str, Any]) -> None:
    """Files of the end."""
    import femops
    from femops.hydro import Snapshot, save_run

    series = given.get("series")
    if series is not None:
        if series.times[-1] < run.t:
            Snapshot.of(run).save(series, run.t)
        series.close()
        output.say(f"wrote {series.path}, {len(series.times)} steps")
    if given["checkpoint"] is not None:
        output.say(f"wrote {save_run(given['checkpoint'], run)}")
    if given["picture"] is not None:
        density = Snapshot.of(run).density
        drawn = femops.picture(given["picture"], density.space, density.vector, name="density")
        output.say(f"wrote {drawn}")


def _report(
    output: Output,
    run: Simulation,
    given: dict[str, Any],
    energy: float,
    seconds: tuple[float, float],
) -> None:
    from femops.hydro import rates

    equations = run.equations
    facts: dict[str, Any] = {
        "problem": equations.problem.name,
        "elements": equations.mesh.num_elements,
        "steps": run.steps,
        "t": run.t,
        "dt": run.dt,
        "e_norm": run.e_norm,
        "energy_change": equations.total_energy(run.state) - energy,
        "seconds": seconds[0],
        "compile_seconds": seconds[1],
    }
    output.json(facts | {"rates": rates(equations)})
    shown = [(name.replace("_", " "), _text(value)) for name, value in facts.items()]
    output.facts(f"Gas dynamics: {equations.problem.name} {equations.mesh.dim}-D", shown)
    if given["fom"]:
        names = {
            "cg_h1": "CG (H1), megadofs x iterations / s",
            "cg_l2": "CG (L2), megadofs x solves / s",
            "forces": "Forces, megadofs x stages / s",
            "update_quad_data": "UpdateQuadData, megaquads x stages / s",
            "total": "total",
        }
        rows = [(names[name], f"{value:.3g}") for name, value in rates(equations).items()]
        output.facts("Figures of merit", rows)


def _text(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
