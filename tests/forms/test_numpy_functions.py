"""Functions of NumPy in forms, at ordinary and at special numbers: kernels compute what NumPy does.

Nodes and quadrature points of the space coincide. So an entry of the residual, divided by the
weight of its point, is the function at an entry of the vector.
"""

from __future__ import annotations

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import femops
from femops.errors import TraceError

FUNCTIONS = (
    *(np.exp, np.log, np.sin, np.cos, np.tan, np.tanh, np.sinh, np.cosh, np.arctan, np.sqrt),
    *(np.exp2, np.expm1, np.log2, np.log10, np.log1p, np.arcsin, np.arccos),
    *(np.abs, np.negative, np.square),
    *(lambda u, n=n: u**n for n in (0, 1, 2, 3, 7, 16, 17, 31, -1, -2, -17)),
    *(lambda u, e=e: u**e for e in (0.5, -0.5, 1 / 3, 1.5, -1.5)),
    *(lambda u, base=base: base**u for base in (2.0, 1.0, 0.0, -2.0)),
    lambda u: u**u,
    lambda u: np.arctan2(u, 1.0),
    lambda u: np.arctan2(-0.0, u),
    lambda u: np.hypot(u, 3.0 * u),
    lambda u: np.clip(u, -1.0, 2.0),
    lambda u: np.clip(u, None, 2.0) + True * u,
    lambda u: np.arctan2(u, -u),
    lambda u: 1 / u,
    lambda u: u / -0.0,
    lambda u: u - u,
    lambda u: femops.where(u < 0, 1.0, femops.where(u <= 0, 2.0, u)),
    lambda u: femops.where(u == 1, 5.0, femops.where(u != u, 6.0, u)),
    lambda u: femops.where(~(u < 2) ^ (u > -2), u, 7.0),
    lambda u: femops.where((u >= 2) | (u <= -2) & (u != -2), u, 7.0),
    lambda u: (u > 0.5) + 1.0 * u,
    lambda u: np.minimum(np.maximum(u, -1.0), 1.0),
    lambda u: np.maximum(u, -u),
    lambda u: np.fmax(u, 0.5),
    lambda u: np.fmin(0.5, u),
    lambda u: np.fmax(1 / u, u),
    lambda u: u * 1e300 + 1e30,
    lambda u: u * 1e-310,
    lambda u: u * 2**70 + np.int8(3) - np.float32(0.1),
)


