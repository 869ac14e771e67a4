"""``femops hydro``."""

import json
import os
import shlex
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import femops
from femops.hydro.simulation import Simulation
from femops.io import TimeSeries
from femops.io.checkpoint import state

SHORT = "sedov", "--refine", "1"


@pytest.fixture
def hydro(run):
    """Run the command in an empty folder: (exit code, output, errors in one line)."""

    def call(*arguments):
        code, out, err = run("hydro", *arguments)
        return code, out, " ".join(err.split())

    return call


@pytest.fixture
def facts(hydro):
    """Run the command, and return what it tells in JSON."""

    def call(*arguments):
        code, out, err = hydro(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call


def test_json_has_these_keys(facts):
    found = facts(*SHORT, "--max-steps", 3)
    wanted = {"steps", "t", "dt", "e_norm", "energy_change", "seconds", "compile_seconds", "rates"}
    assert wanted <= set(found)
    assert found["steps"] == 3
    assert set(found["rates"]) == {"cg_h1", "cg_l2", "forces", "update_quad_data", "total"}
    assert all(rate > 0 for rate in found["rates"].values())


@pytest.mark.parametrize("ale", [(), ("--ale", 4)], ids=["", "remaps"])
def test_a_restarted_run_has_the_same_bits(facts, ale):
    short = *SHORT, "--t-final", 0.5, *ale
    straight = facts(*short, "--max-steps", 14, "--checkpoint", "whole.state")
    facts(*short, "--max-steps", 9, "--checkpoint", "half.state")
    again = "--restart", "half.state", "--checkpoint", "half.state", "--threads", 2
    found = facts(*short, "--max-steps", 14, *again)
    for key in ("steps", "t", "dt", "e_norm"):
        assert found[key] == straight[key]
    assert Path("half.state").read_bytes() == Path("whole.state").read_bytes()
    assert abs(found["energy_change"]) < 1e-3
    if ale:
        check_remaps(straight["remaps"])


def test_a_restarted_run_goes_on_with_its_remaps_until_told(hydro, facts):
    """Remaps, their options and the end are those of the checkpoint. Others are told."""
    straight = *SHORT, "--ale", 4, "--ale-quality", 0.2, "--t-final", 0.5
    wanted = facts(*straight, "--max-steps", 14)
    facts(*straight, "--max-steps", 6, "--checkpoint", "a.state")
    again = "--refine", 1, "--max-steps", 14, "--restart", "a.state"
    found = facts(*again)
    assert found["changed"] == {}
    assert [found[key] for key in ("t", "e_norm")] == [wanted[key] for key in ("t", "e_norm")]
    assert [remap["step"] for remap in found["remaps"]] == [8, 12]
    now = {"ale": 5, "ale_length": 2.0, "ale_quality": 0.3, "t_final": 0.6, "reproducible": True}
    before = {"ale": 4, "ale_length": 1.0, "ale_quality": 0.2, "t_final": 0.5}
    before["reproducible"] = False
    given = [f"--{name.replace('_', '-')}={value}" for name, value in now.items()]
    found = facts(*again, *given[:-1], "--reproducible", "--checkpoint", "b.state")
    assert found["changed"] == {k: {"checkpoint": before[k], "now": now[k]} for k in now}
    assert [remap["step"] for remap in found["remaps"]] == [10]
    found = facts("--refine", 1, "--max-steps", 15, "--restart", "b.state")
    assert (found["changed"], found["run"]["reproducible"]) == ({}, True)
    found = facts(*again, "--ale", 0)
    assert found["changed"] == {"ale": {"checkpoint": 4, "now": 0}}
    assert found["remaps"] == []
    said = hydro(*again, "--ale", 0)[1]
    assert "goes on without --ale; the checkpoint has 4" in said


def test_remaps_that_begin_at_a_restart_are_told(facts, checkpoint):
    found = facts("--refine", 1, "--max-steps", 3, "--restart", checkpoint, "--ale", 3)
    assert found["changed"] == {"ale": {"checkpoint": 0, "now": 3}}
    assert len(found["remaps"]) == 1


def test_a_restarted_run_removes_later_steps_of_a_series(facts):
    """The series kept steps of a run with other options, and left out those of this one."""
    saved = *SHORT, "--save", "run.pvd", "--every", 2
    facts(*saved, "--max-steps", 3, "--checkpoint", "three.state")
    facts(*saved, "--max-steps", 9, "--restart", "three.state")
    last = facts(*saved, "--max-steps", 6, "--restart", "three.state", "--cfl", 0.1)
    facts(*SHORT, "--max-steps", 3, "--save", "same.pvd", "--every", 2)
    series, same = (TimeSeries(name, "continue").times for name in ("run.pvd", "same.pvd"))
    assert series[:3] == same  # of steps 0, 2, and 3, where that run has ended
    assert len(series) == 5  # steps 4 and 6 of the last run
    assert series[-1] == last["t"]


def check_remaps(remaps):
    """What is told of remaps: they keep mass and energy, and mend the mesh."""
    assert [remap["step"] for remap in remaps] == [4, 8, 12]
    for remap in remaps:
        before, after = remap["before"], remap["after"]
        assert abs(after["mass"] / before["mass"] - 1.0) < 1e-13
        energies = "internal", "kinetic", "potential"
        totals = [sum(state[name] for name in energies) for state in (before, after)]
        assert abs(totals[1] / totals[0] - 1.0) < 1e-13
        assert len(before["momentum"]) == len(after["momentum"]) == 2
        assert remap["quality"][0] < remap["quality"][1]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of a run whose options are not the usual ones."""
    from femops.hydro import Lagrangian, Simulation, built_in, problem, save_run

    case, mesh = problem("sedov", blast=2.0), built_in("square01_quad").refine(1)
    equations = Lagrangian(case, mesh, 3, 1, cfl=0.25, cg_tol=1e-10, cg_max=299)
    run = Simulation.begin(equations, "rk2")
    run.run(10.0, max_steps=2)
    return save_run(tmp_path_factory.mktemp("run") / "a.state", run)


FREE = {"ode": "euler", "cfl": 0.5, "cg_tol": 1e-9, "assembly": "full"}


@pytest.mark.parametrize("changed", [{}, FREE], ids=["none", "all"])
def test_a_restarted_run_has_the_options_of_its_checkpoint(hydro, checkpoint, changed):
    """But for those that may change, and are given: the command tells of these."""
    from femops.hydro import run_options

    before = run_options(checkpoint)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in changed.items()]
    arguments = *SHORT, "--max-steps", 3, "--restart", checkpoint, *given
    code, out, err = hydro(*arguments, "--checkpoint", "b.state", "--json")
    assert code == 0, err
    both = {name: {"checkpoint": before[name], "now": now} for name, now in changed.items()}
    assert json.loads(out)["changed"] == both
    assert run_options("b.state") == before | changed | {"t_final": 0.8}
    assert (before["blast"], before["cg_max"]) == (2.0, 299)
    if changed:
        said = hydro(*arguments)[1]
        for name, option in zip(changed, given, strict=True):
            told = f"goes on with {option.replace('=', ' ')}; the checkpoint has {before[name]}"
            assert told in said


def test_a_restarted_run_keeps_its_physics(hydro, checkpoint):
    for given, words in (
        ("sedov --blast 1", "blast is 2.0: it cannot go on with 1.0"),
        ("sedov --no-viscosity", "viscosity is True: it cannot go on with False"),
        ("sedov --order-thermo 2", "order_thermo is 1: it cannot go on with 2"),
        ("sedov --order-kinematic 2", "order_kinematic is 3: it cannot go on with 2"),
        ("sod", "is of the problem 'sedov', not of sod"),
    ):
        code, _, err = hydro(*given.split(), "--refine", 1, "--restart", checkpoint)
        assert (code, words in err) == (1, True), given


def test_a_restarted_run_takes_the_problem_of_its_checkpoint(facts, checkpoint):
    again = "--refine", 1, "--max-steps", 3, "--restart", checkpoint
    found, named = facts(*again), facts("sedov", *again)
    assert found["problem"] == "sedov"
    assert found["run"]["arguments"] == named["run"]["arguments"]
    assert [found[key] for key in ("t", "e_norm")] == [named[key] for key in ("t", "e_norm")]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--max-steps 1", "the end is step 1: give a larger --max-steps"),
        ("--max-steps 2", "the end is step 2: give a larger --max-steps"),
        ("--t-final 1e-6", "the end is t = 1e-06: give a later --t-final"),
        ("--t-final 1e-6 --max-steps 1", "the end is t = 1e-06: give a later"),
    ],
)
def test_a_restarted_run_that_is_at_its_end_tells_of_it(hydro, facts, checkpoint, given, words):
    again = "--refine", 1, "--restart", checkpoint, *given.split()
    code, out, err = hydro("sedov", *again)
    assert code == 0, err
    assert "no step was taken: the checkpoint is at step 2, t = " in out
    assert words in out
    assert facts(*again)["steps"] == 2


def test_files_are_written(hydro, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures are drawn: needs the extra viz")
    files = "--save run.pvd --picture run.png --movie run.gif --every 4"
    code, out, err = hydro("sod", "--refine", 2, "--max-steps", 8, "--fom", *files.split())
    assert code == 0, err
    assert "UpdateQuadData" in out
    for name in ("run.png", "run-velocity.png"):
        assert (tmp_path / name).stat().st_size > 1000
    image = pytest.importorskip("PIL.Image")
    with image.open(tmp_path / "run.gif") as shown:
        assert shown.n_frames == 3
    with femops.io.TimeSeries(tmp_path / "run.pvd", existing="continue") as found:
        assert len(found.times) == 3
        assert found.times[0] == 0.0


def test_verification_prints_both(hydro):
    code, out, err = hydro("--verify", 5)
    assert code == 0, err
    line = next(line for line in out.splitlines() if "sod" in line)
    assert line.split().count("413") == 2
    assert line.split().count("3.2012077410e+01") == 2


def test_mesh_files_are_taken(facts, tmp_path):
    from femops.hydro import built_in

    femops.save(tmp_path / "square.mesh", built_in("square01_quad"))
    file = facts(*SHORT, "--max-steps", 5, "--mesh", "square.mesh")
    own = facts(*SHORT, "--max-steps", 5)
    assert file["e_norm"] == pytest.approx(own["e_norm"], rel=1e-12)


BAD = [
    ("sedov sod", 2, "got 2 problems: give one, or --restart or --verify"),
    ("", 2, "got 0 problems: give one, or --restart or --verify"),
    ("nothing", 1, "no problem 'nothing'"),
    ("gresho --dim 1", 2, "dimension 2, 3"),
    ("--verify 12", 1, "no reference run 12"),
    ("--verify 0", 2, "value for --verify: got '0': give a whole number >= 1"),
    ("--verify 5 --dim 2", 2, "--dim: --verify does not take it"),
    ("sedov --every 3", 2, "--every: it has no effect without --save or --movie"),
    ("sedov --checkpoint-every 3", 2, "no effect without --checkpoint"),
    ("sedov --dim 3 --mesh rt2D", 2, "got 3, but the mesh rt2D has dimension 2"),
    ("sedov --mesh ''", 1, "the name of the mesh is empty"),
    ("sedov --cfl 1e-300", 1, "are more than 1e+10: give a larger cfl"),
    ("sedov --blast 1e300", 1, "forces are too large to compute with in step 1"),
    ("sedov --order-kinematic ٣", 2, "--order-kinematic': got '٣'"),
    ("sedov --cfl ٣", 2, "--cfl': got '٣'"),
    ("sedov --cfl 0.2_5", 2, "--cfl': got '0.2_5'"),
    ("sedov --mesh 4x4", 1, "give walls"),
    ("sedov --cg-tol 2", 2, "< 1"),
    ("sedov --picture no/u.png", 1, "no folder 'no'"),
    ("sedov --movie u.mp4", 1, "does not end in .gif"),
]


def test_errors_are_one_line(hydro):
    for arguments, code, words in BAD:
        found, _, err = hydro(*shlex.split(arguments))
        assert found == code, arguments
        assert words in err, arguments


@pytest.mark.parametrize("blocked", [False, True])
def test_the_last_good_state_is_saved(hydro, tmp_path, monkeypatch, blocked):
    from femops.hydro.steps import Stepped, TimeStep

    step, calls = TimeStep.run, []

    def broken(self, state, dt, forces):
        calls.append(0)
        return step(self, state, dt, forces) if len(calls) < 12 else Stepped(state, np.nan)

    file = tmp_path / "sedov-last.state"
    if blocked:
        file.mkdir()
    monkeypatch.setattr(TimeStep, "run", broken)
    code, out, err = hydro(*SHORT)
    assert code == 1
    assert "the time step has gone to zero in step" in err
    assert ("saved the last good state: sedov-last.state" in out) == (not blocked)
    assert ("the last good state is not saved: " in out) == blocked
    assert file.is_file() == (not blocked)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_run_killed_amid_a_checkpoint_goes_on_from_the_last_whole_one(facts, tmp_path):
    def watched(run, *arguments):
        if run.steps == 7:  # the checkpoint after this step is killed amid its data
            state.BLOCK = 100
            state.zlib = SimpleNamespace(crc32=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        return step(run, *arguments)

    step, child = Simulation._step, os.fork()
    if child == 0:
        try:
            Simulation._step = watched
            facts(*SHORT, "--max-steps", 12, "--checkpoint", "run.state", "--checkpoint-every", 4)
        finally:
            os._exit(1)  # it should be dead
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    again = "--checkpoint", "run.state", "--restart", "run.state", "--max-steps"
    assert facts(*SHORT, *again, 5)["steps"] == 5  # from 4, not from 8
    found = facts(*SHORT, *again, 12)
    straight = facts(*SHORT, "--max-steps", 12, "--checkpoint", "straight.state")
    for key in ("steps", "t", "dt", "e_norm"):
        assert found[key] == straight[key]
    files = [(tmp_path / name).read_bytes() for name in ("run.state", "straight.state")]
    assert files[0] == files[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.state", "straight.state"]


def test_a_mesh_that_cannot_be_relaxed_leaves_the_last_good_state(hydro, facts, monkeypatch):
    from femops.errors import HydroError
    from femops.hydro.ale.relaxation import Relaxation

    def tangled(self, position):
        raise HydroError("the relaxation has tangled the mesh")

    monkeypatch.setattr(Relaxation, "relaxed", tangled)
    code, out, err = hydro(*SHORT, "--ale", 3)
    assert code == 1
    assert "saved the last good state: sedov-last.state" in out
    assert "the relaxation has tangled the mesh" in err
    assert facts(*SHORT, "--max-steps", 4, "--restart", "sedov-last.state")


@pytest.mark.parametrize("option", ["--ale-length", "--ale-quality"])
def test_options_of_remaps_need_remaps(hydro, option):
    code, _, err = hydro("sedov", option, 0.5)
    assert code == 2
    assert "it has no effect without --ale" in err
