"""Integrals over faces between elements, against the point-by-point oracle and exact solutions."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, SpaceError, TraceError
from support.cases.meshes import bend, scrambled_box
from support.cuda.host_device import host_device
from support.oracles.interior import Oracle, Two

SQUARE = scrambled_box((2, 2), 7, bend, 2)


def random(n, seed=0):
    """Random vector (n,)."""
    return np.random.default_rng(seed).standard_normal(n)


def field(space, seed):
    """A coefficient with two values on each face: for femops, and for the oracle."""
    vector = 2.0 + 0.3 * random(space.size, seed)

    def sides(point):
        dofs = [space.restriction.indices[side.element] for side in point.sides]
        values = (
            side.basis(space)[0] @ vector[d] for side, d in zip(point.sides, dofs, strict=True)
        )
        return Two(*values)

    return femops.GridFunction(space, vector), sides


def close(found, expected):
    """Equal up to round-off."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * abs(expected).max())


def check(A, dense):
    """An operator, its transpose, matrix and diagonal are those of a dense matrix."""
    x, y = random(A.shape[1], 1), random(A.shape[0], 2)
    close(A @ x, dense @ x)
    close(A.T @ y, dense.T @ y)
    close(A.assemble().toarray(), dense)
    if dense.shape[0] == dense.shape[1]:
        close(A.diagonal(), np.diag(dense))


def coupled(u, w, n, h, x, k):
    """A form with all parts of fields and test functions."""
    vector = {"value": n * u.plus, "grad": np.multiply.outer(n, u.mean.grad)}
    return {
        "u": {
            "jump": k.minus * u.jump + w.mean @ n,
            "minus": {"grad": w.jump.grad @ n * h.plus},
        },
        "w": {"mean": vector, "plus": x[0] * w.minus + w.plus.sym_grad @ n * k.jump},
    }


def test_coupled_fields():
    """Fields of different orders, families and components, with a coefficient that jumps."""
    V, W = femops.L2(SQUARE, order=1), femops.H1(SQUARE, order=2, ncomp=2)
    k, of_oracle = field(femops.L2(SQUARE, order=0), 3)
    spaces = {"u": V, "w": W}
    dense = Oracle(coupled, spaces, spaces, 4, {"k": of_oracle}).matrix()
    check(femops.form(coupled, femops.Product(u=V, w=W), faces="interior", k=k), dense)


@pytest.mark.parametrize("dim", [1, 3])
def test_between_two_spaces(dim):
    """From discontinuous to continuous functions, on elements that are turned at random."""
    mesh = scrambled_box((2, 2, 1)[:dim], 5, bend, 2)
    V, W = femops.L2(mesh, order=1), femops.H1(mesh, order=2)

    def function(u, n, h, x):
        return {"jump": u.jump / h.plus, "mean": {"grad": n * u.minus}, "plus": x[0] * u.plus}

    A = femops.form(function, V, W, faces="interior")
    check(A, Oracle(function, {"u": V}, {"v": W}, 4 if dim > 1 else 1, {}).matrix())


def test_gradients_of_order_zero():
    """A side of a test function that has a gradient alone, which is zero in a space of order 0."""
    V = femops.L2(SQUARE, order=0)

    def function(u, n):
        return {"jump": {"value": u.minus, "grad": n * u.plus}}

    A = femops.form(function, V, faces="interior")
    check(A, Oracle(lambda u: {"jump": u.minus}, {"u": V}, {"v": V}, 2, {}).matrix())


def test_levels_sums_and_new_coefficients():
    """All levels, a sum with an integral over cells, updates and rows of constrained dofs."""
    V = femops.L2(SQUARE, order=1)

    def function(u, n, h, k):
        value = k.minus / h.minus * u.jump + u.mean.grad @ n
        return {"jump": {"value": value, "grad": n * u.minus}, "mean": u.plus}

    k, of_oracle = field(femops.L2(SQUARE, order=1), 4)
    dense = Oracle(function, {"u": V}, {"u": V}, 3, {"k": of_oracle}).matrix()
    other, _ = field(femops.L2(SQUARE, order=0), 5)
    A = femops.form(function, V, faces="interior", k=other).update(k=k)
    mass = femops.mass(V)
    for level in ("partial", "full", "element"):
        check((2.0 * A + mass).at_level(level), 2.0 * dense + mass.assemble().toarray())
    fixed, expected = np.array([0, 5]), dense.copy()
    expected[fixed], expected[:, fixed] = 0.0, 0.0
    expected[fixed, fixed] = 1.0
    check(A.constrained(fixed), expected)


