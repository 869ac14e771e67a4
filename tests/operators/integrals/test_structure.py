"""What is zero, equal or symmetric in D is decided exactly, whatever the size of numbers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femops

LEVELS = ["full", "element", "partial", "matrix-free"]
CHARGE = 1.6e-19


@pytest.fixture(scope="module")
def scalar() -> Any:
    return femops.H1(femops.box((2, 2)), order=2)


@pytest.fixture(scope="module")
def plane(scalar: Any) -> tuple[Any, Any]:
    """The functions x and y, whose gradients are the unit vectors."""
    return scalar.interpolate(lambda x: x[0]), scalar.interpolate(lambda x: x[1])


def hall(u: Any, s: Any, n: Any) -> dict[str, Any]:
    """Conductivity in a magnetic field: a literal beside a large coefficient."""
    return {"grad": np.array([[s, -CHARGE * n], [CHARGE * n, s]]) @ u.grad}


@pytest.mark.parametrize("level", LEVELS)
def test_a_small_literal_times_a_large_coefficient(scalar: Any, plane: Any, level: str) -> None:
    A = femops.form(hall, scalar, s=1.0, n=1e19, level=level)
    x, y = plane
    assert not A.symmetric
    for operator, sign in ((A, 1.0), (A.T, -1.0)):
        assert x @ (operator @ y) == pytest.approx(-1.6 * sign)
        assert y @ (operator @ x) == pytest.approx(1.6 * sign)
        assert x @ (operator @ x) == pytest.approx(1.0)


@pytest.mark.parametrize("ratio", [1e-6, 1e-12, 1e-14])
def test_a_small_skew_part_is_kept(scalar: Any, plane: Any, ratio: float) -> None:
    """Of a tensor, for the diagonal of which it is round-off."""
    x, y = plane
    turned = np.array([[1.0, -ratio], [ratio, 1.0]])
    for kappa in (turned, lambda x: turned[:, :, None] * np.ones(x.shape[1])):
        A = femops.diffusion(scalar, kappa)
        assert not A.symmetric
        assert x @ (A @ y) == pytest.approx(-ratio, abs=2e-14)
        assert y @ (A @ x) == pytest.approx(ratio, abs=2e-14)
        step = A.assemble().toarray() - A.T.assemble().toarray()
        assert abs(step).max() == pytest.approx(ratio, rel=0.7)


def test_a_tensor_that_is_symmetric_but_for_rounding(scalar: Any) -> None:
    """Is not symmetric; conjugate gradients say how to make it so."""
    kappa = np.array([[2.0, 0.1], [np.nextafter(0.1, 1), 2.0]])
    A = femops.diffusion(scalar, kappa) + femops.mass(scalar)
    with pytest.raises(femops.errors.FemopsError, match=r"give \(K \+ K\.T\) / 2"):
        femops.cg(A, np.ones(scalar.size))
    assert femops.diffusion(scalar, (kappa + kappa.T) / 2).symmetric


def test_a_jacobian_of_small_literals(scalar: Any, plane: Any) -> None:
    def flux(u: Any, n: Any) -> dict[str, Any]:
        g = u.grad
        swirl = CHARGE * n * np.array([-g[1], g[0]])
        return {"grad": (1 + u * u) * g + swirl}

    x, y = plane
    J = femops.residual(flux, scalar, n=1e19).jacobian(scalar.zeros())
    assert not J.symmetric
    assert x @ (J @ y) == pytest.approx(-1.6)
    assert y @ (J @ x) == pytest.approx(1.6)
    assert y @ (J.T @ x) == pytest.approx(-1.6)


def test_blocks_of_small_literals(scalar: Any) -> None:
    W = femops.Product(u=scalar, p=scalar)

    def coupled(u: Any, p: Any, n: Any) -> dict[str, Any]:
        return {
            "u": {"value": u + p - CHARGE * n * p},
            "p": {"value": u + p + CHARGE * n * u},
        }

    A = femops.form(coupled, W, n=1e19)
    one = np.ones(scalar.size)
    zero = np.zeros(scalar.size)
    assert not A.symmetric
    u, p = np.r_[one, zero], np.r_[zero, one]
    for operator, (up, pu) in ((A, (-0.6, 2.6)), (A.T, (2.6, -0.6))):
        assert u @ (operator @ p) == pytest.approx(up)
        assert p @ (operator @ u) == pytest.approx(pu)


def test_forms_that_are_small(scalar: Any) -> None:
    """No form is zero because its numbers are small."""
    one = np.ones(scalar.size)
    for literal, n in ((1e-200, 1e200), (1e-160, 1e160), (5e-324, 1e300)):
        A = femops.form(lambda u, n, a=literal: {"value": a * n * (a * n * u)}, scalar, n=n)
        assert one @ (A @ one) == pytest.approx((literal * n) ** 2)


def test_what_is_the_same_is_found(scalar: Any) -> None:
    """However it is written; and nothing that rounding tells apart is taken for the same."""

    def one_way(u: Any, a: Any, b: Any) -> dict[str, Any]:
        return {"grad": np.array([[a * (a + b), a * b], [b * a, a * a + b * a]]) @ u.grad}

    def cancelling(u: Any, a: Any, b: Any) -> dict[str, Any]:
        return {"grad": np.array([[1.0, (a + b) - a], [b, 1.0]]) @ u.grad}

    assert femops.form(one_way, scalar, a=2.0, b=3.0).symmetric
    A = femops.form(cancelling, scalar, a=1e20, b=1.0)
    x, y = (scalar.interpolate(lambda x, d=d: x[d]) for d in range(2))
    assert y @ (A @ x) == pytest.approx(1.0)  # not 0, what is left of 1 beside 1e20
    assert not A.symmetric


# --- conditions -----------------------------------------------------------------------------------


def added(a: Any, b: Any) -> Any:
    """In place where that is possible: symbols are not changed."""
    c = a
    c += b
    c *= 2.0
    c /= 1.0 + a
    return c - a


CONDITIONS = {
    "times a field": lambda x: x[0] > 0.5,
    "one minus": lambda x: 1 - (x[0] > 0.5),
    "product": lambda x: (x[0] > 0.5) * (x[1] > 0.5),
    "either": lambda x: (x[0] > 0.5) + (x[1] > 0.5),
    "quotient": lambda x: (x[0] > 0.5) / (1.0 + (x[1] > 0.5)),
    "and": lambda x: 2.0 * ((x[0] > 0.5) & (x[1] > 0.5)),
    "or": lambda x: 2.0 * ((x[0] > 0.5) | (x[1] > 0.5)),
    "xor": lambda x: 2.0 * ((x[0] > 0.5) ^ (x[1] > 0.5)),
    "not": lambda x: 2.0 * ~(x[0] > 0.5),
    "with a boolean": lambda x: 2.0 * ((x[0] > 0.5) & np.True_),
    "logical": lambda x: 1.0 * np.logical_not(np.logical_and(x[0], x[1] > 0.5)),
    "equal conditions": lambda x: 1.0 * ((x[0] > 0.5) == (x[1] > 0.5)),
    "equal": lambda x: 1.0 * (abs(x[0] - 0.5) == abs(0.5 - x[0])),
    "not equal": lambda x: 3.0 * (np.floor_divide(0, 1) + (x[0] != 0.5)),
    "power": lambda x: (x[0] > 0.5) ** 2 + (1.0 + x[0]) ** (x[1] > 0.5),
    "smaller": lambda x: np.minimum((x[0] > 0.5) * 1.0, x[1] > 0.5),
    "sign": lambda x: np.sign(x[0] - 0.5) + np.sign(0.0 * x[0]),
    "square": lambda x: np.square(+x[0]) + np.positive(x[1]),
    "where a number": lambda x: femops.where(x[0] * 0.0 + 1.0, 1.0, 2.0),
    "where both": lambda x: femops.where((x[0] > 0.2) * (x[1] > 0.5), 3.0, x[0]),
    "where booleans": lambda x: femops.where(x[0] > 0.5, x[1] > 0.5, x[1] < 0.5) * 1.0,
    "where a sum": lambda x: femops.where((x[0] > 0.5) + (x[1] > 0.5), 3.0, x[0]),
    "where constants": lambda x: femops.where(0.0 * x[0] > 1.0, 1.0, 2.0),
    "in place": lambda x: added(x[0], x[1]),
    "cross": lambda x: np.cross(np.array([x[0], x[1], 0.0]), np.array([1.0, 2.0, 0.0]))[2],
}


def at_each(function: Any) -> Any:
    """A function of one point, called at each of many."""
    return lambda x: np.array([1.0 * function(point) for point in x.T])


def test_conditions_are_the_numbers_that_numpy_makes_of_them(scalar: Any) -> None:
    """Against the values of the same function at points: one for each of five components."""
    V, names = femops.H1(scalar.mesh, scalar.order, ncomp=5), [*CONDITIONS]
    u = np.random.default_rng(3).standard_normal(V.size)
    for k in range(0, len(names), 5):
        some = names[k : k + 5]

        def values(u: Any, x: Any, some: Any = some) -> Any:
            return {"value": np.array([CONDITIONS[n](x) * u[c] for c, n in enumerate(some)])}

        found = V.components(femops.form(values, V) @ u)
        for c, name in enumerate(some):
            mass = femops.mass(scalar, at_each(CONDITIONS[name]))
            expected = mass @ V.components(u)[:, c].copy()
            np.testing.assert_allclose(found[:, c], expected, rtol=1e-13, atol=1e-15, err_msg=name)


def test_conditions_in_a_kernel(scalar: Any) -> None:
    """All of them, each with a weight of its own."""

    def total(x: Any) -> Any:
        return sum((k + 1) * (1.0 * function(x)) for k, function in enumerate(CONDITIONS.values()))

    A = femops.form(lambda u, x: {"value": total(x) * u}, scalar, level="matrix-free")
    F = femops.residual(lambda u, x: {"value": total(x) * u}, scalar)
    expected = femops.mass(scalar, at_each(total))
    u = np.random.default_rng(3).standard_normal(scalar.size)
    np.testing.assert_allclose(A @ u, expected @ u, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(F.residual(u), expected @ u, rtol=1e-12, atol=1e-14)


def overwrite(u: Any, x: Any) -> Any:
    x[0] = 5.0
    return {"value": u}


def scale(u: Any) -> Any:
    g = u.grad
    g *= 2
    return {"grad": g}


def divide(u: Any) -> Any:
    return {"value": (1 / 0) * u}


def misspell(u: Any) -> Any:
    return {"value": kapa * u}  # noqa: F821


def subtract(u: Any, x: Any) -> Any:
    return {"value": ((x[0] > 0) - (x[1] > 0)) * u}


def negate(u: Any, x: Any) -> Any:
    return {"value": -(x[0] > 0) * u}


def unparenthesised(u: Any, x: Any) -> Any:
    return {"value": (x[0] > 0.2 & x[1] > 0.3) * u}


def fail(u: Any) -> Any:
    raise RuntimeError("no material today")


@pytest.mark.parametrize(
    ("function", "line", "what"),
    [
        (overwrite, "x[0] = 5.0", "cannot overwrite its arguments"),
        (scale, "g *= 2", "cannot overwrite its arguments"),
        (divide, "(1 / 0) * u", "division by zero"),
        (misspell, "kapa * u", "'kapa' is not defined"),
        (subtract, "(x[0] > 0) - (x[1] > 0)", r"\^"),
        (negate, "-(x[0] > 0)", "~"),
        (unparenthesised, "x[0] > 0.2 & x[1]", "parentheses"),
        (fail, "no material today", "RuntimeError"),
    ],
)
def test_what_goes_wrong_in_a_form_names_its_line(
    scalar: Any, function: Any, line: str, what: str
) -> None:
    with pytest.raises(femops.errors.TraceError, match=what) as caught:
        femops.form(function, scalar)
    assert f"{Path(__file__).name}, line " in str(caught.value)
    assert line in str(caught.value)


# --- choices --------------------------------------------------------------------------------------


def logarithm(threshold: float) -> Any:
    """No number where x is less, which is not taken where x is less than a half."""
    return lambda x, a, u: femops.where(x[0] > 0.5, np.log(x[0] - threshold) * a * u, u)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_taken_may_be_no_number(scalar: Any, level: str) -> None:
    safe, wrong = logarithm(0.5), logarithm(0.7)
    forms = [
        lambda u, x, a, f: {"value": f(x, a, u), "grad": (1 + x[0]) * u.grad},
        lambda u, x, a, f: {"value": f(x, a, 1.0) * u, "grad": (1 + x[0]) * u.grad},
        lambda u, x, a, f: {"value": u * femops.where(a > 3.0, np.log(a - 3.0), f(x, a, 1.0))},
    ]
    one = np.ones(scalar.size)
    for form in forms:
        A = femops.form(lambda u, x, a, g=form: g(u, x, a, safe), scalar, level=level, a=2.0)
        rate = femops.mass(scalar, lambda x: np.where(x[0] > 0.5, 2 * np.log(abs(x[0] - 0.5)), 1.0))
        assert one @ (A @ one) == pytest.approx(one @ (rate @ one), rel=1e-12)
        with pytest.raises(femops.errors.OperatorError, match="not finite at 16 quadrature points"):
            femops.form(lambda u, x, a, g=form: g(u, x, a, wrong), scalar, level=level, a=2.0)


def test_what_a_residual_does_not_take(scalar: Any) -> None:
    one = np.ones(scalar.size)
    F = femops.residual(lambda u, x: {"value": logarithm(0.5)(x, 2.0, u * u)}, scalar)
    rate = femops.mass(scalar, lambda x: np.where(x[0] > 0.5, 2 * np.log(abs(x[0] - 0.5)), 1.0))
    assert F.residual(one).sum() == pytest.approx(one @ (rate @ one))
    F = femops.residual(lambda u, x: {"value": logarithm(0.7)(x, 2.0, u * u)}, scalar)
    with pytest.raises(femops.errors.OperatorError, match="not finite"):
        F.residual(one)


def test_functions_of_literals(scalar: Any) -> None:
    """They are the same everywhere; levels that keep all at points keep them there."""
    F = femops.residual(lambda u: {"value": 2.0**u}, scalar)
    one = np.ones(scalar.size)
    J = F.jacobian(one)
    for level in LEVELS:
        assert one @ (J.at_level(level) @ one) == pytest.approx(2 * np.log(2))


def test_a_field_in_an_array(scalar: Any) -> None:
    A = femops.form(lambda u: {"grad": np.array([u, 2 * u])}, scalar)
    B = femops.form(lambda u: {"grad": np.array([u.value, 2 * u.value])}, scalar)
    v = np.random.default_rng(1).standard_normal(scalar.size)
    assert np.array_equal(A @ v, B @ v)


# --- large expressions ----------------------------------------------------------------------------


def test_expressions_that_grow(scalar: Any) -> None:
    """Sixty doublings, as trees more than 10^18 nodes, are about 200 as a graph."""

    def grow(a: Any) -> Any:
        for _ in range(60):
            a = a * a * 0.5 + 0.1 * a
        return 1.0 + a

    one = np.ones(scalar.size)
    for level in ("partial", "matrix-free"):
        A = femops.form(lambda u, x: {"value": grow(x[0]) * u}, scalar, level=level)
        assert one @ (A @ one) == pytest.approx(
            one @ (femops.mass(scalar, lambda x: grow(x[0])) @ one)
        )
    F = femops.residual(lambda u: {"value": grow(u)}, scalar)
    assert F.residual(one / 2).sum() == pytest.approx(grow(0.5))


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        (lambda one, x: ~(one == 0.82), 1.0),
        (lambda one, x: (one == 0.82) | (x[0] > 5.0), 0.0),
        (lambda one, x: (one == 1.0) & (x[0] < 5.0), 1.0),
        (lambda one, x: (one == 1.0) ^ (x[0] < 5.0), 0.0),
        (lambda one, x: (one == 1.0) + (one == 2.0), 1.0),
        (lambda one, x: 3.0 * (one == 1.0), 3.0),
    ],
)
def test_conditions_whose_answer_is_known_when_traced_stay_conditions(condition, value):
    V = femops.H1(femops.box((2, 2)), order=1)
    A = femops.form(lambda u, x: {"value": u * condition(x[0] ** 0, x) + 0.0 * x[0] * u}, V)
    one = np.ones(V.size)
    assert one @ (A @ one) == pytest.approx(value, abs=1e-14)


def test_numbers_that_numpy_keeps_as_objects():
    V = femops.H1(femops.box((2, 2)), 2)
    u = V.interpolate(lambda x: x[0])
    for given, number in ((Fraction(1, 3), 1 / 3), (10**30, 1e30)):
        expected = femops.diffusion(V, number) @ u
        np.testing.assert_array_equal(femops.diffusion(V, given) @ u, expected)
    for given, shown in (
        (None, "kappa gives None"),
        (10**400, "kappa gives a number of more than 64"),
    ):
        with pytest.raises(
            femops.errors.OperatorError, match=f"{shown}.*: it must give real numbers"
        ):
            femops.diffusion(V, kappa=given)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
def test_fractions_are_numbers_in_all_forms(dtype):
    V = femops.H1(femops.box((2, 2)), 2)
    u, third = V.interpolate(lambda x: x[0]).astype(dtype), Fraction(1, 3)

    def form(u, k):
        return {"grad": k @ u.grad if np.ndim(k) else k * u.grad}

    for given, number in (
        (third, 1 / 3),
        (10**30, 1e30),
        ([[third, 0], [0, 2 * third]], [[1 / 3, 0.0], [0.0, 2 / 3]]),
        (np.array([[third, 0], [0, third]]), np.eye(2) / 3),
        (np.full((4, 16), third), np.full((4, 16), 1 / 3)),
        (lambda x: third * x[0].astype(object), lambda x: x[0] * (1 / 3)),
        (femops.by_attribute(V.mesh, {1: third}), 1 / 3),
    ):
        expected = femops.form(form, V, k=number, dtype=dtype) @ u
        found = femops.form(form, V, k=given, dtype=dtype) @ u
        scale = abs(expected).max() * np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=10 * scale)
    if u.dtype.kind == "c":
        A = femops.form(form, V, k=[[third, 1j], [-1j, third]], dtype=dtype)
        B = femops.form(form, V, k=np.array([[1 / 3, 1j], [-1j, 1 / 3]]), dtype=dtype)
        np.testing.assert_array_equal(A @ u, B @ u)
