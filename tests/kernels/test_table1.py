"""Table 1 of the tensor report: counted operations and stored bytes grow with p as it says."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.bench import cost
from support.cases.kernels import bend

ORDERS = range(2, 13)  # p1d = 3 ... 13


@pytest.fixture(scope="module")
def tables() -> dict[str, dict]:
    forms = ("mass", "diffusion")
    return {f: cost.table(f, 3, ORDERS, elements=1, seconds=0.0) for f in forms}


@pytest.mark.parametrize("form", ["mass", "diffusion"])
def test_exponents_in_three_dimensions(tables: dict[str, dict], form: str) -> None:
    got = tables[form]["exponents"]
    assert got["full"]["flops_assembly"] == pytest.approx(9, abs=0.4)
    assert got["near-optimal"]["flops_assembly"] == pytest.approx(7, abs=0.4)
    assert got["decomposed"]["flops_apply"] == pytest.approx(6, abs=0.4)
    assert got["partial"]["flops_apply"] == pytest.approx(4, abs=0.4)
    assert got["matrix-free"]["flops_apply"] == pytest.approx(4, abs=0.4)
    exponents = {"full": 6, "near-optimal": 6, "partial": 3, "matrix-free": 0}
    for level, exponent in exponents.items():
        assert got[level]["stored_bytes"] == pytest.approx(exponent, abs=0.2)
    assert got["full"]["flops_apply"] == pytest.approx(6, abs=0.4)


def test_of_a_decomposed_operator_the_bases_grow_as_a_matrix_and_the_data_as_the_points() -> None:
    """Bases are stored once, data for each element: the larger the mesh, the more these weigh."""
    stored = {}
    for p in (3, 7):
        for n in (8, 64):
            V = femops.L2(femops.box((n // 4, 2, 2)), p)
            operator = femops.mass(V, quadrature=p + 1, level="decomposed")
            data = n * (p + 1) ** 3 * 8
            assert operator.cost().shared_bytes == n * 2  # where each element's dofs begin
            stored[p, n] = operator.cost().stored_bytes - data
    for p in (3, 7):
        assert stored[p, 8] == stored[p, 64] == (p + 1) ** 6 * 8


def test_near_optimal_beats_naive_by_the_square(tables: dict[str, dict]) -> None:
    rows = {(r["level"], r["order"]): r["flops_assembly"] for r in tables["mass"]["rows"]}
    gains = [rows["full", p] / rows["near-optimal", p] for p in ORDERS]
    assert np.all(np.diff(gains) > 0)
    assert gains[-1] > 100


def test_counts_are_what_numpy_does() -> None:
    """The near-optimal count, by hand: mass in 2-D, one element."""
    V = femops.H1(femops.box((1, 1), mapping=bend), 3)
    q, pair = 4, 4 * 4
    matrices = q * pair * (2 * q - 1) + pair * pair * (2 * q - 1)
    operator = femops.mass(V, quadrature=q)
    data = operator.cost().assembly_flops
    full = operator.at_level("full").cost()
    assert full.assembly_flops == data + matrices + 16 * 16
    assert full.flops == 16 * (2 * 16 - 1)
    naive = operator.at_level("element").cost(method="naive").assembly_flops
    assert naive == data + q * q * 16 + 2 * q * q * 16 * 16 - 16 * 16


def test_what_makes_no_sense_is_refused() -> None:
    for arguments in (("stokes", 2, [2]), ("mass", 4, [2]), ("mass", 2, []), ("mass", 2, [0])):
        with pytest.raises(femops.OperatorError):
            cost.table(*arguments, seconds=0.0)
    with pytest.raises(femops.OperatorError, match="elements = 0"):
        cost.table("mass", 2, [2], elements=0, seconds=0.0)
    one = cost.table("mass", 1, [2], seconds=0.0)
    assert set(one["exponents"]["full"].values()) == {None}
    assert one["rows"][0]["seconds"] is None
