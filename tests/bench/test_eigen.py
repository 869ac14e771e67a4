"""``femops bench eigen``: all methods come to the same energies."""

from __future__ import annotations

import json
from typing import Any

import pytest

import femops
from femops.bench.solvers.eigen import METHODS, run_eigen

SMALL: dict[str, Any] = {"order": 4, "elements": 3, "states": 4, "tol": 1e-3}


def test_all_methods_come_to_the_same_residual() -> None:
    found = run_eigen(**SMALL)
    rows = found["rows"]
    assert json.loads(json.dumps(found))["rows"] == rows
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        assert row["converged"]
        assert row["residual"] <= 1.1 * 1e-3 * 2.5
        assert row["error"] == pytest.approx(rows[0]["error"], abs=1e-5)
        assert row["error"] < 0.2  # of a coarse mesh
        assert row["processor_seconds"] > 0.0
    assert rows[0]["times_as_long"] == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ("eigsh",)}, "method 'eigsh': choose one of chebyshev"),
        ({"methods": ()}, "nothing to measure"),
        ({"states": 0}, "nothing to measure"),
        ({"tol": 2.0}, "tol = 2.0"),
    ],
)
def test_wrong_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises(femops.errors.OperatorError, match=message):
        run_eigen(**(SMALL | given))
