"""Projections of functions of fields, against a dense quadrature with code of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.errors import ConvergenceWarning, OperatorError, SpaceError, TraceError, VectorError
from support import fixtures
from support.cases.kernels import bend, turned
from support.oracles.forms import Nodal, PlainField
from support.oracles.naive import Array, gauss_rule, mapping

one_thread = fixtures.one_thread


def tabulated(space: Any, points: Array, inverse: Array) -> tuple[Array, Array]:
    """Values (nq, n) of a space's basis, and its gradients in space (ne, nq, n, dim)."""
    values, slopes = Nodal.of(space).tabulated(space.dim, points)
    return values, np.einsum("qnk,eqkd->eqnd", slopes, inverse)


def plain(space: Any, u: Array, points: Array, inverse: Array) -> list[list[PlainField]]:
    """A field at each point of each element."""
    values, slopes = tabulated(space, points, inverse)
    local = u.reshape(-1, space.ncomp)[space.restriction.indices]
    here, grads = (
        np.einsum("qn,enc->eqc", values, local),
        np.einsum("eqnd,enc->eqcd", slopes, local),
    )
    if space.ncomp == 1:
        here, grads = here[..., 0], grads[..., 0, :]
    return [
        [PlainField.of(value, grad) for value, grad in zip(*each, strict=True)]
        for each in zip(here, grads, strict=True)
    ]


def expected(Q: Any, f: Any, *fields: tuple[Any, Array], points: int) -> Array:
    """The projection by a dense mass matrix."""
    x, w = (part.astype(float) for part in gauss_rule(points))
    where, jacobians = mapping(Q.mesh.coordinates, x)
    inverse, weights = np.linalg.inv(jacobians), np.ones(1)
    for _ in range(Q.dim):
        weights = np.kron(w, weights)
    weighted = np.abs(np.linalg.det(jacobians)) * weights
    given = [plain(space, u, x, inverse) for space, u in fields]
    ne, nq = weighted.shape
    values = np.array(
        [
            [np.ravel(f(*(field[e][q] for field in given), where[e, q])) for q in range(nq)]
            for e in range(ne)
        ]
    )
    basis, _ = tabulated(Q, x, inverse)
    indices, size = Q.restriction.indices, Q.ndofs
    matrix, right = np.zeros((size, size)), np.zeros((size, Q.ncomp))
    for e in range(ne):
        local = basis.T @ (weighted[e][:, None] * basis)
        np.add.at(matrix, np.ix_(indices[e], indices[e]), local)
        np.add.at(right, indices[e], basis.T @ (weighted[e][:, None] * values[e]))
    return np.linalg.solve(matrix, right).reshape(-1)


