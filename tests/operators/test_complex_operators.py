"""Forms of complex numbers against the oracle, which calls the same functions with numbers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, TraceError, VectorError
from support.cases.kernels import bend
from support.cuda import guarded
from support.cuda.guarded import GuardedDevice
from support.oracles.forms import Dense, FormOracle

Array = np.ndarray


def damped(u, k2):
    return {"grad": u.grad, "value": -k2 * u}


def stretched(u, x, k):
    """Of a perfectly matched layer: quotients, powers, exp and choices of complex numbers."""
    s = 1.0 + 2j * femops.maximum(x[0] - 0.4, 0.0) ** 2 / k
    turned = femops.where(x[1] > 0.3, s, np.exp(1j * x[1]) * s**2)
    return {"grad": u.grad / s * np.conj(turned), "value": abs(s) * s**-1 * u}


def magnetic(u, x, strength):
    """Schroedinger's operator in a magnetic field: Hermitian."""
    potential = strength * np.array([-x[1], x[0], 0.5 * x[0]])[: len(u.grad)]
    moved = u.grad - 1j * potential * u
    return {"grad": moved, "value": 1j * femops.inner(potential, moved) + u}


def viscoelastic(u, lam, mu):
    return {"grad": lam * u.div * np.eye(len(u)) + 2 * mu * u.sym_grad}


def anisotropic(u, kappa):
    """A tensor that is neither symmetric nor Hermitian, of its real part too."""
    return {"grad": kappa @ u.grad + 0.2 * kappa.real @ u.grad, "value": (1.0 - 2j) * u}


def tensor(x):
    values = np.array([[2 + 1j * x[0], 0.3 * x[1] + 0j * x[0]], [0.1j + 0 * x[0], 1.5 + x[0]]])
    return values.astype(complex)


@dataclass(frozen=True)
class Case:
    """A form, its spaces and coefficients."""

    function: Callable[..., Any]
    dim: int
    order: int
    coefficients: dict[str, Any]
    ncomp: int = 1
    family: str = "gll"
    test_order: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self):
        return f"{self.function.__name__}-{self.dim}d-p{self.order}"

    def spaces(self):
        mesh = femops.box((3, 2, 1)[: self.dim], mapping=bend)
        make = femops.L2 if self.family == "gauss" else femops.H1
        trial = make(mesh, self.order, self.ncomp, self.family)
        return trial, trial if self.test_order is None else make(mesh, self.test_order, self.ncomp)

    def build(self, **options):
        trial, test = self.spaces()
        given = {"dtype": "complex128", **self.options, **options}
        operator = femops.form(self.function, trial, test, **given, **self.coefficients)
        oracle = FormOracle.of(trial, test, kind=complex)
        return operator, oracle.matrix(self.function, **self.coefficients)


CASES = (
    Case(damped, 1, 3, {"k2": 9.0 + 2.0j}),
    Case(damped, 2, 2, {"k2": lambda x: x[0] - 3j * x[1]}, options={"level": "matrix-free"}),
    Case(stretched, 2, 3, {"k": 7.0}),
    Case(magnetic, 3, 1, {"strength": 1.5}, options={"dtype": "complex64"}),
    Case(viscoelastic, 2, 2, {"lam": 1.0 + 0.2j, "mu": lambda x: 0.5 + 0.1j * x[0]}, ncomp=2),
    Case(anisotropic, 2, 3, {"kappa": tensor}),
    Case(damped, 2, 0, {"k2": 0.5j}, family="gauss", test_order=3),
    Case(magnetic, 2, 2, {"strength": 3.0}, options={"level": "element"}),
    Case(stretched, 2, 1, {"k": 7.0}, options={"level": "full"}),
)
HERMITIAN = ("magnetic",)
SYMMETRIC = ("damped", "stretched", "viscoelastic")

device = guarded.small_device


