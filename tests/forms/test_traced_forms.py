"""Forms given as functions, against an oracle that calls the same functions with plain numbers."""

import numpy as np
import pytest

import femops
from support.cases.kernels import random_vector, smooth
from support.cases.levels import skewed, wind
from support.cases.traced import (
    CONSTANT,
    convection,
    convection_diffusion,
    divergence,
    elasticity,
    gradient,
    halved,
    make_mesh,
    mass,
    one_direction,
    reaction,
    slope,
    swing,
    tensor_diffusion,
    zero_value,
)
from support.oracles.forms import Dense, FormOracle

# --- against the oracle ---------------------------------------------------------------------------


def check(operator, dense):
    """Products, transpose, matrix and diagonal."""
    u = random_vector(operator.space, "float64", 1)
    v = random_vector(operator.test_space, "float64", 2)
    au, av = operator.apply(u), operator.T.apply(v)
    assert au.shape == v.shape == (operator.test_space.size,)
    assert av.shape == u.shape == (operator.space.size,)
    assert dense.error(au, u) < 1e-13
    assert dense.T.error(av, v) < 1e-13
    assert (operator.H @ v).tobytes() == av.tobytes()
    assert operator.T.T.apply(u).tobytes() == au.tobytes()
    most = abs(dense.matrix).max()
    assert abs(operator.assemble().toarray() - dense.matrix).max() < 1e-13 * most
    assert abs(operator.T.assemble().toarray() - dense.matrix.T).max() < 1e-13 * most
    many = np.stack([u, -2 * u], axis=1)
    assert (operator @ many)[:, 0].tobytes() == au.tobytes()
    assert dense.error((operator @ many)[:, 1], many[:, 1]) < 1e-13
    assert operator.rmatmat(np.stack([v, v], axis=1))[:, 1].tobytes() == av.tobytes()
    if operator.space is operator.test_space:
        assert abs(operator.diagonal() - np.diag(dense.matrix)).max() < 1e-13 * most


# function, families, orders and components of its spaces, coefficients; random forms try more
CASES = {
    "slope": (slope, 1, ("gll", 4, 1), ("l2", 3, 1), {"c": smooth}),
    "divergence": (divergence, 2, ("gll", 3, 2), ("l2", 2, 1), {}),
    "gradient": (gradient, 2, ("gll", 1, 1), ("bernstein", 4, 2), {}),
    "halved": (halved, 2, ("gll", 3, 1), None, {}),
    "convection": (convection, 2, ("gll", 3, 1), None, {"beta": wind}),
    "zero value": (zero_value, 2, ("gll", 3, 1), None, {"kappa": smooth}),
    "one direction": (one_direction, 2, ("gll", 3, 1), None, {"kappa": smooth}),
}


def build(name, **options):
    """The operator and the matrix of a case."""
    function, dim, *sides, given = CASES[name]
    mesh = make_mesh("unstructured" if dim == 2 else "box", dim)
    kinds = {"l2": (femops.L2, "gauss"), "gll": (femops.H1, "gll")}
    spaces = []
    for family, order, ncomp in filter(None, sides):
        make, nodes = kinds.get(family, (femops.H1, family))
        spaces.append(make(mesh, order, ncomp, nodes))
    operator = femops.form(function, *spaces, **given, **options)
    return operator, FormOracle.of(*spaces).matrix(function, **given)


@pytest.mark.parametrize("name", CASES)
def test_form(name):
    operator, dense = build(name)
    check(operator, dense)
    # or the transposes would not have been tried
    assert (operator.T is operator) == (name in ("zero value", "one direction"))


def test_choices_between_numbers_that_nothing_stores():
    """Transposes too, which are made of derivatives."""
    check(*build("halved", level="matrix-free"))


# --- rows and columns taken out -------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed():
    return build("divergence")


@pytest.mark.parametrize("level", ["full", "element", "partial"])
def test_eliminated(mixed, level):
    operator, dense = mixed[0].at_level(level), mixed[1]
    columns, rows = operator.space.boundary_dofs(), [0, 5, operator.shape[0] - 1]
    both = operator.eliminated(rows, columns)
    check(both, dense.eliminated(rows, columns))
    check(operator.T.eliminated(columns, rows), dense.T.eliminated(columns, rows))
    u = random_vector(operator.space, "float64")
    assert dense.eliminated(rows, []).error(operator.eliminated(rows=rows) @ u, u) < 1e-13
    held = operator.eliminated(columns=columns)
    assert dense.eliminated([], columns).error(held @ u, u) < 1e-13
    assert (held.eliminated(rows=rows) @ u).tobytes() == (both @ u).tobytes()
    assert (operator.eliminated() @ u).tobytes() == (operator @ u).tobytes()
    assert (both.unconstrained @ u).tobytes() == (operator @ u).tobytes()
    nothing = operator.eliminated(rows=np.arange(operator.shape[0]))
    assert not (nothing @ u).any()
    assert nothing.assemble().nnz == 0
    expected = held @ u
    u[columns] = np.nan  # what stands there does not matter
    assert (held @ u).tobytes() == expected.tobytes()


