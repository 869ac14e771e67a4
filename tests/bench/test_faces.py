"""Rows of the benchmark of discontinuous functions."""

from __future__ import annotations

import pytest

from femops.bench import faces
from femops.errors import OperatorError


def test_rows_stand_beside_those_of_bp3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faces, "default_dofs", lambda *_: 120.0)
    result = faces.run_faces(("sip hermite",), orders=(2,), rounds=1, seconds=0.0)
    rows = {row["problem"]: row for row in result["rows"]}
    assert set(rows) == {"bp3", "sip hermite"}
    assert rows["bp3"]["over_bp3"] == 1.0
    each = {name: row["seconds_median"] / row["dofs"] for name, row in rows.items()}
    assert rows["sip hermite"]["over_bp3"] == pytest.approx(each["sip hermite"] / each["bp3"])
    assert [row["problem"] for row in result["solves"]] == ["bp3", "sip hermite"]
    assert all(row["iterations"] < 12 for row in result["solves"])


def test_unknown_problems_are_refused() -> None:
    with pytest.raises(OperatorError, match="choose one of bp3, sip"):
        faces.run_faces(("bp1",))
