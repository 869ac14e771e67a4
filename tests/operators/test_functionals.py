"""Functionals of fields: values against quadrature, derivatives against differences."""

import copy
import pickle

import numpy as np
import pytest

import femops


def area(u, k):
    """Not quadratic, with a coefficient."""
    return k * np.sqrt(1 + femops.inner(u.grad, u.grad)) + 0.1 * np.exp(u.value)


def mixed(u, p, q, x):
    """Of three fields."""
    return femops.inner(u.grad, u.grad) * p**2 + q * p * u[0] + x[0] * u.div * q


def outflow(u, p, q, n):
    """Over the boundary, where q has no values."""
    return (u.value @ n) ** 3 + p**2 * u[0]


def make(name):
    mesh = femops.disc(1)
    if name == "area":
        return femops.functional(area, femops.H1(mesh, 3), k=lambda x: 2 + x[0])
    U, P, Q = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 3), femops.L2(mesh, 1)
    W = femops.Product(u=U, p=P, q=Q)
    if name == "mixed":
        return femops.functional(mixed, W)
    return femops.functional(outflow, W, boundary="all")


@pytest.mark.parametrize("name", ["area", "mixed", "outflow"])
def test_derivatives(name):
    J = make(name)
    rng = np.random.default_rng(1)
    u, v = 0.3 * rng.standard_normal(J.space.size), rng.standard_normal(J.space.size)
    h, F = 1e-6, J.derivative
    slope = (J(u + h * v) - J(u - h * v)) / (2 * h)
    assert abs(F.residual(u) @ v - slope) < 1e-7 * abs(slope)
    bend = (F.residual(u + h * v) - F.residual(u - h * v)) / (2 * h)
    H = F.jacobian(u)
    assert H.symmetric
    assert abs(H @ v - bend).max() < 1e-7 * abs(bend).max()
    for twin in (copy.deepcopy(J), pickle.loads(pickle.dumps(J.derivative))):
        again = twin.derivative if isinstance(twin, femops.Functional) else twin
        assert np.array_equal(again.residual(u), F.residual(u))


def test_values():
    """Exact integrals of polynomials, and the circumference of a disc."""
    V = femops.H1(femops.box((3, 2)), 3)
    u = V.interpolate(lambda x: x[0] ** 2 * x[1])
    J = femops.functional(lambda u, x: u.grad[0] * x[0] + u.value**2, V)
    assert abs(J(u) - (1 / 3 + 1 / 15)) < 1e-14
    J = femops.functional(lambda u, k: k * u.value, V, boundary=2, k=1.0)
    assert abs(J(u) - 0.5) < 1e-14  # at x = 1, attribute 2
    assert abs(J.update(k=3.0)(u) - 1.5) < 1e-14
    ones = femops.functional(lambda u: 1.0 + 0.0 * u.value, V)
    assert abs(ones(u) - 1.0) < 1e-15
    assert not ones.derivative.residual(u).any()


def test_functionals_that_are_zero():
    """A kernel gives what it is told to, not what it has interpolated."""
    V = femops.H1(femops.box((3, 2)), 3)
    u, names = V.interpolate(lambda x: 3 + x[0]), {"minima": ["least"], "integrals": ["whole"]}
    zeros = {"least": 0.0, "whole": 0.0}
    assert femops.functional(lambda u: 0.0, V)(u) == 0.0
    assert femops.residual(lambda u: zeros, V, **names).evaluate(u)[1] == zeros
    F = femops.residual(lambda u: zeros | {"grad": u.grad}, V, **names)
    assert F.evaluate(u)[1] == zeros


def test_newton_minimises():
    V = femops.H1(femops.disc(1), 3)

    def energy(u):
        return 0.5 * femops.inner(u.grad, u.grad) + 0.25 * u.value**4 - u.value

    J = femops.functional(energy, V)
    u, info = femops.newton(J.derivative.constrained(V.boundary_dofs()), V.zeros())
    assert info.converged
    rng, inside = np.random.default_rng(0), np.setdiff1d(np.arange(V.size), V.boundary_dofs())
    step = V.zeros()
    step[inside] = rng.standard_normal(len(inside))
    assert all(J(u + h * step) > J(u) for h in (-1e-2, -1e-3, 1e-3, 1e-2))


def test_complex_vectors_are_not_cut():
    """A conversion, as of float32, would drop the imaginary part."""
    V = femops.H1(femops.box((2, 2)), 2)
    J, u = femops.functional(lambda u: u**2, V), V.zeros(complex)
    for refused in (J, J.derivative.residual, lambda u: femops.mass(V).apply(u, V.zeros())):
        with pytest.raises(femops.errors.VectorError, match="real and imaginary part one by one"):
            refused(u)
    with pytest.raises(femops.errors.VectorError, match=r"convert it by .astype\(float64\)"):
        J(V.zeros().astype("float32"))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda u: u.grad, r"an array of shape \(2,\): .* returns a number, the integrand$"),
        (lambda u, d: (u - d) ** 2, r"shape \(25,\): .* Give femops.GridFunction\(space, vector\)"),
        (lambda u, d: d @ u.grad, r"is it a vector of a space\? Give femops.GridFunction"),
        (lambda u: {"value": u}, "a dictionary: "),
        (lambda u: None, "nothing: "),
    ],
)
def test_functions_that_return_no_number(function, message):
    V = femops.H1(femops.box((2, 2)), 2)
    coefficients = {"d": V.zeros()} if function.__code__.co_argcount > 1 else {}
    with pytest.raises(femops.errors.TraceError, match=message):
        femops.functional(function, V, **coefficients)
