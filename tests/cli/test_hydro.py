"""``femops hydro``."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import femops
from femops.cli import main


def run(capsys, *arguments):
    """Exit code, and what was printed."""
    try:
        main(["hydro", *arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def facts(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_json_has_these_keys(capsys):
    found = facts(capsys, "sedov", "--refine", "1", "--max-steps", "3")
    wanted = {"steps", "t", "dt", "e_norm", "energy_change", "seconds", "compile_seconds", "rates"}
    assert wanted <= set(found)
    assert found["steps"] == 3
    assert set(found["rates"]) == {"cg_h1", "cg_l2", "forces", "update_quad_data", "total"}
    assert all(rate > 0 for rate in found["rates"].values())


def test_a_restarted_run_has_the_same_bits(capsys, tmp_path):
    short = "sedov", "--refine", "1", "--t-final", "0.5"
    whole, half = tmp_path / "whole.state", tmp_path / "half.state"
    straight = facts(capsys, *short, "--max-steps", "24", "--checkpoint", str(whole))
    facts(capsys, *short, "--max-steps", "11", "--checkpoint", str(half))
    again = "--restart", str(half), "--checkpoint", str(half), "--threads", "2"
    found = facts(capsys, *short, "--max-steps", "24", *again)
    for key in ("steps", "t", "dt", "e_norm"):
        assert found[key] == straight[key]
    assert half.read_bytes() == whole.read_bytes()


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


@pytest.mark.parametrize("name", [None, *FREE])
def test_a_restarted_run_has_the_options_of_its_checkpoint(capsys, tmp_path, checkpoint, name):
    """But for those that may change, and are given: the command tells of these."""
    from femops.hydro import run_options

    before, again = run_options(checkpoint), tmp_path / "b.state"
    given = () if name is None else (f"--{name.replace('_', '-')}", str(FREE[name]))
    arguments = "sedov", "--refine", "1", "--max-steps", "3", "--restart", str(checkpoint), *given
    found = facts(capsys, *arguments, "--checkpoint", str(again))
    changed = {} if name is None else {name: {"checkpoint": before[name], "now": FREE[name]}}
    assert found["changed"] == changed
    assert run_options(again) == before | ({} if name is None else {name: FREE[name]})
    assert before["blast"] == 2.0
    assert before["cg_max"] == 299
    if name is not None:
        said = run(capsys, *arguments)[1]
        assert f"goes on with {given[0]} {FREE[name]}; the checkpoint has {before[name]}" in said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("sedov", "--blast", "1"), "blast is 2.0: it cannot go on with 1.0"),
        (("sedov", "--no-viscosity"), "viscosity is True: it cannot go on with False"),
        (("sedov", "--order-thermo", "2"), "order_thermo is 1: it cannot go on with 2"),
        (("sedov", "--order-kinematic", "2"), "order_kinematic is 3: it cannot go on with 2"),
        (("sod",), "is of the problem sedov, not of sod"),
    ],
)
def test_a_restarted_run_keeps_its_physics(capsys, tmp_path, monkeypatch, checkpoint, given, words):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *given, "--refine", "1", "--restart", str(checkpoint))
    assert code == 1
    assert words in " ".join(err.split())


def test_a_restarted_run_takes_the_problem_of_its_checkpoint(capsys, checkpoint):
    again = "--refine", "1", "--max-steps", "3", "--restart", str(checkpoint)
    found, named = facts(capsys, *again), facts(capsys, "sedov", *again)
    assert found["problem"] == "sedov"
    assert found["run"]["arguments"] == named["run"]["arguments"]
    assert [found[key] for key in ("t", "e_norm")] == [named[key] for key in ("t", "e_norm")]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--max-steps", "1"), "the end is step 1: give a larger --max-steps"),
        (("--max-steps", "2"), "the end is step 2: give a larger --max-steps"),
        (("--t-final", "1e-6"), "the end is t = 1e-06: give a later --t-final"),
        (("--t-final", "1e-6", "--max-steps", "1"), "the end is t = 1e-06: give a later"),
    ],
)
def test_a_restarted_run_that_is_at_its_end_tells_of_it(capsys, checkpoint, given, words):
    code, out, err = run(capsys, "sedov", "--refine", "1", "--restart", str(checkpoint), *given)
    assert code == 0, err
    assert "no step was taken: the checkpoint is at step 2, t = " in out
    assert words in out
    assert facts(capsys, "--refine", "1", "--restart", str(checkpoint), *given)["steps"] == 2


def test_files_are_written(capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures are drawn: needs the extra viz")
    series, picture = tmp_path / "run.pvd", tmp_path / "run.png"
    movie = tmp_path / "run.gif"
    options = "--save", str(series), "--every", "4", "--picture", str(picture), "--fom"
    options += "--movie", str(movie)
    code, out, err = run(capsys, "sod", "--refine", "2", "--max-steps", "8", *options)
    assert code == 0, err
    assert "UpdateQuadData" in out
    assert picture.stat().st_size > 1000
    assert (tmp_path / "run-velocity.png").stat().st_size > 1000
    image = pytest.importorskip("PIL.Image")
    with image.open(movie) as shown:
        assert shown.n_frames == 3
    with femops.io.TimeSeries(series, existing="continue") as found:
        assert len(found.times) == 3
        assert found.times[0] == 0.0


def test_verification_prints_both(capsys):
    code, out, err = run(capsys, "--verify", "5")
    assert code == 0, err
    line = next(line for line in out.splitlines() if "sod" in line)
    assert line.split().count("413") == 2
    assert line.split().count("3.2012077410e+01") == 2


def test_mesh_files_are_taken(capsys, tmp_path):
    from femops.hydro import built_in

    path = femops.save(tmp_path / "square.mesh", built_in("square01_quad"))
    given = "sedov", "--refine", "1", "--max-steps", "5"
    file = facts(capsys, *given, "--mesh", str(path))
    own = facts(capsys, *given)
    assert file["e_norm"] == pytest.approx(own["e_norm"], rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("sedov", "sod"), 2, "got 2 problems: give one, or --restart or --verify"),
        ((), 2, "got 0 problems: give one, or --restart or --verify"),
        (("nothing",), 1, "no problem 'nothing'"),
        (("gresho", "--dim", "1"), 2, "dimension 2, 3"),
        (("--verify", "12"), 1, "no reference run 12"),
        (("--verify", "0"), 2, "value for --verify: got '0': give a whole number >= 1"),
        (("--verify", "5", "--dim", "2"), 2, "--dim: --verify does not take it"),
        (("sedov", "--every", "3"), 2, "--every: it has no effect without --save or --movie"),
        (("sedov", "--checkpoint-every", "3"), 2, "no effect without --checkpoint"),
        (("sedov", "--dim", "3", "--mesh", "rt2D"), 2, "got 3, but the mesh rt2D has dimension 2"),
        (("sedov", "--mesh", ""), 1, "the name of the mesh is empty"),
        (("sedov", "--cfl", "1e-300"), 1, "are more than 1e+10: give a larger cfl"),
        (("sedov", "--blast", "1e300"), 1, "forces are too large to compute with in step 1"),
        (("sedov", "--order-kinematic", "٣"), 2, "--order-kinematic': got '٣'"),
        (("sedov", "--cfl", "٣"), 2, "--cfl': got '٣'"),
        (("sedov", "--cfl", "0.2_5"), 2, "--cfl': got '0.2_5'"),
        (("sedov", "--mesh", "4x4"), 1, "give walls"),
        (("sedov", "--cg-tol", "2"), 2, "< 1"),
        (("sedov", "--picture", "no/u.png"), 1, "no folder 'no'"),
        (("sedov", "--movie", "u.mp4"), 1, "does not end in .gif"),
    ],
)
def test_errors_are_one_line(capsys, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)  # the last good state is saved there
    found, out, err = run(capsys, *arguments)
    assert found == code
    assert words in " ".join(err.split())
    assert "Traceback" not in err + out


def test_the_last_good_state_is_saved(capsys, tmp_path, monkeypatch):
    from femops.hydro.steps import Stepped, TimeStep

    monkeypatch.chdir(tmp_path)
    step, calls = TimeStep.run, []

    def broken(self, state, dt, forces):
        calls.append(0)
        return step(self, state, dt, forces) if len(calls) < 12 else Stepped(state, np.nan)

    monkeypatch.setattr(TimeStep, "run", broken)
    code, out, err = run(capsys, "sedov", "--refine", "1")
    assert code == 1
    assert "the time step has gone to zero in step" in err
    assert "saved the last good state: sedov-last.state" in out
    assert (tmp_path / "sedov-last.state").is_file()


KILLED = """
import os, signal
from femops.cli import main
from femops.hydro import simulation
from femops.io.checkpoint import state_file

