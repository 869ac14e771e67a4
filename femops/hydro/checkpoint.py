"""Checkpoints of runs. A stopped run continues with the same bits as a run without a stop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

import femops
from femops.errors import CheckpointError, HydroError
from femops.hydro.integrators import METHODS
from femops.hydro.lagrangian import Fluid, Lagrangian
from femops.hydro.problems import POSITIVE
from femops.hydro.simulation import Simulation
from femops.io import load_state, save_state
from femops.parallel import check
from femops.spaces.restriction import Vector
from femops_common.arguments import (
    Kind,
    checked,
    kind_of,
    real_numbers,
    refusal,
    shown,
    whole_numbers,
)

PHYSICS = (
    "order_kinematic",
    "order_thermo",
    "blast",
    "viscosity",
    "vorticity",
    "gravity",
)
"""Options that must not change when a run continues from a checkpoint."""

NUMERICS = ("cfl", "cg_tol", "cg_max", "assembly", "reproducible", "device")
"""Options that may change when a run continues from a checkpoint. So may the integrator."""

RUN = ("ale", "ale_length", "ale_quality", "t_final")
"""Options of `Simulation.options`, which may change too. ``ale`` is the number of steps between
remaps, and 0 without remaps. Options that a run does not have are None."""

_KINDS = {
    "t": real_numbers(0.0),  # later steps of a series are removed
    "dt": POSITIVE,
    "steps": whole_numbers(0),
    "repeated": whole_numbers(0),
    "ode": Kind(lambda name: isinstance(name, str) and name in METHODS, ", ".join(METHODS)),
    "remapped": kind_of(bool | None),
}
_KINDS_OF_OPTIONS = {
    "cfl": POSITIVE,
    "cg_tol": real_numbers(0.0, 1.0),
    "cg_max": whole_numbers(1),
    "assembly": kind_of(Literal["partial", "full"]),
    "reproducible": kind_of(bool),
    "device": kind_of(Literal["cuda"] | None),
    "ale": kind_of(Annotated[int, whole_numbers(0)] | None),
    "ale_length": kind_of(Annotated[float, POSITIVE] | None),
    "ale_quality": kind_of(Annotated[float, POSITIVE] | None),
    "t_final": kind_of(float | None),
}
"""Kinds of `NUMERICS` and `RUN`. Those of `PHYSICS` are compared with the equations'."""

_LEAST = {"density": 0.0, "gamma": 1.0}
"""Numbers that the fields of a remapped gas exceed."""


def _options(equations: Lagrangian) -> dict[str, Any]:
    """Values of `PHYSICS` and `NUMERICS`, by name."""
    problem = equations.problem
    return {
        "order_kinematic": equations.order,
        "order_thermo": equations.order_thermo,
        "blast": float(problem.blast),
        "viscosity": bool(problem.viscosity),
        "vorticity": bool(problem.vorticity),
        "gravity": float(problem.gravity),
        "cfl": float(equations.cfl),
        "cg_tol": float(equations.cg_tol),
        "cg_max": int(equations.cg_max),
        "assembly": equations.assembly,
        "reproducible": bool(getattr(equations.mesh, "reproducible", False)),
        "device": None if equations.space.device is None else "cuda",
    }


@checked(HydroError, path=CheckpointError)
def save_run(path: str | os.PathLike[str], run: Simulation) -> Path:
    """Write the state and the options of a run, atomically; see `femops.io.save_state`.

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
    vectors: dict[str, tuple[femops.Space, Any]] = {
        name: (space, parts[name]) for name, space in run.equations.on_host.spaces.items()
    }
    fluid = run.equations.fluid
    if fluid is not None:
        for name, function in (("density", fluid.density), ("gamma", fluid.gamma)):
            vectors[name] = function.space, function.vector
    values = {
        "problem": run.equations.problem.name,
        "t": run.t,
        "dt": run.dt,
        "steps": run.steps,
        "repeated": run.repeated,
        "ode": run.ode,
        "remapped": fluid is not None,
        "options": _options(run.equations),
        "run": dict.fromkeys(RUN) | {"ale": 0} | run.options,
    }
    return save_state(path, vectors, values)


@checked(CheckpointError)
def run_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the options of a run from a file of `save_run`.

    Returns
    -------
    dict
        ``problem``, ``ode``, and all names of `PHYSICS`, `NUMERICS` and `RUN`.

    Raises
    ------
    CheckpointError
        The file is damaged, is not from `save_run`, or is from an older femops that did not save
        the options.
    FileError
        The file cannot be read.
    """
    return _options_of(path, load_state(path).values)


