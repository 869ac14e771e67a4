"""Command ``femops hydro PROBLEM``: a run, its files and its report."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import typer

from femops.cli.hydro.files import Files
from femops.cli.hydro.progress import teller
from femops.cli.options import refuse, share_mesh
from femops.cli.output import Output
from femops.cli.record import file_hashes, record_of

if TYPE_CHECKING:
    from femops.hydro import Lagrangian, Simulation


def run_problem(output: Output, what: list[str], given: dict[str, Any]) -> None:
    """Run a problem to its end, write files, and report."""
    from femops.errors import FemopsError, GeometryError, HydroError
    from femops.hydro import RUN, Simulation

    saved = _saved(given["restart"])
    name = _problem(what, saved)
    if saved.get("problem") != name:
        saved = {}  # load_run refuses the checkpoint of another problem
    options = _OPTIONS | saved | _given(given)
    if not options["ale"]:
        idle = {key for key in ("ale_length", "ale_quality") if given[key] is not None}
        refuse(idle, "it has no effect without --ale")
    equations = _equations(name, options)
    files = Files(given, equations.comm)
    hashes = file_hashes(restart=given["restart"])
    begin = perf_counter()
    changed: dict[str, Any] = {}
    if given["restart"] is None:
        run = Simulation.begin(equations, options["ode"])
    else:
        run, changed = _restarted(output, equations, options, saved)
    t_final = options["t_final"] or equations.problem.t_final
    run.options = {key: options[key] for key in RUN} | {"t_final": t_final}
    run.compile()
    compile_seconds = perf_counter() - begin
    energy = run.equations.total_energy(run.state)
    run.equations.reset_clock()
    begin = perf_counter()
    remaps: list[dict[str, Any]] = []
    advance = _advance(run, options, remaps)
    try:
        files.begin(run)
        before = run.steps
        with output.working(name) as update:
            tell = teller(update, name, equations.comm)
            advance(t_final, given["max_steps"], _watch(files, tell))
        seconds = perf_counter() - begin
        if run.steps == before:
            output.say(_no_step(run, t_final, given["max_steps"]))
        files.finish(output, run)
    except (HydroError, GeometryError):
        try:
            output.say(f"saved the last good state: {files.save_last(run)}")
        except FemopsError as error:
            output.say(f"the last good state is not saved: {error}")
        raise
    given = given | {"reproducible": options["reproducible"]}
    _report(output, run, given, changed, energy, (seconds, compile_seconds), hashes, remaps)


# Defaults of the options that checkpoints store.
_OPTIONS: dict[str, Any] = {
    "order_kinematic": 2,
    "order_thermo": 1,
    "blast": None,
    "viscosity": None,
    "cfl": 0.5,
    "cg_tol": 1e-8,
    "cg_max": 300,
    "assembly": "partial",
    "ode": "rk4",
    "ale": 0,
    "ale_length": None,
    "ale_quality": None,
    "t_final": None,
    "reproducible": False,
}


def _given(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the command. Omitted options are left out if `_OPTIONS` has their default."""
    return {key: value for key, value in given.items() if key not in _OPTIONS or value is not None}


def _problem(what: list[str], saved: dict[str, Any]) -> str:
    """Name of the problem: from the command, else from the checkpoint."""
    if not what and saved:
        return str(saved["problem"])
    if len(what) != 1:
        wrong = f"got {len(what)} problems: give one, or --restart or --verify"
        raise typer.BadParameter(wrong, param_hint="PROBLEM")
    return what[0]


def _saved(path: Path | None) -> dict[str, Any]:
    """Read the options of a checkpoint. Empty without a checkpoint. Collective."""
    from femops.hydro import run_options
    from femops.parallel import check, world

    if path is None:
        return {}
    with check(world()):
        options = run_options(path)
    return options | {"blast": options["blast"] or None}


def _no_step(run: Simulation, t_final: float, max_steps: int | None) -> str:
    """Message for a run that has reached its end before the first step."""
    end = f"the end is t = {t_final:.10g}: give a later --t-final"
    if run.t < t_final:
        end = f"the end is step {max_steps}: give a larger --max-steps"
    return f"no step was taken: the checkpoint is at step {run.steps}, t = {run.t:.10g}, and {end}"