def test_a_number_becomes_a_field_with_two_sides():
    """And a number again. An operator on several fields keeps the blocks that it has."""
    V, W = femops.L2(SQUARE, order=1), femops.L2(SQUARE, order=2)

    def function(u, w, n, k):
        return {
            "u": {"jump": k.minus * u.plus},
            "w": {"mean": k.mean * u.mean.grad @ n, "plus": {"grad": k.plus * n * w.minus}},
        }

    def made(k):
        return femops.form(function, femops.Product(u=V, w=W), faces="interior", k=k)

    k = field(femops.L2(SQUARE, order=1), 4)[0]
    for old, new in ((1.5, k), (k, 1.5), (k, lambda x: 2.0 + x[0])):
        expected, A = made(new).assemble().toarray(), made(old)
        close(A.update(k=new).assemble().toarray(), expected)
        close(A.T.update(k=new).assemble().toarray(), expected.T)
    x = random(V.size + W.size)
    close(made(1.5).at_level("full").update(k=k) @ x, made(k).assemble() @ x)
    penalty = femops.interior_penalty(V).update(kappa=k)
    close(penalty.assemble().toarray(), femops.interior_penalty(V, k).assemble().toarray())


def test_residual_derivative_and_functionals():
    """A nonlinear function, its Jacobian by complex steps, an integral and a least value."""
    V = femops.L2(SQUARE, order=1)

    def function(u, n, h, c):
        mean = {"grad": n * u.plus * u.minus}
        return {
            "jump": u.jump * np.exp(0.3 * u.plus.value) * h.minus + c * u.minus**2,
            "mean": mean,
            "energy": u.jump**2 + u.mean.grad @ n,
            "least": u.minus * u.plus,
        }

    oracle = Oracle(function, {"u": V}, {"u": V}, 3, {"c": lambda _: 1.5})
    F = femops.residual(
        function, V, faces="interior", integrals=["energy"], minima=["least"], c=1.5
    )
    state = random(V.size, 6)
    values, found = F.evaluate(state)
    close(values, oracle.residual(state))
    assert found["energy"] == pytest.approx(oracle.functional(state, "energy")[0], rel=1e-12)
    assert found["least"] == pytest.approx(oracle.functional(state, "least")[1], rel=1e-12)
    check(F.jacobian(state), oracle.matrix(state))


@pytest.mark.parametrize("family", ["gll", "gauss"])
def test_derivative_on_a_device(family):
    """Nodes on the face alone, or all nodes of its elements, for the state too."""
    V, D = (femops.L2(SQUARE, order=1, family=family, device=d) for d in (None, host_device()))
    here, there = (
        femops.residual(lambda u: {"jump": u.minus**2 * u.plus}, W, faces="interior")
        for W in (V, D)
    )
    state = random(V.size, 6)
    on_device = D.memory.put(state)
    close(D.memory.get(there.residual(on_device)), here.residual(state))
    J = there.jacobian(on_device)
    close(D.memory.get(J @ on_device), here.jacobian(state) @ state)


def test_elasticity_of_a_bar_is_diffusion():
    """In 1-D displacements diffuse with lam + 2 mu."""
    V, lam, mu = femops.L2(femops.box((4,)), order=2), 1.5, 0.25
    u = random(V.size)
    diffusion = femops.interior_penalty(V, lam + 2.0 * mu)
    close(femops.elastic_interior_penalty(V, lam, mu) @ u, diffusion @ u)


