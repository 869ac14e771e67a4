"""``femops verify``: repeated runs, and what is said where bits differ."""

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import femops
from femops.cli import solve, verify
from femops.cli.hydro.command import hydro
from femops.cli.record import OUTPUTS

LOW = "--refine", 1, "--order-kinematic", 1, "--order-thermo", 0
"""Of orders whose kernels are compiled soon."""


@pytest.fixture
def recorded(run, monkeypatch, tmp_path):
    """Make a run with lanes of two slots, and its document; lanes have eight slots afterwards."""

    def make(*arguments):
        monkeypatch.setenv("FEMOPS_LANES", "2")
        code, out, err = run(*arguments, "--json")
        assert code == 0, err
        path = tmp_path / "run.json"
        path.write_text(out)
        monkeypatch.setenv("FEMOPS_LANES", "8")
        return path, json.loads(out)

    return make


def changed(path, **entries):
    document = json.loads(path.read_text())
    document["run"] |= entries
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "arguments",
    [
        ("solve", "helmholtz", "disc.mesh", "--order", 2, "--k", 5.5, "--reproducible"),
        ("hydro", "sedov", *LOW, "--max-steps", 3, "--no-viscosity", "--reproducible"),
    ],
    ids=lambda words: words[0],
)
def test_other_lanes_repeat_a_run(run, recorded, arguments):
    path, document = recorded(*arguments)
    assert {str(word) for word in arguments} <= set(document["run"]["arguments"])
    assert run("verify", path)[:2] == (
        0,
        f"The same bits: the result has the hash {document['run']['result']} here too.\n",
    )


def test_what_differs_is_listed(run, recorded, tmp_path, monkeypatch):
    femops.save(tmp_path / "own.mesh", femops.box((2, 2)))
    path, document = recorded("solve", "poisson", "own.mesh", "--order", 1, "--reproducible")
    before = document["run"]
    changed(
        path,
        versions=before["versions"] | {"numpy": "0.1"},
        functions=before["functions"] | {"exp of NumPy": "0"},
    )
    femops.save(tmp_path / "own.mesh", femops.box((2, 3)))
    again, repeat = [], verify._repeated

    def once(*given):
        again.extend([] if again else [repeat(*given)])
        return again[0]

    monkeypatch.setattr(verify, "_repeated", once)
    code, out, err = run("verify", path, "--json")
    found = json.loads(out)
    assert (code, err) == (1, "")
    assert (found["same"], found["result"]) == (False, before["result"])
    lines = found["differences"]
    assert lines[0].startswith(f"the mesh: its checksum was {before['mesh']}, here it is ")
    assert lines[1].startswith("numpy: was 0.1, here it is ")
    assert lines[2:4] == [
        "lanes float64: was 2, here it is 8",
        "lanes float32: was 2, here it is 8",
    ]
    assert lines[4] == "exp of NumPy: they give other bits here"
    assert any(line.startswith("l2 error: was ") for line in lines[5:])
    text = run("verify", path)
    assert (text[0], text[1].splitlines()[3:]) == (1, [f"  {line}" for line in lines])
    assert found["result_here"] in text[1]


def test_a_checkpoint_that_has_changed_is_refused(run, recorded, tmp_path):
    short = "hydro", "sedov", *LOW, "--reproducible"
    state = tmp_path / "half.state"
    recorded(*short, "--max-steps", 1, "--checkpoint", state)
    path, _ = recorded(*short, "--max-steps", 2, "--restart", state)
    assert run("verify", path)[0] == 0
    state.write_bytes(state.read_bytes() + b"\0")
    code, _, err = run("verify", path)
    assert code == 2
    assert "has changed since the run went on from it" in " ".join(err.split())
    if sys.platform == "linux":  # a file that root cannot read either
        path.write_text(path.read_text().replace(str(state), "/proc/self/mem"))
        code, _, err = run("verify", path)
        assert (code, "/proc/self/mem cannot be read" in " ".join(err.split())) == (2, True)


def test_what_is_no_record_is_refused(run, tmp_path):
    path = tmp_path / "run.json"
    for text, message in (
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "no record of a run"),
        ('{"run": {"result": "1"}}', "no record of a run"),
    ):
        if text is not None:
            path.write_text(text)
        code, _, err = run("verify", path)
        assert (code, message in " ".join(err.split())) == (2, True), text
    if Path("/dev/zero").exists():  # which has no end
        assert run("verify", "/dev/zero")[0] == 2


def test_a_record_that_was_changed_by_hand_is_refused(run, recorded):
    path, document = recorded("solve", "poisson", "disc.mesh", "--order", 1)
    for entries, message in (
        ({"arguments": ["tune"]}, "no record of a run"),
        ({"files": {"restart": "0"}}, "no record of a run"),
        ({"arguments": ["solve", 1]}, "no record of a run"),
        ({"ranks": 3}, "mpiexec -n 3 femops solve poisson disc.mesh"),  # it is not reproducible
    ):
        changed(path, **(document["run"] | entries))
        code, _, err = run("verify", path)
        assert (code, message in " ".join(err.split())) == (2, True), entries


