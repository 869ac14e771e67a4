"""Rows of the benchmark of triangles and tetrahedra."""

from __future__ import annotations

import pytest

from femops.bench.simplices import MATRIX, mesh_for, run_simplices
from femops.errors import OperatorError


def test_products_stand_beside_those_of_the_matrix() -> None:
    result = run_simplices(
        ("triangles",), (2,), ("diffusion", "elasticity"), dofs=500, rounds=1, seconds=0.0
    )
    names = ["partial", "matrix-free", "full", MATRIX]
    assert [row["with"] for row in result["rows"]] == names * 2
    assert result["rows"][3]["over_matrix"] == 1.0
    for row in result["rows"]:
        assert row["dofs"] / row["seconds_median"] == pytest.approx(row["dofs_per_second"])
    assert all(row["iterations"] < 12 for row in result["solves"])
    bent = run_simplices(orders=(1,), dofs=100, curved=True, rounds=1, seconds=0.0)
    assert len(bent["rows"]) == 12


@pytest.mark.parametrize("wrong", [{"cells": ("pyramids",)}, {"forms": ("curl",)}, {"orders": ()}])
def test_what_is_not_measured_is_refused(wrong: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(OperatorError):
        run_simplices(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_mixed_mesh_fills_the_box(n: int, curved: bool) -> None:
    mesh = mesh_for("mixed", 1, (n + 1) ** 3, curved=curved)
    n = max(n, 2)  # one layer of each shape
    assert [part.num_elements for part in mesh.parts] == [n // 2 * n**2, 2 * (n - n // 2) * n**2]
    assert curved or mesh.volume() == pytest.approx(1.0)