def random(space: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(space.size)


def curved(dim: int) -> Any:
    return turned(femops.box((3, 2, 2)[:dim], order=2, mapping=bend))


SPACES = {
    "l2": lambda mesh, ncomp: femops.L2(mesh, 2, ncomp),
    "l2-gll": lambda mesh, ncomp: femops.L2(mesh, 1, ncomp, "gll"),
    "l2-bernstein": lambda mesh, ncomp: femops.L2(mesh, 2, ncomp, "bernstein"),
    "l2-hermite": lambda mesh, ncomp: femops.L2(mesh, 3, ncomp, "hermite"),
    "l2-constant": lambda mesh, ncomp: femops.L2(mesh, 0, ncomp),
    "h1": lambda mesh, ncomp: femops.H1(mesh, 2, ncomp),
    "h1-bernstein": lambda mesh, ncomp: femops.H1(mesh, 3, ncomp, "bernstein"),
}


def flux(u: Any, x: Any) -> Any:
    return -(1.0 + x[0] ** 2) * u.grad * (2.0 + u**2)


def stress(u: Any, x: Any) -> Any:
    """A matrix, whose entries are taken row by row."""
    return 0.7 * (u.grad + 2.0 * u.grad.T) + x[0] * u.div * np.eye(len(u))


def mixed(u: Any, p: Any, x: Any) -> Any:
    """Of two fields."""
    return p.grad @ u.value + u.div * p**2 + x[-1]


@pytest.mark.sample(4)
@pytest.mark.parametrize("mesh", ["curved", "affine"])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", SPACES)
def test_one_field(name: str, dim: int, mesh: str) -> None:
    made = curved(dim) if mesh == "curved" else femops.box((3, 2, 2)[:dim])
    V, Q = femops.H1(made, 3), SPACES[name](made, dim)
    u = random(V)
    found = femops.project(Q, flux, V, u)
    exact = expected(Q, flux, (V, u), points=5)
    assert abs(found - exact).max() < 1e-10 * abs(exact).max()


def test_matrices_row_by_row() -> None:
    mesh = curved(2)
    V, Q = femops.H1(mesh, 2, ncomp=2), femops.L2(mesh, 1, ncomp=4)
    u = random(V)
    exact = expected(Q, stress, (V, u), points=4)
    np.testing.assert_allclose(
        femops.project(Q, stress, V, u), exact, atol=1e-11 * abs(exact).max()
    )


@pytest.mark.parametrize("space", ["h1", "l2"])
def test_fields_of_several_spaces(space: str) -> None:
    """Of a product, of GridFunctions in any order, and of both: one projection."""
    mesh = curved(2)
    U, P = femops.H1(mesh, 2, ncomp=2), femops.H1(mesh, 3)
    Q = SPACES[space](mesh, 1)
    W = femops.Product(a=femops.L2(mesh, 1), p=P, u=U)
    w = random(W)
    _, p, u = W.split(w)
    exact = expected(Q, mixed, (U, u), (P, p), points=5)
    fields = {"p": femops.GridFunction(P, p), "u": femops.GridFunction(U, u)}
    found = [
        femops.project(Q, mixed, W, w),
        femops.project(Q, mixed, **fields),
        femops.project(Q, mixed, U, u, p=fields["p"]),
        femops.project(Q, mixed, femops.Product(u=U, a=Q), np.append(u, 0 * exact), p=fields["p"]),
    ]
    for one in found:
        np.testing.assert_allclose(one, exact, atol=1e-10 * abs(exact).max())


def test_coefficients_and_rules() -> None:
    V = femops.H1(curved(2), 2)
    Q, u = femops.L2(V.mesh, 2), random(V)

    def scaled(u: Any, kappa: Any, power: int = 2, **rest: Any) -> Any:
        assert not rest
        return kappa * u.value**power

    found = femops.project(Q, scaled, V, u, kappa=lambda x: 1 + x[0], quadrature=6)
    exact = expected(Q, lambda u, x: (1 + x[0]) * u.value**2, (V, u), points=6)
    np.testing.assert_allclose(found, exact, atol=1e-11 * abs(exact).max())


@pytest.mark.parametrize("name", SPACES)
def test_functions_of_the_space_stay(name: str) -> None:
    """They come back: as fields, as GridFunctions, and as functions of x."""
    mesh = curved(2)
    Q = SPACES[name](mesh, 2)
    q, identity = random(Q), lambda q: q
    np.testing.assert_allclose(femops.project(Q, identity, Q, q), q, atol=1e-9)
    np.testing.assert_allclose(femops.project(Q, femops.GridFunction(Q, q)), q, atol=1e-9)
    np.testing.assert_allclose(
        femops.project(Q, lambda x: np.stack([1 + 0 * x[0], 2 + 0 * x[0]])),
        Q.interpolate((1.0, 2.0)),
        atol=1e-11,
    )


def test_columns_of_a_matrix() -> None:
    """A vector with gaps in memory is read as NumPy reads it, also backwards."""
    V = femops.H1(femops.box((3, 3)), 2)
    Q, U = femops.L2(V.mesh, 1), np.random.default_rng(0).standard_normal((V.size, 3))
    for view in (U[:, 1], U[::-1, 2]):
        wanted = femops.project(Q, lambda u: u.grad[0], V, view.copy())
        found = femops.project(Q, lambda u: u.grad[0], V, view)
        named = femops.project(Q, lambda u: u.grad[0], u=femops.GridFunction(V, view))
        assert np.array_equal(found, wanted)
        assert np.array_equal(named, wanted)


def test_what_does_not_depend_on_the_field() -> None:
    V = femops.H1(femops.box((3, 2)), 2)
    Q, u = femops.L2(V.mesh, 1), random(V)
    assert not femops.project(Q, lambda u: 0.0 * u, V, u).any()
    found = femops.project(Q, lambda u, x: x[0] - x[1], V, u)
    np.testing.assert_allclose(found, Q.interpolate(lambda x: x[0] - x[1]), atol=1e-13)


def test_float32() -> None:
    V = femops.H1(curved(2), 3)
    u = random(V)
    for name in ("l2", "h1"):
        Q = SPACES[name](V.mesh, 2)
        found = femops.project(Q, flux, V, u.astype(np.float32))
        exact = femops.project(Q, flux, V, u)
        assert found.dtype == np.float32
        assert abs(found - exact).max() < 2e-5 * abs(exact).max(), name


def test_tolerance() -> None:
    """That of conjugate gradients, which has its own warning."""
    V = femops.H1(curved(2), 3)
    Q, u = femops.H1(V.mesh, 4, ncomp=2), random(V)
    exact = femops.project(Q, flux, V, u)
    gap = abs(femops.project(Q, flux, V, u, rtol=1e-3) - exact).max()
    assert 1e-9 < gap / abs(exact).max() < 1e-1
    with pytest.warns(ConvergenceWarning, match="not converged"):
        femops.project(Q, flux, V, u, rtol=0.0)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e300])
