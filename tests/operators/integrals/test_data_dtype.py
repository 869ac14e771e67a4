"""Numbers at quadrature points stored in float32, in operators of float64."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import femops
from femops.operators.execution import host
from femops.operators.levels import auto
from femops_kernels.compiled import ONE
from support.cases.kernels import bend, random_vector, smooth, tensor

POINT_LEVELS = ("partial", "matrix-free")
BENT = femops.box((4, 3), mapping=bend)


def space(order: int = 3, ncomp: int = 1, dim: int = 2) -> femops.Space:
    mesh = BENT if dim == 2 else femops.box((4, 3, 2)[:dim], mapping=bend)
    return femops.H1(mesh, order, ncomp)


def difference(a: femops.Operator, b: femops.Operator) -> float:
    """Relative, of the results for a random vector."""
    u = random_vector(a.space, "float64")
    exact = a.apply(u)
    return float(abs(b.apply(u) - exact).max() / abs(exact).max())


def rounded(a: femops.Operator, b: femops.Operator) -> bool:
    """Whether b is a with rounded data: not the same, and not far."""
    return 1e-12 < difference(a, b) < 1e-6


def stokes(u: Any, p: Any, mu: Any) -> dict[str, Any]:
    return {"u": {"grad": mu * u.grad - p * np.eye(2)}, "p": {"value": -u.div}}


FORMS = {
    "mass": lambda **k: femops.mass(space(), smooth, **k),
    "diffusion": lambda **k: femops.diffusion(space(2, dim=3), tensor, **k),
    "helmholtz": lambda **k: femops.helmholtz(space(), 2.0, **k),
    "elasticity": lambda **k: femops.elasticity(space(2, 2), smooth, smooth, **k),
    "convection": lambda **k: femops.convection(space(dim=1), lambda x: 1 + x, **k),
    "divergence": lambda **k: femops.divergence(space(2, 2), space(1), **k),
    "boundary": lambda **k: femops.boundary_mass(space(), smooth, **k),
    "own": lambda **k: femops.form(lambda u, x: {"value": x[0] * u}, space(), **k),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMS)
def test_every_form_takes_it(name: str) -> None:
    exact, short = FORMS[name](), FORMS[name](data_dtype="float32")
    assert rounded(exact, short)
    assert short.dtype == np.float64
    assert short.cost().stored_bytes == exact.cost().stored_bytes / 2
    saved = exact.cost().bytes_moved - short.cost().bytes_moved
    assert saved == exact.cost().stored_bytes / 2
    assert short.cost().flops == exact.cost().flops


def test_blocks_take_it() -> None:
    fields = femops.Product(u=space(2, 2), p=space(1))
    exact, short = (
        femops.form(stokes, fields, mu=smooth, data_dtype=kind) for kind in (None, np.float32)
    )
    for key in (("u", "u"), ("p", "u"), ("u", "p")):
        a, b = exact[key], short[key]
        assert a is not None
        assert b is not None
        assert rounded(a, b)


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", POINT_LEVELS)
@pytest.mark.parametrize("lanes", [2, 4])
def test_result_is_that_of_rounded_data(level: str, lanes: int) -> None:
    """With a density of 24 bits, and powers of two beside it, nothing is rounded."""
    V = femops.H1(femops.box((2, 2)), 2)
    rho = np.random.default_rng(3).uniform(1, 2, (4, 16)).astype("float32").astype(float)
    rule = femops.basis.Quadrature1D(np.linspace(0.125, 0.875, 4), np.full(4, 0.25), "middles")
    exact, short = (
        femops.mass(V, rho, quadrature=rule, lanes=lanes, level=level, data_dtype=kind)
        for kind in (None, "float32")
    )
    assert difference(exact, short) < 1e-15
    assert short.cost().stored_bytes < exact.cost().stored_bytes


def test_levels_keep_it_or_know_nothing_of_it() -> None:
    exact, short = (FORMS["diffusion"](data_dtype=kind) for kind in (None, "float32"))
    for level in POINT_LEVELS:
        assert rounded(exact, short.at_level(level))
        assert rounded(exact, short.at_level("full").at_level(level))
    for level in ("full", "element"):
        assert difference(exact, short.at_level(level)) < 1e-14
    chosen = short.at_level("auto")
    assert chosen.level in femops.operators.levels.dispatch.LEVELS
    assert difference(exact, chosen) < 1e-6
    assert difference(short, pickle.loads(pickle.dumps(short))) == 0.0


def test_no_numbers_at_points_nothing_to_round() -> None:
    V = femops.H1(femops.box((3, 2)), 3)
    exact, short = (femops.diffusion(V, 2.0, data_dtype=kind) for kind in (None, "float32"))
    assert difference(exact, short) == 0.0
    assert short.cost() == exact.cost()


def test_update_and_transpose_keep_it() -> None:
    exact, short = (FORMS["mass"](data_dtype=kind) for kind in (None, "float32"))
    new = [A.update(rho=lambda x: 2 + x[1]) for A in (exact, short)]
    assert rounded(*new)
    assert new[1].cost().stored_bytes == short.cost().stored_bytes
    exact, short = (FORMS["convection"](data_dtype=kind) for kind in (None, "float32"))
    assert rounded(exact.T, short.T)
    assert abs(short.assemble().T - short.T.assemble()).max() < 1e-14


def sum_of_all(**k: Any) -> Any:
    """With factors that are no powers of two, one of them fused with others."""
    V = space()
    return (
        femops.mass(V, smooth, **k)
        + 0.3 * femops.diffusion(V, smooth, **k)
        - 0.7 * femops.boundary_mass(V, smooth, **k)
    )


@pytest.mark.sample(6)
@pytest.mark.parametrize("level", [*POINT_LEVELS, "full", "auto"])
@pytest.mark.parametrize("name", ["diffusion", "elasticity", "convection", "own", "sum"])
def test_one_operator_at_each_level(name: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers are rounded for any number of vectors, the diagonal and the matrix."""
    monkeypatch.setattr(
        auto, "choose_level", lambda _, panels: "matrix-free" if panels == ONE else "element"
    )
    A = {**FORMS, "sum": sum_of_all}[name](data_dtype="float32", level=level)
    matrix = A.assemble()
    x = np.random.default_rng(0).standard_normal((A.shape[1], 20))
    for B, dense in ((A, matrix.toarray()), (A.T, matrix.T.toarray())):
        expected, most = dense @ x, abs(dense) @ abs(x)
        for k in (1, 2, 20):
            assert (abs(B @ x[:, :k] - expected[:, :k]) <= 1e-13 * most[:, :k]).all()
        assert (abs(B @ x[:, 0].copy() - expected[:, 0]) <= 1e-13 * most[:, 0]).all()
    for compiled_from in (0, 2**30):
        monkeypatch.setattr(host, "_COMPILED_FROM", compiled_from)
        assert abs(A.diagonal() - matrix.diagonal()).max() <= 1e-13 * abs(matrix).max()