def test_other_bits_without_a_cause_are_a_defect(run, recorded, monkeypatch):
    """Other lanes are no cause."""
    path, document = recorded("solve", "poisson", "disc.mesh", "--order", 1, "--reproducible")
    again = document["run"]
    here = again | {"result": "0" * 16, "machine": again["machine"] | {"lanes_float64": 8}}
    monkeypatch.setattr(verify, "_repeated", lambda *_: document | {"run": here})
    code, out, _ = run("verify", path)
    assert (code, "this is a defect of femops" in out) == (1, True)
    assert "lanes float64: was 2, here it is 8" in out


def test_a_run_that_fails_here_is_said(run, recorded, tmp_path):
    femops.save(tmp_path / "own.mesh", femops.box((2, 2)))
    path, _ = recorded("solve", "poisson", "own.mesh", "--order", 1, "--reproducible")
    (tmp_path / "own.mesh").unlink()
    assert run("verify", path) == (1, "", "femops: the run cannot be repeated here, see above\n")


@pytest.mark.parametrize(
    "more", [("--save", "u.vtu"), ("--picture=u.vtu",), ("--json",), ("--help",)], ids=str
)
def test_an_option_that_does_not_shape_the_result_is_not_repeated(run, recorded, tmp_path, more):
    """It could overwrite files."""
    path, document = recorded("solve", "poisson", "disc.mesh", "--order", 1)
    (tmp_path / "u.vtu").write_text("mine")
    changed(path, arguments=[*document["run"]["arguments"], *more])
    code, out, err = run("verify", path)
    assert (code, out) == (2, "")
    assert "does not shape the result" in " ".join(err.split())
    assert (tmp_path / "u.vtu").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ["solve"],
        ["solve", "poisson", "disc.mesh", "--no-such"],
        ["hydro", "--verify", "1"],
        ["solve", "poisson", "\0"],
        ["solve", "poisson", "\ud800"],
        ["solve", "poisson", "x" * 200_000],
    ],
    ids=range(6),
)
def test_words_that_are_no_run_are_not_repeated(run, recorded, words):
    path, _ = recorded("solve", "poisson", "disc.mesh", "--order", 1)
    changed(path, arguments=words)
    code, out, err = run("verify", path)
    assert (code, out, "RUN.json" in err) == (2, "", True)


def test_a_repeated_run_that_fails_writes_nothing(run, recorded, tmp_path):
    """The command itself would write its last good state."""
    path, document = recorded("hydro", "sedov", *LOW, "--max-steps", 1, "--reproducible")
    changed(path, arguments=[*document["run"]["arguments"], "--max-steps", "3", "--cfl", "1e300"])
    before = sorted(tmp_path.iterdir())
    assert run("verify", path)[0] == 1
    assert sorted(tmp_path.iterdir()) == before


def test_the_current_folder_has_no_code(run, recorded, tmp_path):
    """A record may come with other files."""
    path, _ = recorded("solve", "poisson", "disc.mesh", "--order", 1, "--reproducible")
    (tmp_path / "femops").mkdir()
    for name in ("femops/__init__.py", "femops/__main__.py", "json.py"):
        (tmp_path / name).write_text("open('ran', 'w')")
    assert run("verify", path)[0] == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_a_request_to_terminate_ends_the_repeated_run(run, recorded, tmp_path, monkeypatch):
    path, _ = recorded("hydro", "sedov", *LOW, "--max-steps", 1, "--reproducible")
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "no folder")
        assert "no temporary folder can be made" in run("verify", path)[2]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ["hydro", "sedov", *map(str, LOW), "--refine", "4", "--reproducible"]
    changed(path, arguments=[*arguments, "--t-final", "1000", "--max-steps", "1000000000"])
    command = [sys.executable, "-m", "femops", "verify", str(path), "--threads", "1"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(
        command,
        env=environment,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
    )
    while not any(temporary.iterdir()):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)  # a signal in the instant in which a folder is made leaves it behind
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)  # the repeated run closes the pipe when it ends
    assert process.returncode == 128 + signal.SIGHUP
    assert not any(temporary.iterdir())


def test_files_that_options_name_are_no_part_of_a_record():
    """An option with a path writes a file, but for that of the checkpoint to go on from."""
    found = {}
    for command in (solve._solve, hydro):
        found |= inspect.signature(command, eval_str=True).parameters
    paths = {name for name, option in found.items() if "Path" in str(option.annotation)}
    assert paths - {*OUTPUTS} == {"restart"}