def test_values_of_any_size(size: float) -> None:
    V = femops.H1(femops.box((3, 3)), 2)
    found = femops.project(V, lambda x: size * (1.0 + x[0]))
    assert found / size == pytest.approx(V.interpolate(lambda x: 1.0 + x[0]), rel=1e-10)
    assert not femops.project(V, lambda x: 0.0 * x[0]).any()


def test_refusals() -> None:
    mesh = femops.box((2, 2))
    V, Q = femops.H1(mesh, 2), femops.L2(mesh, 1)
    U, u, W = femops.H1(mesh, 1, ncomp=2), V.zeros(), femops.Product(u=V, q=Q)
    other, field, same = femops.H1(femops.box((2, 2)), 2), femops.GridFunction(V, u), lambda u: u
    shape = r"<lambda>.* returned a value of shape \(2,\).*ncomp=2"
    cases: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
        ("the vector of the field", (Q, flux, V), {}),
        ("the space of the field is missing", (Q, flux, None, u), {}),
        ("u is on another mesh than L2", (Q, same, other, u), {}),
        (shape, (Q, lambda u: u.grad, V, u), {}),
        ("returned a dictionary: return what is projected", (Q, lambda u: {"value": u}, V, u), {}),
        ("two fields are called 'u'", (Q, same, V, u), {"u": field}),
        (r"\(v\) takes no field of Product", (Q, lambda v: v, W, W.zeros()), {}),
        ("'k' is given, but no field", (Q, lambda x: x[0]), {"k": 2.0}),
        ("takes no coefficient 'k'", (Q, same, V, u), {"k": 2.0}),
        ("takes no field 'p'", (Q, same, V, u), {"p": field}),
        ("a function of the fields, got 1.0", (Q, 1.0, V, u), {}),
        ("u has 25 entries, the space has 18", (Q, same, U, u), {}),
        ("q1d = 2 cannot integrate order 2", (Q, same, V, u), {"quadrature": 2}),
        ("Q is a Product: give a space", (W, same, V, u), {}),
    )
    for message, given, options in cases:
        with pytest.raises((OperatorError, SpaceError, TraceError, VectorError), match=message):
            femops.project(*given, **options)
