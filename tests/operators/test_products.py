"""Forms on several fields: products of spaces and operators on them, against the oracle."""

import itertools

import numpy as np
import pytest

import femops
from femops.errors import ArgumentError, OperatorError, SpaceError, TraceError, VectorError
from support.cases.kernels import smooth
from support.cases.products import (
    CASES,
    STOKES,
    TOLERANCE,
    dense,
    error,
    held,
    make_mesh,
    stokes,
    vector,
)

# --- against the oracle ---------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form(case):
    product, operator, matrix = case.build()
    tolerance, largest = TOLERANCE[case.dtype], abs(matrix).max()
    x, y = vector(product.size, case.dtype), vector(product.size, case.dtype, 1)
    assert operator.symmetric == case.symmetric
    assert (operator.T is operator) == case.symmetric
    for level in case.levels:
        A = operator.at_level(level)
        assert A.level == A.T.level == level
        assert error(matrix, A.apply(x), x) < tolerance
        assert error(matrix, A @ x, x) < tolerance
        assert error(matrix.T, A.T.apply(y), y) < tolerance
        assert abs(A.assemble().toarray() - matrix).max() < tolerance * largest
        here, there = float(y @ A.apply(x)), float(x @ A.rmatvec(y))
        assert abs(here - there) < 10 * tolerance * (abs(y) @ abs(matrix) @ abs(x))
    np.testing.assert_allclose(
        operator.diagonal(), matrix.diagonal(), rtol=0, atol=tolerance * largest
    )
    for test, trial in itertools.product(product.names, repeat=2):
        block, part = operator[test, trial], matrix[product.slice(test), product.slice(trial)]
        assert (block is None) == ((test, trial) in case.missing)
        if block is None:
            assert not np.any(part)
            continue
        assert isinstance(block, femops.Operator)
        assert block.space is product.spaces[trial]
        assert block.test_space is product.spaces[test]
        x = vector(part.shape[1], case.dtype)
        assert error(part, block.at_level(case.levels[0]).apply(x), x) < tolerance


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("stokes-2d", "element"),
        ("stokes-2d", "matrix-free"),
        ("three-fields-2d", "full"),
        ("an-empty-row-2d", "partial"),
    ],
)
def test_essential_conditions(name, level):
    """Also where the form has no diagonal block."""
    case = next(c for c in CASES if c.name == name)
    product, plain, matrix = case.build(level=level)
    a, b = product.names[:2]
    dofs = product.positions(**{a: product.spaces[a].boundary_dofs(1), b: [0, 3]})
    operator = plain.constrained(dofs[:-1]).constrained(dofs[-1:])
    np.testing.assert_array_equal(operator.constrained_dofs, dofs)
    x, g = vector(product.size), vector(product.size, seed=1)
    for A, expected in (
        (operator, held(matrix, dofs)),
        (-2.0 * operator, held(-2 * matrix, dofs, -2.0)),
        # where terms are fused, a sum is another kernel
        *([(operator + 2 * operator, held(3 * matrix, dofs, 3.0))] if level == "full" else []),
        ((0.5 * plain).constrained(dofs), held(matrix / 2, dofs)),
    ):
        largest = abs(expected).max()
        assert error(expected, A.apply(x), x) < 1e-13
        assert error(expected.T, A.T.apply(x), x) < 1e-13
        assert abs(A.assemble() - expected).max() < 1e-13 * largest
        np.testing.assert_allclose(A.diagonal(), expected.diagonal(), rtol=0, atol=1e-13 * largest)
    for values in (g, 2.5):
        only = np.zeros(product.size)
        only[dofs] = np.broadcast_to(values, product.shape)[dofs]
        expected = x - matrix @ only
        expected[dofs] = only[dofs]
        kept = x.copy()
        np.testing.assert_allclose(operator.rhs(x, values), expected, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(x, kept)
        expected[dofs] *= -2.0
        expected = np.where(np.isin(np.arange(product.size), dofs), expected, x + 2 * matrix @ only)
        np.testing.assert_allclose((-2 * operator).rhs(x, values), expected, rtol=0, atol=1e-12)
    assert error(matrix, operator.unconstrained.apply(x), x) < 1e-13


def only_heat(u, t):
    return {"u": {}, "t": {"value": u.div, "grad": t.grad}}


def test_sums_of_forms_with_other_blocks():
    case = next(c for c in CASES if c.name == "thermo-elasticity-2d")
    product, one, matrix = case.build()
    two = femops.form(only_heat, product)
    assert two["u", "u"] is None
    dofs = product.positions(u=[0, 1], t=[5])
    expected = 2 * matrix - dense(product, only_heat, {}) / 4
    x = vector(product.size)
    total = 2 * one - two / 4
    assert error(expected, total.apply(x), x) < 1e-13
    constrained = sum([2 * one.constrained(dofs), -two.constrained(dofs) / 4])
    assert error(held(expected, dofs, 1.75), constrained.apply(x), x) < 1e-13
    largest = abs(expected).max()
    atol = 1e-13 * largest
    np.testing.assert_allclose(
        constrained.assemble().toarray(), held(expected, dofs, 1.75), rtol=0, atol=atol
    )
    with pytest.raises(OperatorError, match="different constraints"):
        one + two.constrained(dofs)
    with pytest.raises(OperatorError, match="different spaces"):
        one + femops.form(only_heat, case.product())
    with pytest.raises(OperatorError, match="levels"):
        one + one.at_level("full")


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["full", "partial"])
def test_update_without_a_new_trace(level):
    calls = []

    def counted(u, p, mu, kappa):
        calls.append(1)
        return {"u": {"grad": mu * u.grad - p * np.eye(2)}, "p": {"grad": kappa @ p.grad}}

    tensor, other = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, 0.2], [0.2, 3.0]])
    W = STOKES.product()
    operator = femops.form(counted, W, mu=smooth, kappa=tensor, level=level)
    assert len(calls) == 1
    dofs = W.positions(u=[3])
    new = operator.constrained(dofs).update(kappa=other, mu=2.0)
    assert len(calls) == 1
    x = vector(W.size)
    fresh = femops.form(counted, W, mu=2.0, kappa=other, level=level).constrained(dofs)
    assert len(calls) == 2
    np.testing.assert_allclose(new.apply(x), fresh.apply(x), rtol=0, atol=1e-12)
    # what has no such coefficient is not computed again
    kept = operator["u", "u"]
    changed = operator.update(kappa=other)
    assert changed["u", "u"] is kept
    block = operator["p", "p"].update(kappa=other)
    assert len(calls) == 2
    p = vector(block.shape[1])
    np.testing.assert_allclose(block @ p, fresh["p", "p"] @ p, rtol=0, atol=1e-12)
    with pytest.raises(OperatorError, match=r"no term .* coefficient 'rho': they have kappa"):
        operator.update(rho=1.0, mu=2.0)
    for wrong in (1.0, np.array([[1.0, 0.1], [0.2, 1.0]])):
        with pytest.raises(
            OperatorError,
            match=r"the new coefficients of counted have another shape or symmetry",
        ):
            operator.update(kappa=wrong)
    with pytest.raises(OperatorError, match="finite"):
        operator.update(mu=np.nan)


