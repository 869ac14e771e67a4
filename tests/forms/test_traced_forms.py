"""Forms given as functions, against an oracle that calls the same functions with plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.kernels import random_vector, smooth
from support.cases.levels import wind
from support.cases.traced import (
    CASES,
    CONSTANT,
    Case,
    build,
    divergence,
    halved,
    make_mesh,
    mass,
    skewed,
    swing,
)
from support.oracles.forms import Dense, FormOracle

TOLERANCE = {"float64": 1e-13, "float32": 1e-5}

# --- against the oracle ---------------------------------------------------------------------------


def check(operator: Any, dense: Dense) -> None:
    """Products, transpose, matrix and diagonal."""
    tolerance = TOLERANCE[str(operator.dtype)]
    u = random_vector(operator.space, operator.dtype, 1)
    v = random_vector(operator.test_space, operator.dtype, 2)
    au, av = operator.apply(u), operator.T.apply(v)
    assert au.shape == v.shape == (operator.test_space.size,)
    assert av.shape == u.shape == (operator.space.size,)
    assert au.dtype == av.dtype == operator.dtype
    assert dense.error(au, u) < tolerance
    assert dense.T.error(av, v) < tolerance
    pairing = np.vdot(v.astype(float), au) - np.vdot(av.astype(float), u)
    assert abs(pairing) < tolerance * (abs(v) @ abs(dense.matrix) @ abs(u))
    assert (operator.H @ v).tobytes() == av.tobytes()
    assert operator.T.T.apply(u).tobytes() == au.tobytes()
    most = abs(dense.matrix).max()
    assert abs(operator.assemble().toarray() - dense.matrix).max() < tolerance * most
    assert abs(operator.T.assemble().toarray() - dense.matrix.T).max() < tolerance * most
    many = np.stack([u, -2 * u], axis=1)
    assert (operator @ many)[:, 0].tobytes() == au.tobytes()
    assert dense.error((operator @ many)[:, 1], many[:, 1]) < tolerance
    back = np.stack([v, v], axis=1)
    assert operator.rmatmat(back)[:, 1].tobytes() == av.tobytes()
    if operator.space is operator.test_space:
        diagonal = operator.diagonal()
        assert diagonal.shape == u.shape
        assert abs(diagonal - np.diag(dense.matrix)).max() < tolerance * most


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_form(case: Case) -> None:
    operator, dense = build(case, *case.spaces())
    assert operator.dtype == case.options.get("dtype", "float64")
    check(operator, dense)


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
def test_choices_between_numbers(level: str) -> None:
    """Transposes too, which are made of derivatives."""
    case = Case("halved", halved, 2, ("gll", 3, 1), options={"level": level})
    check(*build(case, *case.spaces()))


def test_nothing_is_symmetric_that_should_not_be() -> None:
    """Or the transposes above would not have been tried."""
    symmetric = set()
    for case in CASES:
        trial, test = case.spaces()
        if trial is test and case.dim < 3:
            operator, _ = build(case, trial, test)
            if operator.T is operator:
                symmetric.add(case.name)
    assert symmetric == {
        *("elasticity", "curl-curl", "reaction", "zero-value", "zero-flux", "one-direction"),
    }


def test_an_operator_plus_its_transpose() -> None:
    case = next(c for c in CASES if c.name == "convection-function")
    operator, dense = build(case, *case.spaces())
    u = random_vector(operator.space, "float64")
    for sign in (1.0, -0.5):
        both = operator + sign * operator.T
        assert (dense + sign * dense.T).error(both.apply(u), u) < 1e-13


# --- rows and columns taken out -------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed() -> tuple[Any, Dense]:
    case = next(c for c in CASES if c.name == "divergence")
    return build(case, *case.spaces())


@pytest.mark.sample(2)
@pytest.mark.parametrize("chosen", ["columns", "rows", "both", "none", "all"])
def test_eliminated(mixed: tuple[Any, Dense], chosen: str) -> None:
    operator, dense = mixed
    columns = operator.space.boundary_dofs() if chosen in ("columns", "both") else []
    rows = [0, 5, operator.shape[0] - 1] if chosen in ("rows", "both") else []
    if chosen == "all":
        held = operator.eliminated(rows=np.arange(operator.shape[0]))
        assert not held.apply(random_vector(operator.space, "float64")).any()
        assert held.assemble().nnz == 0
        return
    check(operator.eliminated(rows, columns), dense.eliminated(rows, columns))
    check(operator.T.eliminated(columns, rows), dense.T.eliminated(columns, rows))
    twice = operator.eliminated(rows=rows).eliminated(columns=columns)
    u = random_vector(operator.space, "float64")
    assert twice.apply(u).tobytes() == operator.eliminated(rows, columns).apply(u).tobytes()


def test_what_stands_at_eliminated_columns_does_not_matter(mixed: tuple[Any, Dense]) -> None:
    operator = mixed[0]
    columns = operator.space.boundary_dofs()
    held = operator.eliminated(columns=columns)
    u = random_vector(operator.space, "float64")
    expected = held.apply(u)
    u.reshape(-1)[columns] = np.nan
    assert held.apply(u).tobytes() == expected.tobytes()


def test_right_hand_side_of_eliminated_columns(mixed: tuple[Any, Dense]) -> None:
    operator, dense = mixed
    columns, g = operator.space.boundary_dofs(), random_vector(operator.space, "float64", 4)
    b = random_vector(operator.test_space, "float64", 5)
    only = np.zeros(g.size)
    only[columns] = g.ravel()[columns]
    rhs = operator.eliminated(columns=columns).rhs(b, g)
    assert dense.error(b - rhs, only) < 1e-13


def test_rows_of_a_symmetric_operator_are_columns_of_its_transpose() -> None:
    space = femops.H1(make_mesh("box", 2), 3)
    operator = femops.mass(space, smooth).eliminated(rows=[0, 7])
    dense = FormOracle.of(space).matrix(mass, rho=smooth).eliminated([0, 7], [])
    check(operator, dense)


def test_constraints_of_an_operator_that_is_not_symmetric() -> None:
    case = next(c for c in CASES if c.name == "convection-function")
    operator, dense = build(case, *case.spaces())
    dofs = operator.space.boundary_dofs()
    held = dense.eliminated(dofs, dofs).matrix
    held[dofs, dofs] = 1.0
    check(operator.constrained(dofs), Dense(held))


def test_constrained_and_eliminated_do_not_mix() -> None:
    operator = femops.mass(femops.H1(make_mesh("box", 2), 3))
    with pytest.raises(femops.errors.OperatorError, match="is constrained"):
        operator.constrained([1]).eliminated(rows=[2])
    with pytest.raises(femops.errors.OperatorError, match="unconstrained"):
        operator.eliminated(columns=[2]).constrained([1])


# --- lanes, threads, bits -------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [2, 4, 16])
def test_lanes_of_a_mixed_operator(lanes: int) -> None:
    mesh = make_mesh("unstructured", 2)
    trial, test = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    operator = femops.form(divergence, trial, test, lanes=lanes)
    dense, u = FormOracle.of(trial, test).matrix(divergence), random_vector(trial, "float64")
    assert dense.error(operator.apply(u), u) < 1e-13


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("convection-function", {"beta": [0.5, 2.0]}),
        ("convection-diffusion", {"kappa": 3.0}),
        ("convection-diffusion", {"kappa": 3.0, "beta": lambda x: -x}),
        ("elasticity", {"mu": smooth}),
        ("skewed", {"kappa": CONSTANT}),
        ("reaction", {"c": 0.1, "d": swing}),
    ],
)
def test_update_is_a_new_operator_bit_for_bit(name: str, new: dict[str, Any]) -> None:
    case = next(c for c in CASES if c.name == name)
    given = case.given | new
    if name == "reaction":
        given["d"] = new["d"] = lambda x: 2.0 + swing(x)
    space, _ = case.spaces()
    old = femops.form(case.function, space, **case.given)
    fresh = femops.form(case.function, space, **given)
    u = random_vector(space, "float64")
    before = old.apply(u)
    updated = old.update(**new)
    assert updated.apply(u).tobytes() == fresh.apply(u).tobytes() != before.tobytes()
    assert updated.T.apply(u).tobytes() == fresh.T.apply(u).tobytes()
    assert updated.diagonal().tobytes() == fresh.diagonal().tobytes()
    assert old.apply(u).tobytes() == before.tobytes()
    dofs = space.boundary_dofs()
    held = (2.0 * old).constrained(dofs).update(**new)
    assert held.apply(u).tobytes() == (2.0 * fresh).constrained(dofs).apply(u).tobytes()


def test_update_reaches_the_terms_of_a_sum() -> None:
    space = femops.H1(make_mesh("box", 2), 3)
    total = femops.diffusion(space, 1.0) + femops.convection(space, wind)
    u = random_vector(space, "float64")
    fresh = femops.diffusion(space, smooth) + femops.convection(space, wind)
    assert total.update(kappa=smooth).apply(u).tobytes() == fresh.apply(u).tobytes()
    with pytest.raises(femops.errors.OperatorError, match="'rho'"):
        total.update(rho=2.0)
    with pytest.raises(femops.errors.OperatorError, match="make a new operator"):
        total.update(kappa=skewed)
    with pytest.raises(femops.errors.OperatorError, match="finite"):
        total.update(kappa=np.nan)
