"""Operators of float32: what the type can't hold is refused where they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import OperatorError
from support.cases.kernels import bend, random_vector
from support.cases.levels import LEVELS

BOX = femops.box((3, 2))
CURVED = femops.box((3, 2), mapping=bend, order=2)
MESHES = {"box": BOX, "curved": CURVED}


def field(V: femops.H1, value: float) -> femops.GridFunction:
    return femops.GridFunction(V, V.interpolate(value))


KINDS: dict[str, Callable[[femops.H1, float], Any]] = {
    "number": lambda V, c: c,
    "array": lambda V, c: np.full((V.mesh.num_elements, 16), c),
    "function": lambda V, c: lambda x: c * (1.0 + x[0]),
    "field": field,
    "elements": lambda V, c: femops.by_attribute(V.mesh, {1: c}),
}


def own(u: Any, c: Any) -> dict[str, Any]:
    return {"value": c * u, "grad": u.grad / c}


@pytest.mark.sample(4)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("value", [1e45, 1e-50])
def test_a_coefficient_beyond_the_range(mesh: str, kind: str, level: str, value: float) -> None:
    V = femops.H1(MESHES[mesh], 2)
    given = KINDS[kind](V, value)
    message = r"mass: .* reach .*, beyond the range of float32: scale .* or use float64"
    with pytest.raises(OperatorError, match=message):
        femops.mass(V, given, quadrature=4, dtype="float32", level=level)
    with pytest.raises(OperatorError, match=r"own: .* float64"):
        femops.form(own, V, c=given, quadrature=4, dtype="float32", level=level)
    A = femops.mass(V, given, quadrature=4, level=level)
    assert np.isfinite(A @ random_vector(V, "float64")).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mesh", MESHES)
def test_at_the_limit_and_with_other_coefficients(mesh: str, level: str) -> None:
    V = femops.H1(MESHES[mesh], 2)
    A = femops.mass(V, 1e37, dtype="float32", level=level)
    assert np.isfinite(A @ random_vector(V, "float32")).all()
    with pytest.raises(OperatorError, match=r"mass: .* beyond the range of float32"):
        femops.mass(V, 1e40, dtype="float32", level="matrix-free")
    with pytest.raises(OperatorError, match="beyond the range of float32"):
        A.update(rho=1e45)


@pytest.mark.parametrize("name", ["boundary", "elasticity", "tensor", "product", "nonlinear"])
def test_other_forms(name: str) -> None:
    V, W = femops.H1(CURVED, 2), femops.H1(CURVED, 2, ncomp=2)
    tensor, u = np.array([[1.0, 1e40], [1e40, 2.0]]), V.zeros().astype("float32")
    pair = femops.Product(u=V, p=V)
    forms: dict[str, Callable[[], Any]] = {
        "boundary": lambda: femops.boundary_mass(V, 1e45, dtype="float32"),
        "elasticity": lambda: femops.elasticity(W, 1e42, 1.0, dtype="float32"),
        "tensor": lambda: femops.diffusion(V, tensor, dtype="float32", level="matrix-free"),
        "product": lambda: femops.form(
            lambda u, p, c: {"u": {"value": c * p}, "p": {"value": u}},
            pair,
            c=1e45,
            dtype="float32",
        ),
        "nonlinear": lambda: femops.residual(
            lambda u, c: {"value": c * u**3}, V, c=1e45, dtype="float32"
        ).residual(u),
    }
    with pytest.raises(OperatorError, match="beyond the range of float32"):
        forms[name]()


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_elements_of_a_size_whose_determinants_are_out_of_range(scale: float) -> None:
    mesh = femops.box((2, 2), mapping=lambda x: scale * bend(x))
    V = femops.H1(mesh, 2)
    for level in ("partial", "element", "full"):  # a diffusion in two dimensions has no size
        A, B = (femops.diffusion(V, dtype=kind, level=level) for kind in ("float32", "float64"))
        u = random_vector(V, "float64")
        assert abs(A @ u.astype("float32") - B @ u).max() < 1e-5
    with pytest.raises(OperatorError, match=r"diffusion: .* beyond the range of float32"):
        femops.diffusion(V, dtype="float32", level="matrix-free")
    with pytest.raises(OperatorError, match="beyond the range of float32"):
        A.at_level("matrix-free")


@pytest.mark.parametrize(("size", "value"), [(1e-4, 1e30), (1e4, 1e-30)])
def test_large_coefficients_on_small_elements_and_the_other_way_around(
    size: float, value: float
) -> None:
    """Their product is in range, but not the coefficient over the determinant of an element."""
    V = femops.H1(femops.box((2, 2, 1), mapping=lambda x: size * bend(x)), 2)
    u = random_vector(V, "float64")

    def curved(u: Any, c: Any) -> dict[str, Any]:
        return {"grad": c * ((1 + u * u) * u.grad)}

    def operators(dtype: str) -> list[Any]:
        A = femops.diffusion(V, value, dtype=dtype)
        F = femops.residual(curved, V, c=value, dtype=dtype)
        return [A, value**-0.5 * A + value**-0.5 * A, F.jacobian(u.astype(dtype))]

    for single, double in zip(operators("float32"), operators("float64"), strict=True):
        expected = double @ u
        found = single.at_level("matrix-free") @ u.astype("float32")
        assert abs(found - expected).max() < 1e-5 * abs(expected).max()


@pytest.mark.parametrize("level", ["element", "full"])
def test_entries_of_a_matrix(level: str) -> None:
    """What is kept at points would do, its sums do not."""
    V = femops.H1(femops.box((1,)), 6)
    A = femops.diffusion(V, 3e38, dtype="float32", level=level)
    with pytest.raises(OperatorError, match="entries of the matrix reach"):
        A @ random_vector(V, "float32")


def test_numbers_that_are_zero_or_of_many_sizes() -> None:
    V = femops.H1(CURVED, 2)
    u = random_vector(V, "float32")
    for level in LEVELS:
        assert not (femops.mass(V, 0.0, dtype="float32", level=level) @ u).any()
        A = femops.helmholtz(V, 1e-30, dtype="float32", level=level)
        B = femops.diffusion(V, dtype="float32", level=level)
        assert abs(A @ u - B @ u).max() < 1e-5
        steep = femops.mass(V, lambda x: np.exp(-300 * x[0]), dtype="float32", level=level)
        assert np.isfinite(steep @ u).all()


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_integrals_that_are_not_linear_and_loads_on_elements_out_of_range(scale: float) -> None:
    """In float32 they were zero, or infinite, without a word."""
    V = femops.H1(femops.box((3, 2), upper=(scale, scale)), 2)
    for made in (
        lambda: femops.residual(lambda u: {"value": u**3}, V, dtype="float32"),
        lambda: femops.functional(lambda u: u**2, V, dtype="float32"),
        lambda: femops.load(V, 1.0, dtype="float32"),
    ):
        with pytest.raises(OperatorError, match="beyond the range of float32: scale the"):
            made()
    assert femops.load(V, 1.0).sum() == pytest.approx(scale**2)


H_BAR, CHARGE, MASS = 1.05e-34, 1.6e-19, 9.1e-31


def schroedinger(u: Any, hbar: Any, mass: Any, charge: Any) -> dict[str, Any]:
    return {"grad": hbar**2 / (2 * mass) / charge * u.grad}


def of_position(u: Any, x: Any, hbar: Any, mass: Any, charge: Any) -> dict[str, Any]:
    return {"grad": hbar**2 / (2 * mass * (1 + 0.3 * x[0])) / charge * u.grad}


def field_first(u: Any, hbar: Any, mass: Any, charge: Any) -> dict[str, Any]:
    return {"grad": hbar**2 * u.grad / (2 * mass) / charge}


def inverse(u: Any, K: Any) -> dict[str, Any]:
    return {"grad": 1e-14 * (femops.inv(K) @ u.grad)}


def mass_of(x: Any) -> Any:
    return MASS * (1 + 0.3 * x[0])


def permeability(x: Any) -> Any:
    return 1e-20 * np.array([[2 + x[0], 0.5 + 0 * x[0]], [0.5 + 0 * x[0], 1 + x[1]]])


NUMBERS = {"hbar": H_BAR, "charge": CHARGE}
EXPRESSIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "function": (schroedinger, {**NUMBERS, "mass": mass_of}),
    "constants": (schroedinger, {**NUMBERS, "mass": MASS}),
    "position": (of_position, {**NUMBERS, "mass": MASS}),
    "inverse": (inverse, {"K": permeability}),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("mesh", MESHES)
def test_numbers_inside_expressions_of_coefficients(mesh: str, name: str, level: str) -> None:
    """float32 cannot hold them, but the coefficients and the factors of the field."""
    V, (function, given) = femops.H1(MESHES[mesh], 2), EXPRESSIONS[name]
    A = femops.form(function, V, dtype="float32", level=level, **given)
    B = femops.form(function, V, **given)
    u = random_vector(V, "float64")
    X = np.stack([u.astype("float32")] * 12, axis=1)
    size = abs(B @ u).max()
    for found in (A @ X[:, 0], A.T @ X[:, 0], (A @ X)[:, 3], A.assemble() @ X[:, 0]):
        assert abs(found - B @ u).max() < 1e-5 * size
    larger = A.update(**{next(iter(given)): given[next(iter(given))]})
    np.testing.assert_array_equal(larger @ X[:, 0], A @ X[:, 0])


def test_numbers_between_coefficients_and_field() -> None:
    V, given = femops.H1(CURVED, 2), {**NUMBERS, "mass": mass_of}
    u = random_vector(V, "float64")
    B = femops.form(field_first, V, **given)
    A = femops.form(field_first, V, dtype="float32", **given)
    assert abs(A @ u.astype("float32") - B @ u).max() < 1e-5 * abs(B @ u).max()
    with pytest.raises(OperatorError, match="multiply coefficients with each other before the fie"):
        A.at_level("matrix-free")


@pytest.mark.parametrize("mesh", MESHES)
def test_expressions_in_residuals(mesh: str) -> None:
    V, given = femops.H1(MESHES[mesh], 2), {**NUMBERS, "mass": mass_of}

    def curved(u: Any, hbar: Any, mass: Any, charge: Any) -> dict[str, Any]:
        return {"grad": hbar**2 / (2 * mass) / charge * (1 + u * u) * u.grad}

    u = random_vector(V, "float64")
    F = femops.residual(curved, V, **given)
    G = femops.residual(curved, V, dtype="float32", **given)
    single, size = u.astype("float32"), abs(F.residual(u)).max()
    assert abs(G.residual(single) - F.residual(u)).max() < 1e-5 * size
    for level in ("partial", "matrix-free"):
        J, K = (R.jacobian(v).at_level(level) for R, v in ((F, u), (G, single)))
        assert abs(K @ single - J @ u).max() < 1e-5 * abs(J @ u).max()
    tiny = {**given, "hbar": 1e-36, "charge": 1.0}
    with pytest.raises(OperatorError, match="beyond the range of float32"):
        G.update(**tiny)
    with pytest.raises(OperatorError, match="beyond the range of float32"):
        femops.functional(lambda u, k: k**2 * u**2, V, k=1e-25, dtype="float32")


def mixed(u: Any, a: Any, b: Any) -> dict[str, Any]:
    return {"value": a * a / b * u, "grad": a * (a * u.grad) / b}


@pytest.mark.parametrize("level", LEVELS)
def test_numbers_that_lose_digits_in_float64(level: str) -> None:
    """Powers beyond 1e308 inside an expression whose value has all digits, and of lengths."""
    if np.finfo(np.longdouble).maxexp == np.finfo(np.float64).maxexp:
        pytest.skip("this machine has no wider numbers to compare with")
    V = femops.H1(CURVED, 2)
    x = random_vector(V, "float64")
    for size in (1e-160, 1e160):
        a, b = (lambda x, size=size: size * (1 + x[0])), size / 1e10 * size**0.0625
        factor = float(np.longdouble(size) ** 2 / np.longdouble(b))
        expected = femops.mass(V, lambda x, f=factor: f * (1 + x[0]) ** 2) @ x
        A = femops.form(lambda u, a, b: {"value": a * a / b * u}, V, level=level, a=a, b=b)
        for B in (A, A.update(a=a), A.T):
            assert abs(B @ x - expected).max() < 1e-13 * abs(expected).max()
        F = femops.residual(lambda u, a, b: {"value": a * a / b * u}, V, a=a, b=b)
        for found in (F.residual(x), F.jacobian(x).at_level(level) @ x):
            assert abs(found - expected).max() < 1e-13 * abs(expected).max()
        J = femops.functional(lambda u, a, b: a * a / b * u * u, V, a=a, b=b)
        assert J(x) == pytest.approx(expected @ x, rel=1e-12)
    if level == "matrix-free":
        for function in (lambda u, a, b: {"value": u * a * a / b}, mixed):
            with pytest.raises(OperatorError, match=r"below 1e-308|beyond the range of float64"):
                femops.form(function, V, level=level, a=a, b=b)
    small = femops.H1(femops.box((2, 2), mapping=lambda x: 1e-160 * x), 2)
    with pytest.raises(femops.errors.GeometryError, match="scale the coordinates"):
        femops.mass(small, 1e300, level=level)
    tail = femops.form(lambda u, x: {"value": np.exp(-3e3 * x[0]) * u}, V, level=level)
    assert np.isfinite(tail @ random_vector(V, "float64")).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_inverses_of_matrices_of_any_size(dim: int, level: str) -> None:
    """Determinants are beyond 1e308, or below 1e-308, and inverses are not."""
    if np.finfo(np.longdouble).maxexp == np.finfo(np.float64).maxexp:
        pytest.skip("this machine has no wider numbers to compute with")
    V = femops.H1(femops.box((2,) * dim), 2)
    K = np.eye(dim) + 0.1 * np.arange(dim**2).reshape(dim, dim)
    x, one = random_vector(V, "float64"), np.linalg.inv(K)
    for size in (2.0**-350, 2.0**-660, 2.0**520, 2.0**1000):

        def k(x: Any, size: float = size) -> Any:
            return (size * K)[:, :, np.newaxis] * (1.0 + x[0])

        def of_inverse(u: Any, k: Any, size: float = size) -> dict[str, Any]:
            return {"grad": size * femops.inv(k) @ u.grad}

        expected = (
            femops.form(
                lambda u, k: {"grad": k @ u.grad},
                V,
                k=lambda x: one[:, :, np.newaxis] / (1.0 + x[0]),
            )
            @ x
        )
        found = femops.form(of_inverse, V, k=k, level=level) @ x
        assert abs(found - expected).max() < 1e-13 * abs(expected).max()
        constant = femops.form(of_inverse, V, k=size * K, level=level) @ x
        given = femops.form(lambda u: {"grad": one @ u.grad}, V) @ x
        assert abs(constant - given).max() < 1e-13 * abs(given).max()
        assert np.allclose(size * femops.inv(size * K), one, rtol=1e-14)
