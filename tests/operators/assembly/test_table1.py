"""Table 1 of the tensor report: counted operations and stored bytes grow with p as it says."""

import numpy as np
import pytest

import femops
from femops.bench import cost
from femops.bench.cost import DenseBases, naive_flops
from support.cases.kernels import bend

ORDERS = (4, 7, 10)


@pytest.fixture(scope="module")
def tables():
    forms = ("mass", "diffusion")
    return {f: cost.table(f, 3, ORDERS, elements=1, seconds=0.0) for f in forms}


@pytest.mark.parametrize("form", ["mass", "diffusion"])
def test_exponents_in_three_dimensions(tables, form):
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


@pytest.mark.parametrize("form", cost.FORMS)
def test_dense_bases_apply_the_same_operator(form):
    """And they are stored once, data for each element."""
    V = femops.H1(femops.box((2, 2), mapping=bend), 3, ncomp=2 if form == "elasticity" else 1)
    A = cost.FORMS[form](V, 5)
    x = np.random.default_rng(2).standard_normal(V.size)
    bases = DenseBases(A)
    np.testing.assert_allclose(bases.application()(x), A @ x, rtol=0, atol=1e-13)
    slots = {"mass": 1, "diffusion": 2, "convection": 3, "elasticity": 2}[form]
    assert bases.stored_bytes - A.cost().stored_bytes == slots * 5**2 * 4**2 * 8


def test_near_optimal_beats_naive_by_the_square(tables):
    rows = {(r["level"], r["order"]): r["flops_assembly"] for r in tables["mass"]["rows"]}
    gains = [rows["full", p] / rows["near-optimal", p] for p in ORDERS]
    assert np.all(np.diff(gains) > 0)
    assert gains[-1] > 100


def test_counts_are_what_numpy_does():
    """The near-optimal count, by hand: mass in 2-D, one element."""
    V = femops.H1(femops.box((1, 1), mapping=bend), 3)
    q, pair = 4, 4 * 4
    matrices = q * pair * (2 * q - 1) + pair * pair * (2 * q - 1)
    operator = femops.mass(V, quadrature=q)
    data = operator.cost().assembly_flops
    full = operator.at_level("full").cost()
    assert full.assembly_flops == data + matrices + 16 * 16
    assert full.flops == 16 * (2 * 16 - 1)
    naive = q * q * 16 + 2 * q * q * 16 * 16 - 16 * 16
    assert naive_flops(operator) == naive - matrices


def test_what_makes_no_sense_is_refused():
    for arguments in (("stokes", 2, [2]), ("mass", 4, [2]), ("mass", 2, []), ("mass", 2, [0])):
        with pytest.raises(femops.errors.OperatorError):
            cost.table(*arguments, seconds=0.0)
    with pytest.raises(femops.errors.OperatorError, match="elements = 0"):
        cost.table("mass", 2, [2], elements=0, seconds=0.0)
    one = cost.table("mass", 1, [2], seconds=0.0)
    assert set(one["exponents"]["full"].values()) == {None}
    assert one["rows"][0]["seconds"] is None
