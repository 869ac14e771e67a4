"""``femops remap``."""

import json
from dataclasses import replace

from femops.hydro.remap import PUBLISHED

SHORT = "remap", "5", "--refine", 1, "--t-final", 0.05
KEYS = "problem elements dofs steps mass mass_change min max seconds"


def test_json_has_these_keys_and_a_picture_is_drawn(run, tmp_path):
    code, out, err = run(*SHORT, "--picture", "a.png", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert set(found) == set(KEYS.split())
    assert (found["elements"], found["dofs"], found["steps"]) == (36, 576, 25)
    assert abs(found["mass_change"]) < 1e-14
    assert (tmp_path / "a.png").is_file()


def test_options_have_remhos_names(run):
    code, out, err = run(*SHORT, "-ho", 3, "-lo", 0, "-fct", 0, "--json")
    assert code == 0, err
    assert json.loads(out)["max"] > 1.0  # nothing limits it


def test_a_published_run_and_one_that_is_not(run, monkeypatch):
    code, out, err = run("remap", "--verify", 5, "--json")
    assert code == 0, err
    (found,) = json.loads(out)
    assert found["agrees"]
    assert f"{found['mass']:.10g}" == "0.1623263888"
    monkeypatch.setitem(PUBLISHED, 5, replace(PUBLISHED[5], t_final=0.005))
    code, _, err = run("remap", "--verify", 5)
    assert (code, err) == (1, "femops: runs 5 are not as published\n")


def test_bad_input(run):
    for arguments, code, message in (
        ("", 2, "got 0 problems: give one, or --verify"),
        ("a", 2, "got 'a': give a whole number"),
        ("3", 1, "there is no problem 3 of advection"),
        ("5 -ho 2", 1, "ho is 2"),
        ("5 --mesh nowhere", 1, "'nowhere' does not exist"),
        ("--verify 4", 1, "there is no run 4 of Remhos here"),
        ("--verify 5 --dt 0.1", 2, "--verify does not take it"),
        ("5 --refine 1 --dt 0.5", 1, "a step of 0.5 makes new extremes"),
    ):
        found, _, err = run("remap", *arguments.split())
        assert found == code, arguments
        assert message in " ".join(err.split()), arguments
