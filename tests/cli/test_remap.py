"""``femops remap``."""

import json

import pytest

from femops.cli import main


def run(capsys, *arguments):
    """Exit code, and what was printed."""
    try:
        main(["remap", *arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


SHORT = "5", "--refine", "1", "--t-final", "0.05"


def test_json_has_these_keys(capsys):
    code, out, err = run(capsys, *SHORT, "--json")
    assert code == 0, err
    found = json.loads(out)
    wanted = {
        "problem",
        "elements",
        "dofs",
        "steps",
        "mass",
        "mass_change",
        "min",
        "max",
        "seconds",
    }
    assert set(found) == wanted
    assert (found["elements"], found["dofs"], found["steps"]) == (36, 576, 25)
    assert abs(found["mass_change"]) < 1e-14


def test_options_have_remhos_names(capsys):
    code, out, err = run(capsys, *SHORT, "-ho", "3", "-lo", "0", "-fct", "0", "--json")
    assert code == 0, err
    assert json.loads(out)["max"] > 1.0  # nothing limits it


def test_a_published_run(capsys):
    code, out, err = run(capsys, "--verify", "5", "--json")
    assert code == 0, err
    (found,) = json.loads(out)
    assert found["agrees"]
    assert f"{found['mass']:.10g}" == "0.1623263888"


def test_a_run_that_is_not_as_published(capsys, monkeypatch):
    from dataclasses import replace

    from femops.hydro.remap import PUBLISHED

    monkeypatch.setitem(PUBLISHED, 5, replace(PUBLISHED[5], t_final=0.005))
    code, _, err = run(capsys, "--verify", "5")
    assert code == 1
    assert err == "femops: runs 5 are not as published\n"


def test_a_picture(capsys, tmp_path):
    code, out, err = run(capsys, *SHORT, "--picture", str(tmp_path / "a.png"))
    assert code == 0, err
    assert f"wrote {tmp_path / 'a.png'}" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "got 0 problems: give one, or --verify"),
        (("a",), 2, "got 'a': give a whole number"),
        (("3",), 1, "there is no problem 3 of advection"),
        (("5", "-ho", "2"), 1, "ho is 2"),
        (("5", "--mesh", "nowhere"), 1, "'nowhere' does not exist"),
        (("--verify", "4"), 1, "there is no run 4 of Remhos here"),
        (("--verify", "5", "--dt", "0.1"), 2, "--verify does not take it"),
        (("5", "--refine", "1", "--dt", "0.5"), 1, "a step of 0.5 makes new extremes"),
    ],
)
def test_bad_input(capsys, arguments, code, message):
    found, _, err = run(capsys, *arguments)
    assert found == code
    assert message in " ".join(err.split())
