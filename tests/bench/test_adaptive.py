"""Rows of the benchmark of locally refined meshes."""

from __future__ import annotations

import pytest

from femops.bench import adaptive
from femops.errors import OperatorError


def test_elements_stand_beside_those_of_a_uniform_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "default_dofs", lambda *_: 700.0)
    result = adaptive.run_adaptive(orders=(2,), levels=("partial",), rounds=1, seconds=0.0)
    uniform, refined = result["rows"]
    assert (uniform["kind"], refined["kind"]) == ("uniform", "refined")
    assert uniform["hanging"] == 0.0 < refined["hanging"] < 1.0
    assert uniform["over_uniform"] == 1.0
    each = [row["seconds_median"] / row["elements"] for row in (uniform, refined)]
    assert refined["over_uniform"] == pytest.approx(each[1] / each[0])
    assert all(row["iterations"] < 12 for row in result["solves"])


def test_unknown_levels_are_refused() -> None:
    with pytest.raises(OperatorError, match="matrix-free"):
        adaptive.run_adaptive(levels=("half",))
