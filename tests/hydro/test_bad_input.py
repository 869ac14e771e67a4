"""Arguments and checkpoints that make no sense: one error each, which says what to give."""

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops.errors import CheckpointError, FemopsError, HydroError
from femops.hydro import (
    Blast,
    Lagrangian,
    Simulation,
    Snapshot,
    built_in,
    checkpoint,
    grid,
    load_run,
    problem,
    rates,
    run_options,
    save_run,
)
from femops.io import load_state

MESH, SEDOV = built_in("square01_quad"), problem("sedov")


@pytest.fixture(scope="module")
def run():
    return Simulation.begin(Lagrangian(SEDOV, MESH))


WRONG = {
    "problem": (lambda _: Lagrangian("sedov", MESH), r"give a problem, as femops.hydro.problem"),
    "mesh": (lambda _: Lagrangian(SEDOV, "square01_quad"), "mesh is .*: give a mesh, as"),
    "walls": (
        lambda _: Lagrangian(SEDOV, femops.box((3, 3), periodic=(True, True))),
        "other attributes than 1 to 2, or there is none",
    ),
    "period": (
        lambda _: Lagrangian(
            SEDOV,
            femops.box((3, 3), periodic=(True, False)).with_attributes(boundary=np.full(6, 2)),
        ),
        "the mesh is periodic, so that a node has two positions",
    ),
    "order": (lambda _: Lagrangian(SEDOV, MESH, 0), "order_kinematic is 0: give a whole number"),
    "energy": (lambda _: Lagrangian(SEDOV, MESH, 2, -1), "order_thermo is -1: give a whole"),
    "orders": (lambda _: Lagrangian(SEDOV, MESH, 1, 3), "order_thermo is 3 .*: give at most 2"),
    "cfl": (lambda _: Lagrangian(SEDOV, MESH, cfl=0.0), "cfl is 0.0: give a number above 0"),
    "tolerance": (lambda _: Lagrangian(SEDOV, MESH, cg_tol="a"), "cg_tol is 'a': give a number"),
    "iterations": (lambda _: Lagrangian(SEDOV, MESH, cg_max=0), "cg_max is 0: give a whole"),
    "equations": (lambda _: Simulation.begin(SEDOV), "give equations, as femops.hydro.Lagrangian"),
    "end": (lambda run: run.run(float("nan")), "t_final is nan: give a finite number"),
    "steps": (lambda run: run.run(1.0, "a"), "max_steps is 'a': give a whole number"),
    "long": (lambda run: run.run(1e300), r"from t = 0 to 1e\+300 are more than 1e\+10"),
    "run": (lambda _: Snapshot.of(3), "run is 3: give a run, as femops.hydro.Simulation"),
    "blast": (lambda _: problem("sedov", blast=-1.0), "blast is -1.0: give a number above 0"),
    "gravity": (lambda _: replace(SEDOV, gravity="a"), "gravity is 'a': give a finite number"),
    "exact": (lambda _: Blast(4), "dim is 4: give a whole number from 1 to 3"),
    "lines": (lambda _: grid(["ab"]), "a line can't be made an array of numbers"),
    "merit": (lambda _: rates(3), "equations is 3: give equations, as"),
    "saved": (lambda _: save_run("a.state", 3), "run is 3: give a run"),
    "no problem": (lambda _: problem("sod2"), "no problem 'sod2'"),
    "no blast": (lambda _: problem("sod", blast=1.0), "has no blast"),
    "no mesh": (lambda _: built_in("square"), "no mesh"),
    "dimension": (lambda _: Lagrangian(problem("triple-point"), built_in("segment01")), "ion 2, 3"),
    "no walls": (lambda _: Lagrangian(SEDOV, femops.box((2, 2))), "give walls"),
    "hanging": (lambda _: Lagrangian(SEDOV, MESH.refined([0])), r"yet.*mesh.refine\(\)"),
    "assembly": (lambda _: Lagrangian(SEDOV, MESH, assembly="element"), "give 'partial' or 'full'"),
    "integrator": (lambda run: Simulation.begin(run.equations, "rk5"), "no integrator"),
}


