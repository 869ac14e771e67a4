"""``femops tune``."""

import json

import pytest

from femops.bench import tune
from femops_kernels.tuning import database


@pytest.fixture
def table(tmp_path, monkeypatch):
    path = tmp_path / "tuning.json"
    for module in (database, tune):
        monkeypatch.setattr(module, "users_table", lambda: path)
    return path


def test_the_command(run, table):
    small = ["--order", "1", "--problem", "bp1", "--dofs", "60", "--rounds", "1"]
    code, out, err = run("tune", *small, "--setting", "chunks", "--level", "partial")
    assert (code, err) == (0, "")
    assert "chunks" in out
    assert f"1 settings are in {table}" in out
    code, out, err = run("tune", *small, "--setting", "chunks", "--level", "partial", "--json")
    assert json.loads(out) == {"rows": [], "table": str(table), "known": 1}
    out = run("tune", *small, "--setting", "chunks", "--level", "partial", "--json", "--again")[1]
    again = json.loads(out)
    assert (len(again["rows"]), again["known"]) == (1, 0)


@pytest.mark.parametrize(
    ("setting", "option"), [("level,chunks", "--size=4"), ("products", "--dofs=60")]
)
def test_options_without_a_part_are_refused(run, table, setting, option):
    code, _, err = run("tune", "--setting", setting, option)
    assert code == 2
    assert f"{option[:6]}: it has no part in --setting {setting}" in " ".join(err.split())
    assert not table.exists()


def test_a_level_that_cannot_be_the_fastest_is_measured_if_it_is_the_default(
    run, table, monkeypatch
):
    def measured(summands, levels=("full", "partial")):
        return {"full": 1.0} if len(levels) > 1 else {levels[0]: 3.0}

    monkeypatch.setattr(tune, "measure_levels", measured)
    small = ["--order", "1", "--problem", "bp1", "--dofs", "60", "--level", "partial"]
    code, out, err = run("tune", *small, "--setting", "level", "--json")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)["rows"]
    assert (row["found"], row["gain"], row["tried"]) == ("full", 3.0, 2)
