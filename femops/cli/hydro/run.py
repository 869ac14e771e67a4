"""``femops hydro PROBLEM``: a run, its files and its report."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import typer

from femops.cli.hydro.files import Files
from femops.cli.hydro.progress import teller
from femops.cli.options import share_mesh
from femops.cli.output import Output
from femops.cli.record import file_hashes, record_of

if TYPE_CHECKING:
    from femops.hydro import Lagrangian, Simulation


def run_problem(output: Output, what: list[str], given: dict[str, Any]) -> None:
    """Run a problem to its end, write files, and report.

    Parameters
    ----------
    output : Output
    what : list of str
        Name of the problem.
    given : dict
        Options of the command.

    Raises
    ------
    HydroError, GeometryError
        The run cannot go on; the last good state is saved.
    """
    from femops.errors import GeometryError, HydroError
    from femops.hydro import Simulation, load_run

    if len(what) != 1:
        raise typer.BadParameter("give one problem, or --verify", param_hint="PROBLEM")
    equations = _equations(what[0], given)
    files = Files(given, equations.comm)
    hashes = file_hashes(restart=given["restart"])
    begin = perf_counter()
    if given["restart"] is None:
        run = Simulation.begin(equations, given["ode"] or "rk4")
    else:
        run = load_run(given["restart"], equations)
        run.ode = given["ode"] or run.ode
    run.compile()
    compile_seconds = perf_counter() - begin
    energy = equations.total_energy(run.state)
    equations.reset_clock()
    t_final = given["t_final"] or equations.problem.t_final
    begin = perf_counter()
    try:
        files.begin(run)
        with output.working(what[0]) as update:
            run.run(
                t_final, given["max_steps"], _watch(files, teller(update, what[0], equations.comm))
            )
        seconds = perf_counter() - begin
        files.finish(output, run)
    except (HydroError, GeometryError):
        output.say(f"saved the last good state: {files.save_last(run)}")
        raise
    _report(output, run, given, energy, (seconds, compile_seconds), hashes)


def _watch(files: Files, tell: Any) -> Any:
    """Return a function that is called after each step."""

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
    options = {name: given[name] for name in ("cfl", "cg_tol", "assembly", "device")}
    return Lagrangian(case, mesh, *orders, **options)


def _report(
    output: Output,
    run: Simulation,
    given: dict[str, Any],
    energy: float,
    seconds: tuple[float, float],
    hashes: dict[str, str],
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
        "seconds": seconds[0],
        "compile_seconds": seconds[1],
    }
    if output.as_json:
        result = vector_hash(equations.on_host, equations.space.memory.get(run.state))
        begun = ["hydro", equations.problem.name], given, equations.mesh, equations.comm
        output.json(facts | {"rates": rates(equations), "run": record_of(*begun, result, hashes)})
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
