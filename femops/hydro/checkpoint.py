"""Checkpoints of runs: one that was stopped goes on to the same bits."""

from __future__ import annotations

import os
from pathlib import Path

from femops.errors import CheckpointError, HydroError
from femops.hydro.integrators import METHODS
from femops.hydro.lagrangian import Lagrangian
from femops.hydro.problems import POSITIVE
from femops.hydro.simulation import Simulation
from femops.io import load_state, save_state
from femops_meshes.arguments import Kind, checked, real_numbers, refusal, whole_numbers

_KINDS = {
    "t": real_numbers(),
    "dt": POSITIVE,
    "steps": whole_numbers(0),
    "repeated": whole_numbers(0),
    "ode": Kind(lambda name: isinstance(name, str) and name in METHODS, ", ".join(METHODS)),
}


@checked(HydroError, path=CheckpointError)
def save_run(path: str | os.PathLike[str], run: Simulation) -> Path:
    """Write the state of a run, atomically, with checksums; see `femops.save_state`.

    Parameters
    ----------
    path : path ending in .state
    run : Simulation

    Returns
    -------
    pathlib.Path

    Raises
    ------
    FileError
        The file cannot be written.
    """
    parts = run.equations.parts(run.state)
    vectors = {name: (space, parts[name]) for name, space in run.equations.on_host.spaces.items()}
    values = {
        "problem": run.equations.problem.name,
        "t": run.t,
        "dt": run.dt,
        "steps": run.steps,
        "repeated": run.repeated,
        "ode": run.ode,
    }
    return save_state(path, vectors, values)


@checked(HydroError, path=CheckpointError)
def load_run(path: str | os.PathLike[str], equations: Lagrangian) -> Simulation:
    """Continue a run from a file that `save_run` has written.

    Parameters
    ----------
    path : path
    equations : Lagrangian
        Of the same problem, on the same mesh, of the same orders.

    Raises
    ------
    HydroError
        The checkpoint is of another problem.
    CheckpointError
        A file that is damaged, that no run has written, or whose fields do not fit the spaces.
    FileError
        The file cannot be read.
    """
    saved = load_state(path, equations.on_host.spaces)
    values = saved.values
    name = equations.problem.name
    if values.get("problem") != name:
        raise HydroError(f"{path} is of the problem {values.get('problem')}: not of {name}")
    for key, kind in _KINDS.items():
        if not kind.holds(values.get(key)):
            wrong = refusal(key, values.get(key), kind.cure)
            raise CheckpointError(f"{path} is no checkpoint of a run: {wrong}")
    state = equations.space.memory.put(equations.on_host.join(**saved.vectors))
    run = Simulation(equations, state, values["t"], values["dt"], values["steps"], values["ode"])
    run.repeated = values["repeated"]
    return run