def test_right_hand_side_of_eliminated_columns(mixed):
    operator, dense = mixed
    columns, g = operator.space.boundary_dofs(), random_vector(operator.space, "float64", 4)
    b = random_vector(operator.test_space, "float64", 5)
    only = np.zeros(g.size)
    only[columns] = g[columns]
    assert dense.error(b - operator.eliminated(columns=columns).rhs(b, g), only) < 1e-13
    expected = b - dense.matrix @ only
    expected[[3, 7]] = 0.0
    found = operator.eliminated([3, 7], columns).rhs(b, g)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def test_rows_of_a_symmetric_operator_are_columns_of_its_transpose():
    space = femops.H1(make_mesh("box", 2), 3)
    operator = femops.mass(space, smooth).eliminated(rows=[0, 7])
    check(operator, FormOracle.of(space).matrix(mass, rho=smooth).eliminated([0, 7], []))


def test_an_operator_that_is_not_symmetric():
    """Sums with its transpose, and under conditions."""
    operator, dense = build("convection")
    u, dofs = random_vector(operator.space, "float64"), operator.space.boundary_dofs()
    for sign in (1.0, -0.5):
        both = operator + sign * operator.T
        assert (dense + sign * dense.T).error(both.apply(u), u) < 1e-13
    held = dense.eliminated(dofs, dofs).matrix
    held[dofs, dofs] = 1.0
    check(operator.constrained(dofs), Dense(held))


def test_constrained_and_eliminated_do_not_mix():
    operator = femops.mass(femops.H1(make_mesh("box", 2), 3))
    with pytest.raises(femops.errors.OperatorError, match="is constrained"):
        operator.constrained([1]).eliminated(rows=[2])
    with pytest.raises(femops.errors.OperatorError, match="unconstrained"):
        operator.eliminated(columns=[2]).constrained([1])


# --- lanes, new coefficients ----------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [2, 16])
def test_lanes_of_a_mixed_operator(lanes):
    mesh = make_mesh("unstructured", 2)
    trial, test = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    operator = femops.form(divergence, trial, test, lanes=lanes)
    dense, u = FormOracle.of(trial, test).matrix(divergence), random_vector(trial, "float64")
    assert dense.error(operator.apply(u), u) < 1e-13


UPDATES = {
    convection_diffusion: (1, {"kappa": smooth, "beta": wind}, {"kappa": 3.0, "beta": [0.5, 2.0]}),
    elasticity: (2, {"lam": 1.3, "mu": 0.7}, {"mu": smooth}),
    tensor_diffusion: (1, {"kappa": skewed}, {"kappa": CONSTANT}),
    reaction: (1, {"c": swing, "d": smooth}, {"c": 0.1, "d": lambda x: 2.0 + swing(x)}),
}
"""Components, coefficients and new ones of forms."""


@pytest.mark.parametrize("function", UPDATES)
def test_update_is_a_new_operator_bit_for_bit(function):
    ncomp, given, new = UPDATES[function]
    space = femops.H1(make_mesh("box", 2), 3, ncomp=ncomp)
    old = femops.form(function, space, **given)
    fresh = femops.form(function, space, **(given | new))
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


def test_update_reaches_the_terms_of_a_sum():
    space = femops.H1(make_mesh("box", 2), 3)
    total = femops.diffusion(space, 1.0) + femops.convection(space, wind)
    u = random_vector(space, "float64")
    fresh = femops.diffusion(space, smooth) + femops.convection(space, wind)
    assert total.update(kappa=smooth).apply(u).tobytes() == fresh.apply(u).tobytes()
    for wrong, words in (
        ({"rho": 2.0}, "'rho'"),
        ({"kappa": skewed}, "make a new operator"),
        ({"kappa": np.nan}, "finite"),
    ):
        with pytest.raises(femops.errors.OperatorError, match=words):
            total.update(**wrong)