def _restarted(
    output: Output, equations: Lagrangian, options: dict[str, Any], saved: dict[str, Any]
) -> tuple[Simulation, dict[str, Any]]:
    """Continue a run from a checkpoint. Print and return the options that have changed."""
    from femops.hydro import NUMERICS, RUN, load_run

    run, changed = load_run(options["restart"], equations), {}
    here = options | {"device": options["device"] and "cuda"}  # checkpoints name no GPU
    for key in ("ode", *NUMERICS, *RUN):
        now, before = here[key], saved[key]
        if now != before:
            changed[key] = {"checkpoint": before, "now": now}
            option = "--" + key.replace("_", "-")
            goes = f"goes on with {option} {now}" if now else f"goes on without {option}"
            output.say(f"{goes}; the checkpoint has {before or 'none'}")
    run.ode = options["ode"]
    return run, changed


def _advance(run: Simulation, options: dict[str, Any], remaps: list[dict[str, Any]]) -> Any:
    """Return the function that advances a run. With --ale it adds its remaps to a list."""
    if not options["ale"]:
        return run.run
    from femops.hydro.ale import ArbitraryLagrangianEulerian

    given = {"length": options["ale_length"], "least": options["ale_quality"]}
    named = {name: value for name, value in given.items() if value is not None}
    ale = ArbitraryLagrangianEulerian(run, options["ale"], **named)
    ale.remaps = remaps
    return ale.advance


def _watch(files: Files, tell: Any) -> Any:
    """Return the callback that reports progress and writes files after each step."""

    def watch(run: Simulation) -> None:
        if tell is not None:
            tell(run)
        files.after_step(run)

    return watch


def _equations(name: str, given: dict[str, Any]) -> Lagrangian:
    from femops.hydro import MESHES, Lagrangian, built_in, problem
    from femops.parallel import distribute, world

    case = problem(name, blast=given["blast"], viscosity=given["viscosity"])
    dim = given["dim"] or (2 if 2 in case.mesh else min(case.mesh))
    named = case.mesh.get(dim, "") if given["mesh"] is None else given["mesh"]
    comm = world()
    if named in MESHES:
        mesh: Any = built_in(named).refine(given["refine"])
        if comm.size > 1 or given["reproducible"]:
            mesh = distribute(
                mesh if comm.rank == 0 else None, comm, reproducible=given["reproducible"]
            )
    elif given["mesh"] is not None:
        reproducible = given["reproducible"]
        mesh = share_mesh(given["mesh"], given["refine"], comm, reproducible=reproducible)
    else:
        dims = ", ".join(map(str, case.mesh))
        raise typer.BadParameter(f"{name} is a problem of dimension {dims}", param_hint="--dim")
    if given["dim"] is not None and given["dim"] != mesh.dim:
        wrong = f"got {given['dim']}, but the mesh {named} has dimension {mesh.dim}: leave one out"
        raise typer.BadParameter(wrong, param_hint="--dim")
    orders = given["order_kinematic"], given["order_thermo"]
    options = {name: given[name] for name in ("cfl", "cg_tol", "cg_max", "assembly", "device")}
    return Lagrangian(case, mesh, *orders, **options)


def _report(
    output: Output,
    run: Simulation,
    given: dict[str, Any],
    changed: dict[str, Any],
    energy: float,
    seconds: tuple[float, float],
    hashes: dict[str, str],
    remaps: list[dict[str, Any]],
) -> None:
    from femops.fields.vector_hash import vector_hash
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
        "remaps": len(remaps),
        "seconds": seconds[0],
        "compile_seconds": seconds[1],
    }
    if output.as_json:
        result = vector_hash(equations.on_host, equations.space.memory.get(run.state))
        words = ["hydro", equations.problem.name]
        record = record_of(words, given, equations.mesh, equations.comm, result, hashes)
        more = {"changed": changed, "rates": rates(equations), "remaps": remaps, "run": record}
        output.json(facts | more)
    output.named(f"Gas dynamics: {equations.problem.name} {equations.mesh.dim}-D", facts)
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
