"""Benchmark of several fields: iterations by M, and values beside published ones."""

from __future__ import annotations

from itertools import islice

import pytest

from femops.bench import fields
from femops.bench.fields import PROBLEMS, WITH, Solves, mesh_for, run_fields
from femops.errors import OperatorError


def test_solves_stand_beside_those_with_factors() -> None:
    result = run_fields(("solid",), (2,), ("blocks",), WITH, refine=(0,))
    rows, values = result["rows"], result["values"]
    assert [row["with"] for row in rows] == [M for M in WITH for _ in range(4)]
    assert all(row["failure"] is None and row["solves"] == 1 for row in rows)
    assert all(row["most"] == 1 for row in rows if row["with"] == "direct")
    assert all(row["most"] <= 16 for row in rows)
    assert all(abs(value["difference"]) < 1e-3 for value in values)


# problem, cells, order, times refined, stages, and the largest difference from published values
QUICK = [
    ("cavity", "blocks", 4, 0, 2, 2e-2),
    ("step", "blocks", 3, 0, 4, 1.0),  # at 800 residuals grow before they fall
    ("step", "blocks", 4, 0, 2, 4e-2),
    ("duct", "blocks", 2, 0, 1, 1.5),  # likewise
    ("cylinder", "blocks", 4, 0, 1, 1e-2),
    ("column", "simplices", 2, 0, 1, 2e-3),
    ("solid", "blocks", 4, 0, 4, 1e-6),
    ("solid", "simplices", 3, 0, 4, 2e-4),
    ("reactions", "blocks", 2, 0, 1, 1e-9),
]
FINE = [
    ("cavity", "blocks", 4, 2, 3, 4e-3),
    ("step", "blocks", 4, 1, 4, 2e-2),
    ("cylinder", "blocks", 4, 2, 1, 1e-4),
    ("duct", "blocks", 3, 0, 1, 0.2),
    ("column", "blocks", 4, 1, 2, 1e-4),
]


@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.exhaustive) for case in FINE)], ids=str
)
def test_values_are_those_published(case: tuple[str, str, int, int, int, float]) -> None:
    name, cells, order, refine, stages, bound = case
    run = PROBLEMS[name].run(mesh_for(name, cells, refine), order, Solves("auto"))
    found = [*islice(run, stages)]
    assert len(found) == stages
    for stage, values in found:
        for what, (ours, published) in values.items():
            assert abs(ours - published) < bound, (stage, what, ours, published)


def test_a_failure_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_MOST", 2)
    rows = run_fields(("solid",), (2,), ("blocks",), ("blocks",), refine=(0,))["rows"]
    assert len(rows) == 1
    assert "not converged" in rows[0]["failure"]
    assert rows[0]["iterations"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"problems": ("corner",)},
        {"cells": ("pyramids",)},
        {"cells": ("prisms",)},
        {"orders": (1,)},
        {"preconditioners": ("jacobi",)},
        {"refine": ()},
    ],
)
def test_what_is_not_measured_is_refused(wrong: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(OperatorError):
        run_fields(**wrong)  # type: ignore[arg-type]
