"""Sums of residuals and of functionals over elements and over boundaries."""

import pickle

import numpy as np
import pytest

import femops

MESH = femops.disc(1)
W = femops.Product(u=femops.H1(MESH, 2), p=femops.L2(MESH, 1))


def inside(u, p, x, k):
    return {
        "u": {"grad": (1 + u**2) * u.grad * k, "value": p * x[0]},
        "p": {"value": p**3 - u},
        "least": p,
    }


def walls(u, p, n, h, k):
    return {
        "u": {"value": k * u**3 / h - u.grad @ n, "grad": -u * n},
        "p": {"value": u * p},
        "flux": p,
    }


def source(u, p, x):
    return {"u": {"value": 1 + x[1]}, "p": {}}


def parts():
    """Over the elements, over the boundary, and one that depends on no field."""
    return (
        femops.residual(inside, W, minima=["least"], k=2.0),
        femops.residual(walls, W, boundary="all", integrals=["flux"], k=0.5),
        femops.residual(source, W),
    )


def test_sums_are_sums():
    """Of residuals, functionals and Jacobians, in any order, under conditions."""
    a, b, c = parts()
    u, step = np.random.default_rng(0).standard_normal((2, W.size))
    held = W.positions(u=W.spaces["u"].boundary_dofs()[:7])
    kept = np.ones(W.size)
    kept[held] = 0.0
    for total, level in ((b - 2 * a + 3 * c, "partial"), (sum([c * 3, b]) + a * -2, "full")):
        residual, functionals = total.evaluate(u)
        expected = b.residual(u) - 2 * a.residual(u) + 3 * c.residual(u)
        np.testing.assert_allclose(residual, expected, rtol=0, atol=1e-13 * abs(expected).max())
        assert functionals == a.evaluate(u)[1] | b.evaluate(u)[1]
        slope = b.jacobian(u) @ step - 2 * (a.jacobian(u) @ step)
        found = total.jacobian(u, level=level) @ step
        np.testing.assert_allclose(found, slope, rtol=0, atol=1e-12 * abs(slope).max())
        conditions = total.constrained(held)
        np.testing.assert_allclose(
            conditions.residual(u), kept * expected, rtol=0, atol=1e-13 * abs(expected).max()
        )
        assert np.array_equal((conditions.jacobian(u) @ step)[held], step[held])
        assert total.element_of("least") == a.element_of("least")
    again = pickle.loads(pickle.dumps(a + b))
    assert np.array_equal(again.residual(u), (a + b).residual(u))


def test_update_reaches_all_parts():
    a, b, c = parts()
    u = np.random.default_rng(1).standard_normal(W.size)
    new = (a + b + c).update(k=7.0)
    expected = (
        femops.residual(inside, W, minima=["least"], k=7.0)
        + femops.residual(walls, W, boundary="all", integrals=["flux"], k=7.0)
        + c
    )
    assert np.array_equal(new.residual(u), expected.residual(u))
    step = np.cos(np.arange(W.size))
    assert np.array_equal(new.jacobian(u) @ step, expected.jacobian(u) @ step)
    with pytest.raises(
        femops.errors.OperatorError, match=r"inside \+ walls has no coefficient 'q'"
    ):
        (a + b).update(q=1.0)


def test_what_is_refused():
    a, b, c = parts()
    V, dofs = W.spaces["u"], [0]
    other = femops.residual(lambda u: {"value": u**2}, V)
    refused = [
        (lambda: a + other, "different spaces"),
        (lambda: a + a, "both residuals have a functional 'least'"),
        (lambda: a + b.constrained(dofs), "different constraints"),
        (lambda: 0.0 * a, "times 0.0"),
        (lambda: a * np.inf, "times inf"),
        (lambda: a + femops.mass(V), "mass.* write its terms as a residual"),
        (lambda: femops.mass(V) + a, "mass.* write its terms as a residual"),
        (lambda: a - W.zeros(), r"array of shape .* femops\.newton\(R, u0, b\)"),
    ]
    for ask, match in refused:
        with pytest.raises(femops.errors.OperatorError, match=match):
            ask()
    for wrong in (lambda: a + 1, lambda: a * "2", lambda: a + "2", lambda: a * True):
        with pytest.raises((TypeError, femops.errors.OperatorError)):
            wrong()
    with pytest.raises(femops.errors.TraceError, match="zero whatever the fields"):
        c.jacobian(W.zeros())


def test_functions_by_domain():
    """As `femops.form` takes them: their sum, and each coefficient goes to those that take it."""
    V = femops.L2(MESH, 1)

    def cells(u, k):
        return {"value": k * u**3}

    def between(u, k):
        return {"jump": k * u.jump * u.mean.value**2}

    def outside(u, s):
        return {"value": s * u**2}

    functions = {"cells": cells, "interior": between, "boundary": outside}
    R = femops.residual(functions, V, k=2.0, s=3.0)
    u = np.random.default_rng(1).standard_normal(V.size)
    expected = femops.residual(cells, V, k=2.0).residual(u)
    expected += femops.residual(between, V, faces="interior", k=2.0).residual(u)
    expected += femops.residual(outside, V, boundary="all", s=3.0).residual(u)
    np.testing.assert_allclose(R.residual(u), expected, rtol=0, atol=1e-13 * abs(expected).max())
    for given, words in (
        ({"minima": ["k"], "k": 2.0, "s": 3.0}, "functions by domain have no functionals"),
        ({"faces": "interior", "k": 2.0, "s": 3.0}, "leave out faces="),
    ):
        with pytest.raises(femops.errors.OperatorError, match=words):
            femops.residual(functions, V, **given)
    with pytest.raises(femops.errors.TraceError, match="no function takes the coefficient 'r'"):
        femops.residual(functions, V, k=2.0, s=3.0, r=1.0)


def test_functionals():
    """Their values and derivatives add up."""
    J = femops.functional(lambda u, p, k: k * u**4 + p * u.grad[0], W, k=2.0)
    K = femops.functional(lambda u, p, n, k: k * u * (u.grad @ n) + p**2, W, boundary=True, k=1.0)
    total = 3 * J - 0.5 * K
    u, step = np.random.default_rng(2).standard_normal((2, W.size))
    assert np.isclose(total(u), 3 * J(u) - 0.5 * K(u), rtol=1e-14)
    slope = 3 * J.derivative.residual(u) - 0.5 * K.derivative.residual(u)
    np.testing.assert_allclose(total.derivative.residual(u), slope, rtol=0, atol=1e-12)
    second = total.derivative.jacobian(u)
    assert abs(step @ (second @ u) - u @ (second @ step)) < 1e-10 * abs(step @ (second @ u))
    new = total.update(k=5.0)
    assert np.isclose(new(u), 3 * J.update(k=5.0)(u) - 0.5 * K.update(k=5.0)(u), rtol=1e-14)


def test_newton_with_a_boundary_that_radiates():
    """-u'' = 0 with u = 1 on the left and -u' = u^4 - 1/16 + 1/2 on the right: u = 1 - x / 2."""
    V = femops.H1(femops.box((4,)), 3)
    R = femops.residual(lambda u: {"grad": u.grad}, V)
    R += femops.residual(lambda u: {"value": u**4 - 1 / 16 + 1 / 2}, V, boundary=2)
    u, info = femops.newton(R.constrained(V.boundary_dofs(1)), V.interpolate(1.0))
    assert info.converged
    np.testing.assert_allclose(u, V.interpolate(lambda x: 1 - x[0] / 2), atol=1e-10)