def random(size, seed, dtype=complex):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) + 1j * rng.standard_normal(size)).astype(dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_matrix_and_diagonal(case):
    A, dense = case.build()
    tolerance = 1e-13 if A.dtype == complex else 2e-5
    u, v = random(A.shape[1], 1, A.dtype), random(A.shape[0], 2, A.dtype)
    assert (A @ u).dtype == A.dtype
    assert dense.error(A @ u, u) < tolerance
    assert dense.error(A @ u.real, u.real) < tolerance
    assert Dense(dense.matrix.conj().T).error(A.H @ v, v) < tolerance
    assert dense.T.error(A.T @ v, v) < tolerance
    many = np.stack([random(A.shape[1], k, A.dtype) for k in range(3)], axis=1)
    for x, y in zip(many.T, (A @ many).T, strict=True):
        assert dense.error(y, x) < tolerance
    most = abs(dense.matrix).max()
    assert abs(A.assemble().toarray() - dense.matrix).max() < tolerance * most
    if A.space is A.test_space:
        assert abs(A.diagonal() - dense.matrix.diagonal()).max() < tolerance * most
        assert abs(A.H.diagonal() - dense.matrix.diagonal().conj()).max() < tolerance * most
        name = case.function.__name__
        assert A.hermitian == (name in HERMITIAN)
        assert A.symmetric == (name in SYMMETRIC)


def test_into_a_given_array():
    A, dense = CASES[0].build()
    u, out = random(A.shape[1], 3), np.full(A.shape[0], np.nan + 0j)
    assert A.apply(u, out) is out
    assert dense.error(out, u) < 1e-13
    with pytest.raises(VectorError, match="overlaps"):
        A.apply(u, u)
    with pytest.raises(VectorError, match="complex128 is needed"):
        A.apply(u.real.copy())


def test_many_vectors_in_panels():
    A, dense = CASES[2].build()
    X = femops.MultiVector.zeros(A.space, 9, dtype=complex)
    X[:] = columns = np.stack([random(A.shape[1], k) for k in range(9)], axis=1)
    Y = (A @ X).columns()
    assert max(dense.error(Y[:, k], columns[:, k]) for k in range(9)) < 1e-13


def test_conditions_and_right_hand_sides():
    A, dense = CASES[2].build()
    V = A.space
    dofs = V.boundary_dofs()
    free = np.setdiff1d(np.arange(V.size), dofs)
    held = A.constrained(dofs)
    assert np.array_equal(held.constrained_dofs, dofs)
    b, g = random(V.size, 4), random(V.size, 5)
    x = random(V.size, 6)
    expected = np.zeros(V.size, complex)
    expected[free] = dense.matrix[np.ix_(free, free)] @ x[free]
    assert np.allclose((held @ x)[free], expected[free], atol=1e-12)
    assert np.array_equal((held @ x)[dofs], x[dofs])
    right = held.rhs(b, g)
    assert np.allclose(right[free], (b - dense.matrix[:, dofs] @ g[dofs])[free], atol=1e-12)
    assert np.array_equal(right[dofs], g[dofs])
    assert np.allclose(held.rhs(b, 2.0 + 1.0j)[dofs], 2.0 + 1.0j)
    assert np.array_equal(held.rhs(b)[free], b[free])
    several = held.rhs(np.stack([b, x, 1j * b], axis=1), g)
    lift = dense.matrix[:, dofs] @ g[dofs]
    expected = np.stack([b - lift, x - lift, 1j * b - lift], axis=1)
    expected[dofs] = g[dofs][:, np.newaxis]
    assert np.allclose(several, expected, atol=1e-12)
    assert held.rhs(np.zeros((V.size, 0), complex)).shape == (V.size, 0)
    part = A.eliminated(rows=dofs[:3])
    assert not (part @ x)[dofs[:3]].any()
    assert np.array_equal(held.unconstrained @ x, A @ x)


def test_sums_and_factors():
    A, dense = CASES[2].build()
    B = femops.form(damped, A.space, k2=2j, dtype=complex)
    other = FormOracle.of(A.space, kind=complex).matrix(damped, k2=2j)
    u = random(A.shape[0], 7)
    assert (dense + 2.0 * other).error((A + 2.0 * B) @ u, u) < 1e-13
    assert (dense + -1.0 * other).error((A - B) @ u, u) < 1e-13
    assert (A + B).symmetric
    C = femops.form(magnetic, A.space, strength=1.0, dtype=complex)
    assert C.hermitian
    assert not (A + C).symmetric
    assert not (A + C).hermitian
    assert np.allclose((2j * A) @ u, 2j * (dense.matrix @ u))


def test_new_coefficients():
    A, _ = CASES[0].build()
    _, dense = Case(damped, 1, 3, {"k2": 3.0}).build()
    u = random(A.shape[0], 8)
    assert dense.error(A.update(k2=3.0) @ u, u) < 1e-13
    real = femops.form(damped, A.space, k2=3.0, dtype=complex)
    with pytest.raises(OperatorError, match="was real when"):
        real.update(k2=3.0j)


def test_several_fields():
    """The same as the form of each pair of fields."""
    mesh = femops.box((3, 2), mapping=bend)
    W = femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.H1(mesh, 1))

    def oseen(u, p, mu):
        return {"u": {"grad": mu * u.grad - p * np.eye(2)}, "p": {"value": 1j * u.div}}

    A = femops.form(oseen, W, mu=1.0 + 0.5j, dtype=complex)
    u, p = W.spaces["u"], W.spaces["p"]
    oracles = {
        ("u", "u"): FormOracle.of(u, kind=complex).matrix(lambda u: {"grad": (1 + 0.5j) * u.grad}),
        ("p", "u"): FormOracle.of(u, p, kind=complex).matrix(lambda u: {"value": 1j * u.div}),
    }
    x = random(W.size, 9)
    parts = dict(zip(W.names, W.split(x), strict=True))
    for (test, of), dense in oracles.items():
        assert dense.error(A[test, of] @ parts[of], parts[of]) < 1e-13
    assert A["p", "p"] is None
    alone = W.join(u=parts["u"])
    assert np.allclose(W.split(A @ alone)[1], oracles["p", "u"].matrix @ parts["u"], atol=1e-13)


