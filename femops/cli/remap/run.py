"""Command ``femops remap PROBLEM``: a run and its report."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import typer

from femops.cli.options import share_mesh, whole_number
from femops.cli.output import Output, check_files

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