def _options_of(path: str | os.PathLike[str], values: Mapping[str, Any]) -> dict[str, Any]:
    _check_values(path, values, _KINDS)
    options, of_run, names = values.get("options"), values.get("run"), (*PHYSICS, *NUMERICS, *RUN)
    both = options | of_run if isinstance(options, dict) and isinstance(of_run, dict) else {}
    if not set(names) <= set(both):
        raise CheckpointError(
            f"{path} does not name all options of its run ({', '.join(names)}): an older femops "
            "has written it, so go on with that, or begin the run anew"
        )
    _check_values(path, both, _KINDS_OF_OPTIONS)
    return {"problem": values.get("problem"), "ode": values["ode"], **both}


def _check_values(
    path: str | os.PathLike[str], values: Mapping[str, Any], kinds: Mapping[str, Kind | None]
) -> None:
    for key, kind in kinds.items():
        if kind is not None and not kind.holds(values.get(key)):
            wrong = refusal(key, values.get(key), kind.cure)
            raise CheckpointError(f"{path} is no checkpoint of a run: {wrong}")


def _check_fields(path: str | os.PathLike[str], fields: Mapping[str, Vector]) -> None:
    for name, values in fields.items():
        least = _LEAST.get(name, -np.inf)
        if values.dtype != np.float64 or not np.all((values > least) & (values < np.inf)):
            above = f" above {least:g}" if name in _LEAST else ""
            raise CheckpointError(
                f"{path} is no checkpoint of a run: its {name} has not only finite float64 "
                f"numbers{above}; take another checkpoint"
            )


@checked(HydroError, path=CheckpointError)
def load_run(path: str | os.PathLike[str], equations: Lagrangian) -> Simulation:
    """Continue a run from a file of `save_run`.

    Parameters
    ----------
    path : path
    equations : Lagrangian
        Equations of the same problem on the same mesh, with the same options of `PHYSICS`. The
        options of `NUMERICS` may differ. The run continues with the options of ``equations``. If
        the fields were remapped, the run has equations with the remapped density. Its ``options``
        are those of the checkpoint: if ``ale`` is not 0, advance it by
        `femops.hydro.ale.ArbitraryLagrangianEulerian`.

    Raises
    ------
    HydroError
        The checkpoint has another problem, or another value of an option of `PHYSICS`.
    CheckpointError
        The file is damaged or is not from `save_run`, or its fields do not fit the spaces; see
        `run_options`.
    FileError
        The file cannot be read.
    """
    with check(equations.comm):
        values = load_state(path).values
        options, now = _options_of(path, values), _options(equations)
        name = equations.problem.name
        if options["problem"] != name:
            raise HydroError(
                f"{path} is of the problem {shown(options['problem'])}, not of {name}: give "
                "equations of that problem"
            )
        for key in PHYSICS:
            if options[key] != now[key]:
                raise HydroError(
                    f"{path} is of a run whose {key} is {shown(options[key])}: it cannot go on "
                    f"with {now[key]}; give the same, or begin a new run"
                )
    spaces: dict[str, femops.Space] = dict(equations.on_host.spaces)
    remapped = bool(values.get("remapped"))
    if remapped:
        spaces |= dict.fromkeys(("density", "gamma"), equations.at_points)
    saved = load_state(path, spaces)
    vectors = dict(saved.vectors)
    with check(equations.comm):
        if repr(saved.values) != repr(values):
            raise CheckpointError(f"{path} was written again while it was read: read it once more")
        _check_fields(path, vectors)
    if remapped:
        functions = [
            femops.GridFunction(spaces[name], vectors.pop(name)) for name in ("density", "gamma")
        ]
        equations = equations.with_fluid(Fluid(*functions))
    state = equations.space.memory.put(equations.on_host.join(**vectors))
    run = Simulation(equations, state, values["t"], values["dt"], values["steps"], values["ode"])
    run.repeated, run.options = values["repeated"], {name: options[name] for name in RUN}
    return run
