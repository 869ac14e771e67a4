"""Libraries on one machine, files of machines, and their tables; speeds are not tested."""

import json
import os

import pytest
from matplotlib.image import imread

from femops.bench.comparison import (
    markdown,
    read_comparisons,
    run_comparison,
    save_comparison,
    speed_rows,
)
from femops.bench.drawing import draw
from femops.bench.peers import interface
from femops.errors import FileError, OperatorError


@pytest.fixture(scope="module")
def measured():
    """A tiny comparison, of femops alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "find_spec", lambda _: None)
        return run_comparison((1, 2), 60, {2: 100.0}, rounds=1, seconds=0.0)


def peer(row, label, speed):
    """A row as that of a peer."""
    return row | {"implementation": label, "dofs_per_second": speed}


@pytest.fixture
def document(measured):
    """The comparison, with rows of a peer that has two ways."""
    found = json.loads(json.dumps(measured)) | {"date": "2026-11-27"}
    found["machine"]["processor"] = "Fast (R) CPU @ 2 GHz"
    found["rows"] += [
        peer(row, f"other 1.{row['order']} (some build)", 2e7) for row in found["rows"]
    ]
    return found


def test_keys_and_cases(measured):
    assert list(measured) == [
        *("format", "date", "versions", "machine", "limits", "rows", "solves", "notes")
    ]
    assert {"femops", "python", "numpy"} <= set(measured["versions"])
    assert {(row["problem"], row["mesh"], row["order"]) for row in measured["rows"]} == {
        (problem, mesh, order)
        for problem in ("bp1", "bp3")
        for mesh in ("cartesian", "multilinear")
        for order in (1, 2)
    }
    assert {row["threads"] for row in measured["rows"]} == {1}
    assert [row["label"] for row in measured["solves"]] == ["femops multigrid"]
    for name in interface.PEERS:
        assert any(name in note for note in measured["notes"]), name


def test_a_file_is_named_by_processor_and_date_and_read_again(document, tmp_path):
    file = save_comparison(tmp_path, document)
    assert file.name == "fast-r-cpu-2-ghz_2026-11-27.json"
    assert save_comparison(tmp_path, document) == file
    assert read_comparisons(tmp_path) == [document]


def test_tables_have_a_row_for_each_library(document):
    lines = markdown([document])
    assert lines[0] == "### Fast (R) CPU @ 2 GHz, 2026-11-27"
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    assert cells[0] == ["problem", "mesh", "library, GDoF/s", "p = 1", "p = 2"]
    assert ["bp3", "multilinear", "other 1.1", "0.02", ""] in cells
    assert ["bp3", "multilinear", "other 1.2", "", "0.02"] in cells
    own = next(row for row in document["rows"] if row["order"] == 2)
    row = next(row for row in cells if row[:3] == ["bp1", "cartesian", "femops"])
    assert row[4] == f"{own['dofs_per_second'] / 1e9:.3g}"
    assert cells[-1][2] == "femops multigrid"
    assert cells[-1][-1] == "1"


def test_machines_are_drawn(document, tmp_path):
    another = document | {"date": "2026-11-28"}
    rows = speed_rows([document, another])
    assert {row["library"] for row in rows} == {"femops", "other"}
    assert len({row["machine"] for row in rows}) == 2
    both = draw(tmp_path / "all.png", "machines", rows)
    assert both.stat().st_size > 10_000
    one = draw(tmp_path / "one.png", "machines", speed_rows([document]))
    small, large = (imread(path).shape for path in (one, both))
    assert large[:2] == (2 * small[0], small[1])  # a row of panels for each machine


def bad_files(document):
    """Texts of bad files, with a part of the message."""
    rows = [dict(document["rows"][0])]
    del rows[0]["order"]
    return (
        ("{", "is no JSON document"),
        (b"\xff\xfe\x00", "is no JSON document"),
        ("[]", "is not of femops bench machine"),
        ("{}", "is not of femops bench machine"),
        (json.dumps(document | {"format": 99}), "has format 99, this femops reads 1"),
        (json.dumps(document | {"rows": rows}), "it lacks order in rows"),
        (json.dumps(document | {"solves": 3}), "it lacks a list of solves"),
        (json.dumps(document | {"date": 3}), "it lacks date of the machine, or has another type"),
        (json.dumps(document | {"rows": [*rows, 7]}), "it lacks a list of rows"),
        (json.dumps(document).replace('"dofs": ', '"dofs": "x", "dof": '), "it lacks dofs in rows"),
        (json.dumps(document | {"machine": {}}), "it lacks processor of the machine"),
        (json.dumps({"format": 1, "rows": []}), "it lacks date, versions, machine"),
    )


def test_bad_files_are_named(document, tmp_path):
    with pytest.raises(FileError, match="there is no folder"):
        read_comparisons(tmp_path / "none")
    if os.name == "posix":
        os.mkfifo(tmp_path / "pipe.json")
        with pytest.raises(FileError, match="not a regular file"):
            read_comparisons(tmp_path)
        (tmp_path / "pipe.json").unlink()
    with pytest.raises(FileError, match="there is no folder"):
        save_comparison(tmp_path / "none", document)
    with pytest.raises(FileError, match=r"has no .json files"):
        read_comparisons(tmp_path)
    save_comparison(tmp_path, document)
    for text, words in bad_files(document):
        file = tmp_path / "bad.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(FileError, match=words) as caught:
            read_comparisons(tmp_path)
        assert "bad.json" in str(caught.value)


def test_bad_sizes():
    for given in ({"orders": ()}, {"dofs": 0}, {"solves": {2: 0}}, {"rounds": 0}):
        with pytest.raises(OperatorError):
            run_comparison(**({"orders": (1,), "solves": {}} | given))
