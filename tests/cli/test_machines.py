"""Commands ``femops bench machine`` and ``compare``."""

import json

import pytest

from femops.bench import comparison

SPEED = {"problem": "bp3", "mesh": "multilinear", "dofs": 8, "implementation": "other 1.2 (wheel)"}
LIMITS = {"triad_gbytes_per_second": 20.0, "fma_gflops_per_second": 60.0, "threads": 1}
DOCUMENT = {
    "format": 1,
    "date": "2026-11-27",
    "versions": {},
    "machine": {"processor": "Fast (R) CPU"} | LIMITS,
    "limits": [LIMITS],
    "rows": [SPEED | {"order": order, "dofs_per_second": 2e7} for order in (2, 4)],
    "solves": [],
    "notes": ["mfem is not installed: pip install mfem"],
}


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Options of each comparison, which measures nothing."""
    found = []

    def measured(**options):
        found.append(options)
        assert callable(options.pop("progress"))
        return DOCUMENT | {"rows": []}

    monkeypatch.setattr(comparison, "run_comparison", measured)
    (tmp_path / "files").mkdir()
    return found


def test_machine_saves_its_file(run, given, tmp_path):
    code, out, err = run("bench", "machine", "--save", "files")
    assert code == 0
    assert "fast-r-cpu_2026-11-27.json" in out + err
    assert "mfem is not installed" in out
    assert run("bench", "machine", "--quick", "--json")[0] == 0
    assert run("bench", "machine", "--quick", "--rounds", 5, "--json")[0] == 0
    assert given[0] == {}
    assert [(one["orders"], one["rounds"]) for one in given[1:]] == [((2, 4), 1), ((2, 4), 5)]
    assert [file.name for file in (tmp_path / "files").iterdir()] == ["fast-r-cpu_2026-11-27.json"]


def test_the_folder_is_checked_before_measuring(run, given):
    code, _, err = run("bench", "machine", "--save", "none")
    assert code == 1
    assert "there is no folder 'none'" in err
    assert given == []


def test_compare_prints_tables_and_draws(run, tmp_path):
    odd = [row | {"implementation": "$x_{$ 1.3"} for row in DOCUMENT["rows"]]  # no formula
    document = DOCUMENT | {
        "machine": LIMITS | {"processor": "$a_{$"},
        "rows": DOCUMENT["rows"] + odd,
    }
    comparison.save_comparison(tmp_path, document)
    code, out, _ = run("bench", "compare", ".", "--plot", "all.png")
    assert code == 0
    assert "| bp3 | multilinear | other 1.2 | 0.02 | 0.02 |" in out
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(run("bench", "compare", ".", "--json")[1]) == [document]


def test_bad_folders_and_files(run, tmp_path):
    code, _, err = run("bench", "compare", "none")
    assert (code, "there is no folder 'none'" in err) == (1, True)
    code, _, err = run("bench", "compare", ".")
    assert (code, "has no .json files" in err) == (1, True)
    (tmp_path / "old.json").write_text(json.dumps(DOCUMENT | {"format": 0}))
    code, _, err = run("bench", "compare", ".")
    assert (code, "'old.json' has format 0" in err) == (1, True)