def test_faces():
    """The real and the imaginary part of the form, each of real numbers."""
    D = femops.L2(femops.box((3, 2), mapping=bend), 2)

    def jumps(u, n, h, a=1.0):
        return {"jump": a * (u.jump - u.mean.grad @ n), "mean": {"grad": -a * u.jump * n}}

    def cells(u, a=1.0):
        return {"grad": a * u.grad}

    def walls(u, x, a=1.0):
        return {"value": a * x[0] * u}

    def over_all(a, **options):
        functions = {"cells": cells, "interior": jumps, "boundary": walls}
        return femops.form(functions, D, a=a, **options)

    A, R = over_all(2.0 - 3.0j, dtype=complex), over_all(1.0)
    x = random(D.size, 10)
    expected = (2.0 - 3.0j) * (R @ x)
    assert abs(A @ x - expected).max() < 1e-13 * abs(expected).max()
    assert np.allclose(A.diagonal(), (2.0 - 3.0j) * R.diagonal(), rtol=1e-12)


def test_a_copy_in_another_process():
    A, _ = CASES[0].build()
    u = random(A.shape[0], 11)
    femops.form(damped, A.space, k2=1j, dtype=complex)
    assert np.array_equal(pickle.loads(pickle.dumps(A)) @ u, A @ u)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda u: {"value": np.conj(u)}, "not linear over complex"),
        (lambda u: {"value": u.value.imag}, "not linear over complex"),
        (lambda u: {"grad": np.real(u.grad)}, "not linear over complex"),
        (lambda u: {"value": abs(u)}, "not linear"),
        (lambda u: {"value": u + 1j}, "does not depend on the field"),
        (lambda u: 1j * u, "returned ComplexSymbol: return"),
        (lambda u: None, "returned NoneType: return"),
        (lambda u: {"value": "a"}, r'in the "value": a symbol is combined with a str'),
        (
            lambda u: {"grad": 1j * u},
            r"<lambda> returned a \"grad\" of shape \(\): the test function needs \(2,\)",
        ),
        (lambda u: {"value": np.sin(1j * u)}, "sin of a complex number"),
        (lambda u: {"value": u**0.5}, "power 0.5"),
        (lambda u: {"value": (1j * u) * (0 * u < 1j)}, "complex number"),
    ],
)
def test_refused_forms(function, message):
    V = femops.H1(femops.box((2, 2)), 1)
    with pytest.raises(TraceError, match=message):
        femops.form(function, V, dtype="complex128")


CHOICES = (
    lambda x: x[0] > 0.5,
    lambda x: (x[0] > 0.5) & True,
    lambda x: np.logical_not(~(x[0] > 0.5)),
    lambda x: femops.where((x[0] > 0.5) | (x[0] < 0.5), x[0] > 0.5, 3j),
)