@pytest.mark.parametrize("level", ["full", "partial"])
def test_eliminated_rows_and_columns(level):
    product, operator, matrix = STOKES.build(level=level)
    rows, columns = [0, 7, product.size - 1], [3, product.size - 2]
    cut = operator.eliminated(rows, columns)
    expected = np.array(matrix)
    expected[rows], expected[:, columns] = 0.0, 0.0
    x = vector(product.size)
    many = np.stack([vector(product.size, seed=k) for k in range(4)], axis=1)
    for found, product_ in ((cut @ x, expected @ x), (cut @ many, expected @ many)):
        np.testing.assert_allclose(found, product_, rtol=0, atol=1e-11)
    np.testing.assert_allclose(cut.T @ x, expected.T @ x, rtol=0, atol=1e-11)
    np.testing.assert_allclose(cut.assemble().toarray(), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(cut.diagonal(), np.diag(expected), rtol=0, atol=1e-11)


def test_cost_and_text():
    product, operator, _ = STOKES.build()
    whole, parts = (
        operator.cost(),
        [operator[p].cost() for p in (("u", "u"), ("u", "p"), ("p", "u"))],
    )
    assert max(part.flops for part in parts) < whole.flops < sum(part.flops for part in parts)
    assert whole.stored_bytes < sum(part.stored_bytes for part in parts)
    assert "blocks [u, u] [u, p] [p, u]" in repr(operator)
    assert "full, 2 constrained" in repr(operator.at_level("full").constrained([0, 9]))
    assert repr(product).startswith("Product(u=")


def test_fields_and_coefficients_of_confusing_names():
    """Derivatives and coefficients are not taken for fields that are called alike."""
    mesh = make_mesh("square")
    W = femops.Product(u=femops.H1(mesh, 1), du_0=femops.H1(mesh, 2), c_k=femops.H1(mesh, 1))

    def form(u, du_0, c_k, k):
        return {"u": {"grad": u.grad}, "du_0": {"value": du_0}, "c_k": {"value": k[0] * c_k}}

    k, x = np.array([2.0]), vector(W.size)
    A = femops.form(form, W, k=k, level="full")
    assert error(dense(W, form, {"k": k}), A @ x, x) < 1e-13


# --- products -------------------------------------------------------------------------------------

PRODUCT = next(c for c in CASES if c.name == "three-fields-2d").product()


def test_sizes_and_views():
    u, p, t = PRODUCT.spaces.values()
    assert PRODUCT.names == ("u", "p", "t")
    assert PRODUCT.shape == (PRODUCT.size,) == (u.size + p.size + t.size,)
    assert PRODUCT.offsets == {"u": 0, "p": u.size, "t": u.size + p.size}
    x = PRODUCT.zeros("float32")
    parts = PRODUCT.split(x)
    assert [part.shape for part in parts] == [u.shape, p.shape, t.shape]
    assert all(np.shares_memory(part, x) for part in parts)
    u.components(parts[0])[2, 1] = 3.0
    assert x[5] == 3.0


@pytest.mark.parametrize("names", ["u", "pt", "upt"])
def test_join_and_split_are_inverse(names):
    parts = {name: vector(PRODUCT.spaces[name].size) for name in names}
    back = dict(zip(PRODUCT.names, PRODUCT.split(PRODUCT.join(**parts)), strict=True))
    for name in PRODUCT.names:
        np.testing.assert_array_equal(back[name], parts.get(name, 0.0 * back[name]))
    dofs = {name: [77 % PRODUCT.spaces[name].size, 0] for name in names}
    marks = {n: np.zeros(PRODUCT.spaces[n].size) for n in names}
    for name, where in dofs.items():
        marks[name][where] = 1.0
    expected = np.flatnonzero(PRODUCT.join(**marks))
    np.testing.assert_array_equal(PRODUCT.positions(**dofs), expected)


def test_interpolate():
    x = PRODUCT.interpolate(p=2.0, u=lambda x: (x[0], 1.0))
    u, p, t = PRODUCT.split(x)
    np.testing.assert_array_equal(u, PRODUCT.spaces["u"].interpolate(lambda x: (x[0], 1.0)))
    assert (p == 2.0).all()
    assert not t.any()


# --- what is refused ------------------------------------------------------------------------------


def test_attributes_of_the_spaces_are_found():
    with pytest.raises(AttributeError, match=r"W\.spaces\['u'\]\.boundary_dofs; W\.positions\("):
        PRODUCT.boundary_dofs(1)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        PRODUCT.nothing  # noqa: B018


def test_bad_products():
    mesh = femops.box((2, 2))
    V, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    other = femops.H1(femops.box((2, 2)), 1)
    for spaces, message in (
        ({"u": V}, "two spaces or more, got 1"),
        ({"u": V, "p": mesh}, "p is a Mesh: give a space"),
        ({"u": V, "p": other}, "p is on another mesh"),
        ({"u": V, "x": Q}, "'x' is the position"),
    ):
        with pytest.raises(SpaceError, match=message):
            femops.Product(**spaces)
    W = femops.Product(u=V, p=Q)
    refused = [
        (lambda: W.join(q=Q.zeros()), SpaceError, "no space 'q': it has u, p"),
        (W.positions, SpaceError, "nothing is given: name one or more of u, p"),
        (lambda: W.positions([0]), ArgumentError, "give the others by name, as u=u"),
        (lambda: W.u, AttributeError, r"W.spaces\['u'\] is the space, and u, p = W.split\(x\)"),
        (lambda: W.positions(p=[0, 9]), OperatorError, "dofs run from 0 to 9"),
        (lambda: W.join(u=V.zeros(), p=np.zeros(5)), VectorError, "p has 5 entries, the space"),
        (lambda: W.split(np.zeros(5)), VectorError, "vector has 5 entries, the space has 59"),
        (lambda: W.zeros("int32"), VectorError, "float64 or float32"),
    ]
    for call, kind, message in refused:
        with pytest.raises(kind, match=message):
            call()


def test_bad_vectors():
    product, operator, _ = STOKES.build()
    good = product.zeros()
    for call, message in (
        (lambda: operator.apply(good[1:]), "x has 128 entries"),
        (lambda: operator.apply(good.astype("float32")), "x has type float32"),
        (lambda: operator.apply(good, out=good), "out overlaps"),
        (lambda: operator @ good[1:], "x has 128 entries"),
        (lambda: operator.rhs(good[1:]), "b has 128 entries"),
        (lambda: operator.rhs(good, good[1:]), "values has 128 entries"),
    ):
        with pytest.raises(VectorError, match=message):
            call()
    with pytest.raises(OperatorError, match="dofs run from"):
        operator.constrained([product.size])
    for wrong in (("u", "nobody"), "up", "u", ("u",)):
        with pytest.raises(OperatorError, match="give the names of a test function"):
            operator[wrong]


def returned(u, p):
    return {"u": {"value": u}, "p": {"value": p}}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda u, p: {"u": {"value": u * p}, "p": {"value": p}}, "product, quotient or function"),
        (lambda u, p: {"u": {"value": u / p}, "p": {"value": p}}, "must be linear in all|not lin"),
        (lambda u, p: {"u": {"value": u}, "p": {"value": p * p}}, "not linear in p: .* for 'p'"),
        (
            lambda u, p: {"u": {"value": u}, "p": {"value": p + femops.where(p > 0, 1.0, 0.0)}},
            "compares a field",
        ),
        (lambda u, p: {"u": {"value": u + 1}, "p": {"value": p}}, "'u' has a part .* femops.load"),
        (lambda u, p: {"u": {"value": u}}, "returned no result for 'p': write \"p\": {}"),
        (lambda u, p: {"u": {"value": u}, "q": {"value": p}}, "with the keys u, p"),
        (lambda u, p: {"value": u}, "with the keys u, p"),
        (lambda u, p: {"u": {"value": u}, "p": p}, "returned FieldSymbol"),
        (lambda u, p: {"u": {"value": p}, "p": {"value": p}}, r"of shape \(\): .* needs \(2,\)"),
        (lambda u, p: {"u": {}, "p": {"value": 0 * p}}, "zero whatever the fields"),
        (lambda p, u: returned(u, p), r"\(p, u\) must take the fields first, in the order of"),
        (lambda u: returned(u, u), "must take the fields first"),
        (lambda u, p, mu: returned(u, p), "no coefficient 'mu' is given"),
    ],
)
def test_functions_that_are_refused(function, message):
    mesh = femops.box((2, 2))
    W = femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.H1(mesh, 1))
    with pytest.raises(TraceError, match=message):
        femops.form(function, W)


def test_forms_that_are_refused():
    mesh = femops.box((2, 2))
    V, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 1)
    W = femops.Product(u=V, p=Q)
    for call, message in (
        (lambda: femops.form(returned, W, Q), "leave out the test space"),
        (lambda: femops.form(returned, W, p=1.0), "'p' is a field of .* and a coefficient"),
        (lambda: femops.form(returned, {"u": V, "p": Q}), "trial is a dict: give a space"),
        (lambda: femops.form(3, W), "function is 3: give a function"),
        (lambda: femops.form(returned, W, level="some"), "level 'some'"),
        (lambda: femops.form(returned, W, dtype="int32"), "type int32"),
        (lambda: femops.form(stokes, W, mu=np.nan), "finite"),
    ):
        with pytest.raises(OperatorError, match=message):
            call()
