"""Command ``femops remap``: options, runs, and the published runs of Remhos."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

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
    share_mesh,
    whole_number,
)
from femops.cli.output import Output, check_files, columns, one_line_warnings

if TYPE_CHECKING:
    from femops.parallel import Communicator, DistributedMesh
    from femops_meshes import Mesh


def run_problem(output: Output, what: list[str], given: dict[str, Any]) -> None:
    """Run a problem to its end, and report. Collective."""
    from femops.hydro.remap import Advection, advection_problem
    from femops.io import picture
    from femops.parallel import check, world

    if len(what) != 1:
        wrong = f"got {len(what)} problems: give one, or --verify"
        raise typer.BadParameter(wrong, param_hint="PROBLEM")
    comm = world()
    with check(comm):
        check_files((given["picture"], ".png"))
    problem = advection_problem(whole_number(0, hint="PROBLEM")(what[0]))
    mesh = _mesh(given["mesh"], given["refine"], problem.mesh, comm)
    numbers = given["order"], given["t_final"], given["dt"]
    methods = {name: given[name] for name in ("mesh_order", "ho", "lo", "fct")}
    name, end = f"problem {problem.number}", 1.0 if problem.moves_mesh else given["t_final"]
    with output.working(f"{name}: making matrices") as update:
        run = Advection(problem, mesh, *numbers, **methods)
        begin = perf_counter()
        found = run.run(lambda t, _: update(f"{name}: t = {t:.4f} of {end:g}"))
    facts = {
        "problem": problem.number,
        "elements": mesh.num_elements,
        "dofs": run.space.global_size,
        "steps": found.steps,
        "mass": found.mass,
        "mass_change": found.mass - found.mass_before,
        "min": found.minimum,
        "max": found.maximum,
        "seconds": perf_counter() - begin,
    }
    output.json(facts)
    output.named(f"Advection: problem {problem.number}", facts)
    if given["picture"] is not None:
        function = run.function(found)
        drawn = picture(given["picture"], function.space, function.vector, name="u")
        output.say(f"wrote {drawn}")


def _mesh(
    name: str | None, refine: int, default: str, comm: Communicator
) -> Mesh | DistributedMesh:
    from femops.hydro.remap import ADVECTION_MESHES, advection_mesh
    from femops.parallel import distribute

    named = default if name is None else name
    if named not in ADVECTION_MESHES:
        return share_mesh(named, refine, comm)
    mesh = advection_mesh(named).refine(refine)
    return mesh if comm.size == 1 else distribute(mesh, comm)


_COLUMNS = columns(
    "run; mesh; problem; steps; mass: mass .10g; Remhos: mass_remhos .10g; max: max .10f; "
    "Remhos: max_remhos .10f; seconds: seconds .1f"
)


def verify_runs(output: Output, what: list[str]) -> None:
    """Repeat published runs (all by default). Print femops' and Remhos' results. Collective."""
    from femops.errors import HydroError
    from femops.hydro.remap import PUBLISHED, verify_advection
    from femops.parallel import world

    numbers = [*map(whole_number(0, hint="--verify"), what)] or list(PUBLISHED)
    results = []
    for n in numbers:
        with output.working(f"run {n}") as update:
            tell = partial(_tell, update, f"run {n}")
            results.append(verify_advection(n, tell, world()))
    output.json(results)
    output.records("Remhos' published runs", _COLUMNS, results)
    off = [result["run"] for result in results if not result["agrees"]]
    if off:
        raise HydroError(f"runs {', '.join(map(str, off))} are not as published")


def _tell(update: Callable[[str], None], what: str, t: float, _: Any) -> None:
    update(f"{what}: t = {t:.4f}")


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