def numbers(dtype):
    """Ordinary and special numbers of a type, as many as the space has nodes."""
    info = np.finfo(dtype)
    positive = [0.0, 0.5, 1, 1 + info.eps, 1.5, 2, 3, 88, 709, 1e-20, 1e20, np.inf]
    positive += [info.tiny, info.smallest_subnormal, info.max, info.max / 2]
    special = np.array([*positive, *(-one for one in positive), np.nan], dtype)
    ordinary = 3 * np.random.default_rng(0).standard_normal(44 - special.size)
    return np.concatenate([special, ordinary.astype(dtype)])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_are_those_of_numpy(dtype):
    V = femops.L2(femops.box((11,)), order=3, ncomp=len(FUNCTIONS))
    rule = V.quadrature(4)

    def function(u):
        return {"value": np.stack([f(u[k]) for k, f in enumerate(FUNCTIONS)])}

    u = np.repeat(numbers(dtype)[:, None], len(FUNCTIONS), axis=1)
    ones = femops.residual(lambda u: {"value": u.value}, V, quadrature=rule, dtype=dtype)
    weights = V.components(ones.residual(np.ones(V.size, dtype)))
    found = V.components(
        femops.residual(function, V, quadrature=rule, dtype=dtype).residual(u.ravel())
    )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = np.stack([f(u[:, k]) for k, f in enumerate(FUNCTIONS)], axis=1).astype(dtype)
        wanted = values * weights
        same = np.abs(found - wanted) <= 8 * np.finfo(dtype).eps * np.abs(wanted)
    same |= (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    same |= np.abs(wanted) < 8 * np.finfo(dtype).tiny  # denormal: few digits
    for row, k in np.argwhere(~same):
        raise AssertionError(f"function {k} of {u[row, k]}: {found[row, k]}, {wanted[row, k]}")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_derivatives_do_not_cancel(dtype):
    """Jacobians where 1 - tanh(u)**2, exp(u) - 1 and 1 - u**2 would lose their digits."""
    eps = float(np.finfo(dtype).eps)
    V = femops.L2(femops.box((2,)), order=1, ncomp=5)
    rule = V.quadrature(2)

    def function(u):
        return {
            "value": np.stack(
                [np.tanh(u[0]), np.expm1(u[1]), np.arcsin(u[2]), np.arccos(u[3]), np.log1p(u[4])]
            )
        }

    F = femops.residual(function, V, quadrature=rule, dtype=dtype)
    ones = femops.residual(lambda u: {"value": u.value}, V, quadrature=rule, dtype=dtype)
    u = np.tile([10.0, -30.0, 1.0 - 4 * eps, -1.0 + 4 * eps, -1.0 + 4 * eps], 4).astype(dtype)
    J = V.components(F.jacobian(u) @ np.ones(V.size, dtype))
    weights = V.components(ones.residual(np.ones(V.size, dtype)))
    a, b, c, d, e = u[:5].astype(np.longdouble)
    wanted = [1 / np.cosh(a) ** 2, np.exp(b), 1 / np.sqrt(1 - c**2), -1 / np.sqrt(1 - d**2)]
    np.testing.assert_allclose(J / weights, [[*wanted, 1 / (1 + e)]] * 4, rtol=16 * eps)


def test_arrays_of_a_form_are_clipped_entry_by_entry():
    """In a form, and in the derivative by a coefficient. Products keep symbols without an axis."""
    V = femops.H1(femops.box((2, 2)), order=2)
    W = femops.H1(V.mesh, order=1, ncomp=2)
    u = V.interpolate(lambda x: np.sin(7 * x[0]) + x[1])
    k = femops.GridFunction(W, W.interpolate(lambda x: (1 + x[0], x[1])))

    def clipped(u, k, x):
        return np.clip(u.grad, -1, k) @ np.clip(2 * k, None, 1.5) * np.clip(x, 0.2, 0.7)[0]

    def by_entry(u, k, x):
        parts = (np.clip(u.grad[i], -1, k[i]) * np.clip(2 * k[i], None, 1.5) for i in range(2))
        return sum(parts) * np.clip(x[0], 0.2, 0.7)

    J, same = (femops.functional(f, V, k=k) for f in (clipped, by_entry))
    assert J(u) == same(u)
    assert np.array_equal(J.derivative.residual(u), same.derivative.residual(u))
    by_k, wanted = (femops.gradient(one, u=u, wrt="k")["k"] for one in (J, same))
    np.testing.assert_allclose(by_k, wanted, atol=1e-15)
    signs = femops.residual(lambda u: {"value": (np.dot(u.grad, u.grad) > 1) * u}, V)
    other = femops.residual(lambda u: {"value": (femops.inner(u.grad, u.grad) > 1) * u}, V)
    assert np.array_equal(signs.residual(u), other.residual(u))
    # a coefficient with one value on both sides of a face
    on_faces = [
        femops.functional(f, V, faces="interior", k=0.7, c=np.array([0.2, 3.0]))
        for f in (
            lambda u, k, c: u.minus * np.clip(k, 0.1, 0.5) * np.clip(c, None, 2.0)[1],
            lambda u, k, c: u.minus * 0.5 * 2.0,
        )
    ]
    assert on_faces[0](u) == on_faces[1](u) != 0


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_fractions_are_numbers(dtype):
    V = femops.H1(femops.box((2,)), order=1)
    third, u = Fraction(1, 3), np.arange(3.0).astype(dtype)
    A, B = (
        femops.form(lambda u, f=f: {"value": f * u + u / f, "grad": u.grad * f}, V, dtype=dtype)
        for f in (third, 1 / 3)
    )
    assert np.array_equal(A @ u, B @ u)


@pytest.mark.parametrize(
    ("other", "message"),
    [(Decimal("0.3"), "a Decimal"), ("a", "a str"), (10**400, "beyond the range of float64")],
)
def test_what_is_no_number(other, message):
    V = femops.H1(femops.box((2,)), order=1)
    for result in (lambda u: other * u, lambda u: np.minimum(other, u.value), lambda u: other):
        with pytest.raises(TraceError, match=message):
            femops.residual(lambda u, f=result: {"value": f(u)}, V)