REFUSED = [
    (lambda u: {"jump": u.grad}, "write u.minus.grad"),
    (lambda u: {"jump": 2 * u}, "u has two sides here: write u.minus"),
    (lambda u, h: {"jump": u.jump / h}, "h has two sides here"),
    (lambda u, k: {"jump": k * u.jump}, "k has two sides here"),
    (lambda u, k: {"jump": k.minus * u.jump @ 1.0}, "test_interior_faces.py"),
    (lambda u: {"jmp": u.jump}, 'return {"jump": ...}'),
    (lambda u: {"jump": u.minus * u.plus}, "'u.minus' has a product"),
    (lambda u: {"plus": u.plus + 1.0}, "give that to femops.residual"),
    (lambda u: {"jump": "a", "mean": u.jump}, "combined with a str"),
    (lambda u: {"jump": {"value": {"value": u.jump}}}, "combined with a dict"),
    (lambda u, n: {"jump": n * u.jump, "mean": np.ones(3) * u.jump}, 'a "value" of shape (2,)'),
]


def test_refused_functions():
    """The message names the cure."""
    V, k = femops.L2(SQUARE, order=1), field(femops.L2(SQUARE, order=0), 1)[0]
    for function, message in REFUSED:
        given = {"k": k} if "k" in function.__code__.co_varnames else {}
        with pytest.raises(TraceError) as caught:
            femops.form(function, V, faces="interior", **given)
        assert message in str(caught.value)


def test_each_part_has_the_shape_of_the_test_function():
    """Parts are not broadcast: a scalar beside a vector does not act on each component."""
    V = femops.L2(SQUARE, order=1, ncomp=2)
    with pytest.raises(
        TraceError, match=r'a "value" of shape \(\): the test function needs \(2,\)'
    ):
        femops.form(lambda u: {"jump": u.jump.value[0], "mean": u.mean}, V, faces="interior")
    with pytest.raises(
        TraceError, match=r'a "grad" of shape \(2,\): the test function needs \(2, 2'
    ):
        femops.residual(
            lambda u, n: {"minus": {"grad": n * u.jump.value[0]}, "plus": {"grad": u.mean.grad}},
            V,
            faces="interior",
        )


def test_parts_of_constants_and_none():
    """A factor that is None is zero, also for derivatives by a control."""
    V, W = femops.L2(SQUARE, order=1), femops.L2(SQUARE, order=1, ncomp=2)

    def function(u, c):
        return {"jump": {"value": c * u.minus**2, "grad": None}, "mean": None}

    def without(u, c):
        return {"jump": c * u.minus**2}

    u = random(V.size)
    F, G = (femops.residual(f, V, faces="interior", c=1.5) for f in (function, without))
    close(F.residual(u), G.residual(u))
    by_c = femops.adjoint.Sensitivity(F, u, "c")
    close(by_c @ 1.0, G.residual(u) / 1.5)
    pairs = femops.residual(lambda u, c: {"jump": [c, 2.0 * c]}, W, faces="interior", c=3.0)
    expected = femops.residual(lambda u: {"jump": np.array([3.0, 6.0])}, W, faces="interior")
    close(pairs.residual(W.zeros()), expected.residual(W.zeros()))


def test_refused_arguments():
    """Faces, meshes and coefficients that do not fit."""
    V, one = femops.L2(SQUARE, order=1), femops.L2(femops.box((1, 1)), order=1)
    jump, inner = (lambda u: {"jump": u.jump}), {"faces": "interior"}
    named = {"integrals": ["jump"], **inner}
    refused = [
        (lambda: femops.form(jump, V, faces="boundary"), OperatorError, 'give "interior", or'),
        (lambda: femops.form(jump, V, boundary="all", **inner), OperatorError, "exclude each oth"),
        (lambda: femops.form(jump, one, **inner), SpaceError, "leave out the integral"),
        (
            lambda: femops.form({"interior": jump}, V, k=1.0),
            TraceError,
            "takes the coefficient 'k'",
        ),
        (lambda: femops.interior_penalty(V, np.ones((4, 9))), OperatorError, "a number, an array"),
        (lambda: femops.dirichlet_load(V, 1.0, boundary=None), OperatorError, "give boundary=, an"),
        (lambda: femops.residual(jump, V, **named), OperatorError, "the name of two results"),
    ]
    for ask, kind, words in refused:
        with pytest.raises(kind, match=words):
            ask()