def test_conditions_are_numbers():
    """As in a real form, also beside complex constants."""
    V = femops.H1(femops.box((2, 2)), 1)
    R = femops.form(lambda u, x: {"value": femops.where(x[0] > 0.5, 1.0, 0.0) * u}, V)
    for k, choice in enumerate(CHOICES):
        A = femops.form(lambda u, x, f=choice: {"value": 1j * f(x) * u}, V, dtype=complex)
        assert np.array_equal(A @ np.ones(V.size), 1j * (R @ np.ones(V.size))), k


def test_fields_in_lists():
    V = femops.H1(femops.box((2, 2), mapping=bend), 1)
    A = femops.form(lambda u: {"grad": [u, 2j * u]}, V, dtype=complex)
    R, S = (femops.form(lambda u, k: {"grad": k * u}, V, k=np.eye(2)[i]) for i in (0, 1))
    x = random(V.size, 1)
    assert np.allclose(A @ x, R @ x + 2j * (S @ x), rtol=0, atol=1e-14)


def test_refused_arguments():
    V = femops.H1(femops.box((2, 2)), 1)
    C = femops.form(damped, V, k2=1j, dtype=complex)
    refused = [
        (lambda: femops.form(lambda u: {"value": 1j * u}, V), TraceError, "dtype='complex128'"),
        (lambda: femops.mass(V, dtype=complex), OperatorError, r"femops\.form makes complex oper"),
        (lambda: C["u", "u"], OperatorError, r"ComplexOperator.* is no operator on a product"),
        (lambda: C.update(k2=complex(0, np.nan)), OperatorError, "not finite"),
        (lambda: V.values(V.zeros(complex)), VectorError, r"u\.real and u\.imag"),
    ]
    for ask, kind, words in refused:
        with pytest.raises(kind, match=words):
            ask()


# --- vectors of complex numbers -------------------------------------------------------------------


def plane(x):
    return np.exp(1j * (2.0 * x[0] - x[1]))


def test_interpolation_loads_and_norms():
    V = femops.H1(femops.box((4, 3), mapping=bend), 4)
    u = V.interpolate(plane, dtype=complex)
    assert np.array_equal(u, plane(V.dof_coordinates().T))
    assert femops.l2_error(V, u, plane) < 1e-4
    assert abs(femops.l2_norm(V, u) - np.sqrt(femops.integrate(V, V.interpolate(1.0)))) < 1e-5

    def gradient(x):
        return np.array([2j * plane(x), -1j * plane(x)])

    assert femops.h1_error(V, u, plane, gradient) < 2e-3
    b = femops.load(V, plane, flux=gradient, dtype=complex)
    for part in (np.real, np.imag):
        alone = femops.load(V, lambda x: part(plane(x)), flux=lambda x: part(gradient(x)))  # noqa: B023
        assert np.array_equal(part(b), alone)
    across = femops.boundary_load(V, lambda x, n: plane(x) * n[0], dtype=complex)
    assert np.array_equal(across.imag, femops.boundary_load(V, lambda x, n: plane(x).imag * n[0]))


def test_parts_of_products():
    V = femops.H1(femops.box((2, 2)), 2)
    W = femops.Product(a=V, b=femops.H1(V.mesh, 1))
    a = random(V.size, 1)
    x = W.join(a=a)
    assert x.dtype == complex
    assert np.array_equal(W.split(x)[0], a)
    assert not W.split(x)[1].any()
    assert W.zeros("complex64").dtype == np.complex64


def test_the_transpose_on_a_device(device: GuardedDevice) -> None:
    """SciPy's operators take arrays of the host."""
    V, W = (femops.H1(femops.box((3, 2), mapping=bend), 2, device=d) for d in (None, device))
    A, B = (
        femops.form(lambda u: {"value": 1j * u, "grad": u.grad}, S, dtype=complex) for S in (V, W)
    )
    x = random(V.size, 3)
    with pytest.raises(OperatorError, match=r"takes no vectors of a device: \(A\.H @ x\.conj"):
        _ = B.T
    found = (B.H @ device.upload(x).conj()).conj().get()
    np.testing.assert_allclose(found, A.T @ x, rtol=0, atol=1e-13)