def watched(run, *arguments):
    if run.steps == 7:  # the checkpoint after this step is killed amid its data
        state_file.BLOCK = 100
        state_file.zlib = type("zlib", (), {"crc32": die})
    return step(run, *arguments)

def die(*data):
    os.kill(os.getpid(), signal.SIGKILL)

step, simulation.Simulation._step = simulation.Simulation._step, watched
main("hydro sedov --refine 1 --max-steps 12 --checkpoint run.state --checkpoint-every 4".split())
"""


def test_a_run_killed_amid_a_checkpoint_goes_on_from_the_last_whole_one(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    again = "--checkpoint", "run.state", "--restart", "run.state", "--max-steps"
    given = "sedov", "--refine", "1"
    assert facts(capsys, *given, *again, "5")["steps"] == 5  # from 4, not from 8
    found = facts(capsys, *given, *again, "12")
    straight = facts(capsys, *given, "--max-steps", "12", "--checkpoint", "straight.state")
    for key in ("steps", "t", "dt", "e_norm"):
        assert found[key] == straight[key]
    files = [Path(name).read_bytes() for name in ("run.state", "straight.state")]
    assert files[0] == files[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.state", "straight.state"]


def test_remaps_are_told_in_json(capsys):
    found = facts(capsys, "sedov", "--refine", "1", "--max-steps", "9", "--ale", "4")
    assert [remap["step"] for remap in found["remaps"]] == [4, 8]
    for remap in found["remaps"]:
        before, after = remap["before"], remap["after"]
        assert abs(after["mass"] / before["mass"] - 1.0) < 1e-13
        totals = [state["internal"] + state["kinetic"] for state in (before, after)]
        assert abs(totals[1] / totals[0] - 1.0) < 1e-13
        assert len(before["momentum"]) == len(after["momentum"]) == 2
        assert remap["quality"][0] < remap["quality"][1]


def test_a_restarted_run_with_remaps_has_the_same_bits(capsys, tmp_path):
    short = "sedov", "--refine", "1", "--ale", "4"
    whole, half = tmp_path / "whole.state", tmp_path / "half.state"
    straight = facts(capsys, *short, "--max-steps", "14", "--checkpoint", str(whole))
    facts(capsys, *short, "--max-steps", "9", "--checkpoint", str(half))
    again = "--restart", str(half), "--checkpoint", str(half)
    found = facts(capsys, *short, "--max-steps", "14", *again)
    assert found["e_norm"] == straight["e_norm"]
    assert half.read_bytes() == whole.read_bytes()
    assert abs(found["energy_change"]) < 1e-3


def test_a_mesh_that_cannot_be_relaxed_leaves_the_last_good_state(capsys, tmp_path, monkeypatch):
    from femops.errors import HydroError
    from femops.hydro.ale.relaxation import Relaxation

    def tangled(self, position):
        raise HydroError("the relaxation has tangled the mesh")

    monkeypatch.setattr(Relaxation, "relaxed", tangled)
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "sedov", "--refine", "1", "--ale", "3")
    assert code == 1
    assert "saved the last good state: sedov-last.state" in out
    assert "the relaxation has tangled the mesh" in err
    assert facts(
        capsys, "sedov", "--refine", "1", "--max-steps", "4", "--restart", "sedov-last.state"
    )


@pytest.mark.parametrize("option", ["--ale-length", "--ale-quality"])
def test_options_of_remaps_need_remaps(capsys, option):
    code, _, err = run(capsys, "sedov", option, "0.5")
    assert code == 2
    assert "it has no effect without --ale" in " ".join(err.split())