@pytest.mark.parametrize("nvec", [1, 20])
def test_matrix_free_rounds_coefficients_and_nothing_of_the_geometry(nvec: int) -> None:
    rho = (
        np.random.default_rng(3).uniform(1, 2, (12, 16)) * 10.0 ** np.arange(-12, 0)[:, np.newaxis]
    )
    V, rule = space(), femops.basis.gauss(4)
    A = femops.mass(V, rho, quadrature=rule, level="matrix-free", data_dtype="float32")
    exact = femops.mass(V, rho.astype("float32").astype(float), quadrature=rule, level="full")
    dense = exact.assemble().toarray()
    x = np.random.default_rng(0).standard_normal((V.size, nvec))
    assert (abs(A @ x - dense @ x) <= 1e-13 * (abs(dense) @ abs(x))).all()


def test_sums() -> None:
    """Of one type they are one sweep; of different ones each keeps its own."""
    V = space()
    mass, stiff = femops.mass(V, smooth), femops.diffusion(V)
    short = femops.mass(V, smooth, data_dtype="float32")
    both = short + 0.3 * femops.diffusion(V, data_dtype="float32")
    exact = mass + 0.3 * stiff
    assert len(both.compiled.sweeps) == 1
    assert rounded(exact, both)
    assert both.cost().stored_bytes == exact.cost().stored_bytes / 2
    mixed = short + 0.3 * stiff
    assert len(mixed.compiled.sweeps) == 2
    assert rounded(exact, mixed)
    assert mixed.cost().stored_bytes == short.cost().stored_bytes + stiff.cost().stored_bytes


def test_factors_are_not_rounded() -> None:
    """Of a sum on affine elements, whose numbers are constants and those of elements."""
    V = femops.H1(femops.box((3, 2)), 2)
    a, b = (femops.diffusion(V, data_dtype=kind) for kind in (None, "float32"))
    m, n = (femops.mass(V, data_dtype=kind) for kind in (None, "float32"))
    assert difference(0.1 * a + 0.3 * m, 0.1 * b + 0.3 * n) < 1e-15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_dtype": "float16"}, "data_dtype is 'float16': take float64 or float32"),
        ({"data_dtype": "number"}, "data_dtype is 'number': take float64 or float32"),
        ({"data_dtype": "float64", "dtype": "float32"}, "data_dtype is float64 in an operator of"),
        ({"data_dtype": "float32", "rho": 1e45}, "reach .* beyond the range of float32"),
        ({"data_dtype": "float32", "rho": 1e-35}, "reach .* beyond the range of float32"),
    ],
)
def test_one_error_each(options: dict[str, Any], message: str) -> None:
    rho = options.pop("rho", 1.0)
    with pytest.raises(femops.errors.OperatorError, match=message):
        femops.mass(space(), rho, **options)


def test_its_own_type_is_what_an_operator_has() -> None:
    V = space()
    for kind in ("float64", "float32"):
        plain, same = (femops.mass(V, dtype=kind, data_dtype=d) for d in (None, kind))
        assert np.array_equal(plain.assemble().toarray(), same.assemble().toarray())
        assert len((plain + same).compiled.sweeps) == 1


def test_nothing_stored_but_zeros_is_no_error() -> None:
    A = femops.mass(space(), lambda x: 0 * x[0], data_dtype="float32")
    assert not A.apply(random_vector(A.space, "float64")).any()