def test_wrong_arguments(run):
    for call, message in WRONG.values():
        with pytest.raises(HydroError, match=message):
            call(run)


def square(low, high):
    line = np.linspace(low, high, 3)
    return Lagrangian(SEDOV, grid([line, line]))


def test_a_blast_is_in_a_corner_of_the_domain_at_the_origin():
    """It is highest at the origin, wherever the element is."""
    for low, high in ((0.0, 1.0), (-1.0, 0.0)):
        equations = square(low, high)
        energy = equations.space.split(equations.initial())[2].reshape(4, 4)
        assert abs(energy).max(axis=0).argmax() == (0 if low == 0.0 else 3)
        assert equations.e_norm(equations.initial()) == pytest.approx(4.0)
    for low, count in ((-1.0, 4), (0.5, 0)):
        with pytest.raises(HydroError, match=f"touches the origin, and not {count}"):
            square(low, 1.0).initial()


def test_a_density_with_a_large_jump_within_an_element():
    jump = replace(SEDOV, density=lambda x: 1.0 + 1e20 * (x[0] > 0.4))
    with pytest.raises(HydroError, match="its mass matrix is singular: put mesh lines"):
        Lagrangian(jump, MESH)


def test_a_step_is_small_beside_the_time_alone():
    """Not beside 1: lengths have the unit of the user."""
    steps = []
    for size in (1.0, 1e-20):
        tube = replace(problem("sod"), density=1.0, energy=lambda x, s=size: 2.5 + 25 * (x[0] < s))
        run = Simulation.begin(Lagrangian(tube, grid([np.linspace(0.0, 2.0 * size, 9)])))
        run.run(size, max_steps=10)
        steps.append((run.repeated, run.t / size))
    assert steps[0][0] > 0
    assert steps[0] == pytest.approx(steps[1])


@pytest.mark.parametrize("ode", ["euler", "rk4", "rk2avg"])
def test_a_run_that_cannot_go_on_ends(ode):
    """A step far below the round-off of the time changes nothing, so it would never end."""
    mesh = built_in("square01_quad").refine(1)
    equations = Lagrangian(problem("sedov", viscosity=False), mesh)
    run = Simulation.begin(equations, ode)
    with pytest.raises(HydroError, match="the time step has gone to zero"):
        run.run(t_final=0.8, max_steps=1000)
    assert run.steps < 50
    assert run.dt > 1e-12 * run.t


GOOD = {"problem": "sedov", "t": 0.0, "dt": 1e-3, "steps": 0, "repeated": 0, "ode": "rk4"}
OPTIONS = {"order_kinematic": 2, "order_thermo": 1, "blast": 1.0, "viscosity": True}
OPTIONS |= {"reproducible": False, "device": None}
OPTIONS |= {"vorticity": False, "gravity": 0.0, "cfl": 0.5, "cg_tol": 1e-8, "cg_max": 300}
GOOD["options"] = OPTIONS | {"assembly": "partial"}
GOOD["run"] = dict.fromkeys(femops.hydro.RUN)
CRAFTED = [("dt", float("nan")), ("dt", 0.0), ("dt", -1.0), ("t", "a"), ("steps", 1.5)]
CRAFTED += [("repeated", None), ("ode", "rk9"), ("t", -1.0), ("remapped", 2.5)]


def test_values_that_no_run_has_written(run, tmp_path):
    """A step of zero or that is not a number would be repeated for ever."""
    for name, value in CRAFTED:
        with pytest.raises(CheckpointError, match=f"no checkpoint of a run: {name} is"):
            load_run(written(run, tmp_path, GOOD | {name: value}), run.equations)


CRAFTED_OPTIONS = [("device", float("nan")), ("cfl", "0.5"), ("reproducible", 2.5)]
CRAFTED_OPTIONS += [("assembly", ["full"]), ("cg_max", 10**400), ("cg_tol", None)]
CRAFTED_RUN = [("t_final", float("nan")), ("t_final", "1"), ("ale", -1), ("ale_length", 0.0)]
CRAFTED_RUN += [("ale", True), ("ale_quality", {}), ("ale_length", float("inf"))]


