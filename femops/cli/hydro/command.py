"""Command ``femops hydro``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from femops.cli.hydro.progress import teller
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
    share_mesh,
    whole_number,
)
from femops.cli.output import Output, check_files, columns, one_line_warnings
from femops.cli.record import file_hashes, record_of

if TYPE_CHECKING:
    import femops
    from femops.hydro import Lagrangian, Simulation, Snapshot
    from femops.parallel import Communicator


@final
class Files:
    """Writes the files of a run when they are due. All methods are collective."""

    def __init__(self, given: dict[str, Any], comm: Communicator) -> None:
        from femops.parallel import check

        self._given, self._comm = given, comm
        self._series: femops.io.TimeSeries | None = None
        self._frames: list[tuple[str, Any, Any]] = []
        suffixes = {"save": ".pvd", "movie": ".gif", "picture": ".png", "checkpoint": ".state"}
        with check(comm):
            check_files(*((given[name], suffix) for name, suffix in suffixes.items()))

    def begin(self, run: Simulation) -> None:
        """Write the initial fields, unless an earlier run has written them.

        After a restart the steps of a series that are later than the checkpoint are removed: this
        run writes its own, which other options or another number of ranks may change.
        """
        import femops

        if self._given["save"] is not None:
            existing: Any = "continue" if self._given["restart"] else "replace"
            until = run.t if self._given["restart"] else None
            path = self._given["save"]
            self._series = femops.io.TimeSeries(path, existing, self._comm, until=until)
        if self._series is None or not self._series.times or self._is_due(run):
            self._add(run)

    def _is_due(self, run: Simulation) -> bool:
        """True if the series and the movie have the present step."""
        return bool(run.steps % self._given["every"] == 0)

    def after_step(self, run: Simulation) -> None:
        """Write the files that are due after a step."""
        from femops.hydro import save_run

        if self._is_due(run):
            self._add(run)
        if self._given["checkpoint"] and run.steps % self._given["checkpoint_every"] == 0:
            save_run(self._given["checkpoint"], run)

    def _add(self, run: Simulation) -> None:
        """Add the fields to series and movie, unless these have the present time already."""
        from femops.hydro import Snapshot

        series, title = self._series, f"t = {run.t:.4g}"
        due = series is not None and (not series.times or series.times[-1] < run.t)
        frame = self._given["movie"] is not None
        if due or frame:
            fields = Snapshot.of(run)
            if due and series is not None:
                fields.save(series, run.t)
            if frame and (not self._frames or self._frames[-1][0] != title):
                self._frames.append((title, fields.density.space, fields.density.vector))

    def save_last(self, run: Simulation) -> Path:
        """Write the last good state of a run that cannot continue. Return the file."""
        from femops.hydro import save_run

        default = Path(f"{run.equations.problem.name}-last.state")
        return save_run(self._given["checkpoint"] or default, run)

    def finish(self, output: Output, run: Simulation) -> None:
        """Write the files that are due at the end, and print the names of all files."""
        import femops
        from femops.hydro import Snapshot, save_run

        self._add(run)
        if self._series is not None:
            self._series.close()
            output.say(f"wrote {self._series.path}, {len(self._series.times)} steps")
        if self._given["checkpoint"] is not None:
            output.say(f"wrote {save_run(self._given['checkpoint'], run)}")
        if self._given["movie"] is not None:
            drawn = femops.io.movie(self._given["movie"], self._frames, name="density")
            output.say(f"wrote {drawn}, {len(self._frames)} frames")
        if self._given["picture"] is not None:
            _draw(output, self._given["picture"], Snapshot.of(run), f"t = {run.t:.4g}")


def _draw(output: Output, path: Path, fields: Snapshot, title: str) -> None:
    """Draw the density to a file, and the velocity to a second file with a similar name."""
    import femops

    beside = path.with_name(f"{path.stem}-velocity{path.suffix}")
    for target, name in ((path, "density"), (beside, "velocity")):
        field = getattr(fields, name)
        drawn = femops.io.picture(target, field.space, field.vector, name=name, title=title)
        output.say(f"wrote {drawn}")


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


_COLUMNS = columns(
    "run; problem; steps; Laghos: steps_laghos; dt: dt .6f; Laghos: dt_laghos .6f; "
    "|e|: e_norm .10e; Laghos: e_norm_laghos .10e; seconds: seconds .1f"
)


def verify_runs(output: Output, what: list[str], cg_tol: float) -> None:
    """Repeat reference runs (all by default). Print femops' and Laghos' results."""
    from femops.errors import HydroError
    from femops.hydro import RUNS
    from femops.hydro import verify as verified
    from femops.parallel import world

    numbers = [*map(whole_number(1, hint="--verify"), what)] or list(RUNS)
    results, comm = [], world()
    for n in numbers:
        with output.working(f"run {n}") as update:
            results.append(verified(n, cg_tol, teller(update, f"run {n}", comm), comm))
    output.json(results)
    output.records("Laghos' reference runs", _COLUMNS, results)
    off = [r["run"] for r in results if not _agrees(r)]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _agrees(result: dict[str, Any]) -> bool:
    same = result["steps"] == result["steps_laghos"], result["relative"] < 1e-7
    return all(same) and abs(result["dt"] - result["dt_laghos"]) < 6e-7


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