def test_options_that_no_run_has_written(run, tmp_path):
    for place, crafted in (("options", CRAFTED_OPTIONS), ("run", CRAFTED_RUN)):
        for name, value in crafted:
            path = written(run, tmp_path, GOOD | {place: GOOD[place] | {name: value}})
            with pytest.raises(CheckpointError, match=f"no checkpoint of a run: {name} is"):
                run_options(path)


def test_a_checkpoint_that_is_written_again_while_it_is_read(run, tmp_path, monkeypatch):
    path = written(run, tmp_path, GOOD)

    def replaced(*arguments):
        found = load_state(*arguments)
        written(run, tmp_path, GOOD | {"t": 0.5})
        return found

    monkeypatch.setattr(checkpoint, "load_state", replaced)
    with pytest.raises(CheckpointError, match="was written again while it was read"):
        load_run(path, run.equations)


CRAFTED_FIELDS = [("density", np.nan), ("density", 0.0), ("density", -1.0)]
CRAFTED_FIELDS += [("gamma", 1.0), ("gamma", -1.0), ("gamma", np.inf)]
CRAFTED_FIELDS += [("energy", np.nan), ("position", np.inf), ("velocity", -np.inf)]


def test_fields_that_no_run_has_written(run, tmp_path):
    """They would lead to other results, or to errors that do not tell of the checkpoint."""
    at = run.equations.at_points
    ones = {"density": (at, np.ones(at.size)), "gamma": (at, np.full(at.size, 1.4))}
    values = GOOD | {"remapped": True}
    load_run(written(run, tmp_path, values, ones), run.equations)
    for name, value in CRAFTED_FIELDS:
        space, vector = (ones | state_of(run))[name]
        vector = vector.copy()
        vector[3] = value
        path = written(run, tmp_path, values, ones | {name: (space, vector)})
        with pytest.raises(CheckpointError, match=f"no checkpoint of a run: its {name} has not"):
            load_run(path, run.equations)
    single = {"energy": (run.equations.E, run.equations.parts(run.state)["energy"].astype("f4"))}
    with pytest.raises(CheckpointError, match="its energy has not only finite float64 numbers"):
        load_run(written(run, tmp_path, values, ones | single), run.equations)


def test_words_of_a_checkpoint_are_fit_for_a_terminal(run, tmp_path):
    evil = "\x1b[2J"
    for values in ({"problem": evil}, {"options": GOOD["options"] | {"viscosity": evil}}):
        with pytest.raises(HydroError, match=r"x1b\[2J") as error:
            load_run(written(run, tmp_path, GOOD | values), run.equations)
        assert str(error.value).isprintable()


def state_of(run):
    spaces = run.equations.space.spaces
    parts = zip(spaces.items(), run.equations.space.split(run.state), strict=True)
    return {key: (space, part) for (key, space), part in parts}


def written(run, folder, values, more=None):
    return femops.io.save_state(folder / "a.state", state_of(run) | (more or {}), values)


def test_checkpoints_name_all_options(run, tmp_path):
    """Those of older versions do not. Matrices instead of stress at points may be gone on with."""
    path = written(run, tmp_path, GOOD | {"options": OPTIONS | {"assembly": "full"}})
    assert load_run(path, run.equations).steps == 0
    for options in (None, 3, OPTIONS):
        path = written(run, tmp_path, GOOD | {"options": options})
        with pytest.raises(CheckpointError, match=r"name all options .* an older femops has"):
            load_run(path, run.equations)


def test_a_step_that_is_not_above_zero() -> None:
    run = Simulation.begin(Lagrangian(SEDOV, MESH))
    run.run(0.01)
    state = run.state.copy()
    for run.dt in (0.0, -1e-3, float("nan")):
        with pytest.raises(FemopsError, match=r"dt is .*: give a step above 0"):
            run.run(0.02)
        assert np.array_equal(run.state, state)
    run.dt = 1e-3
    run.run(0.02)
    assert run.t == 0.02
