"""Estimates of errors against the errors, by quadrature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.adapt import recovery
from femops.adapt.enriched import embedded, enriched, equation_of, essential
from femops.errors import OperatorError


def smooth(x: Any) -> Any:
    """A function whose Laplacian is minus itself times `factor`."""
    return np.sin(2.0 * x[0] + 0.3) * np.exp(x[1]) * (np.cos(x[2]) if len(x) > 2 else 1.0)


def slope(x: Any) -> Any:
    u, c = smooth(x), (np.cos(x[2]) if len(x) > 2 else 1.0)
    first = 2.0 * np.cos(2.0 * x[0] + 0.3) * np.exp(x[1]) * c
    third = [-np.sin(2.0 * x[0] + 0.3) * np.exp(x[1]) * np.sin(x[2])] if len(x) > 2 else []
    return np.stack([first, u, *third])


def meshes(dim: int) -> dict[str, Any]:
    """Meshes that conform, that do not, and that are curved."""
    if dim == 3:
        cube = femops.box((3, 3, 3))
        return {"uniform": cube, "refined": cube.refined([0, 5, 13])}
    square = femops.box((6, 6))
    near = square.refined(lambda x: x[0] + x[1] < 0.7)
    return {
        "uniform": square,
        "refined": near.refined(lambda x: (x[0] - 0.4) ** 2 + x[1] ** 2 < 0.1),
        "curved": femops.disc(4).refined([0, 1, 7]),
    }


def solution(V: Any, kappa: float = 1.0) -> tuple[Any, Any]:
    A = femops.diffusion(V, kappa).constrained(V.boundary_dofs())
    factor = 3.0 if V.dim == 2 else 4.0
    b = A.rhs(femops.load(V, lambda x: kappa * factor * smooth(x)), V.interpolate(smooth))
    return A, femops.cg(A, b, M=femops.jacobi(A), rtol=1e-12)[0]


CASES = [
    (2, "uniform", 1),
    (2, "refined", 1),
    (2, "curved", 2),
    (2, "refined", 2),
    (2, "refined", 3),
    (2, "uniform", 4),
    (3, "refined", 1),
    (3, "refined", 2),
    (3, "uniform", 3),
]


@pytest.mark.parametrize(("dim", "degree", "count"), [(1, 5, 9), (2, 4, 30), (3, 3, 50)])
def test_polynomials_are_fitted_by_least_squares(dim: int, degree: int, count: int) -> None:
    """As NumPy fits monomials. The last points determine no polynomial."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1.0, 1.0, (dim, 3, count)), rng.standard_normal((2, 3, count))
    weights, targets = rng.uniform(0.1, 2.0, (3, count)), rng.uniform(-1.0, 1.0, (dim, 3, 7))
    x[0, 2] = 0.3
    found, unknown = recovery._fit(dim, degree)(x, y, weights, targets)
    assert unknown == 1
    powers = np.indices((degree + 1,) * dim).reshape(dim, -1).T
    powers = powers[powers.sum(axis=1) <= degree]
    for k in (0, 1):
        at, wanted = ((line[:, k].T[:, np.newaxis] ** powers).prod(axis=2) for line in (x, targets))
        root = np.sqrt(weights[k])[:, np.newaxis]
        best = np.linalg.lstsq(root * at, root * y[:, k].T)[0]
        assert np.allclose(found[k], wanted @ best, rtol=1e-7, atol=1e-9)


def test_nodes_are_told_apart_by_their_bits() -> None:
    table = np.array([[[1.0, 2.0], [3.0, 4.0]], [[3.0, 4.0], [1.0, 2.5]]])
    numbers, rows = recovery._distinct(table)
    assert numbers[0, 1] == numbers[1, 0]
    assert np.array_equal(np.moveaxis(rows[:, numbers], 0, 2), table)
    which, times = recovery._counted(np.array([[4, 2, 4, 4], [1, 2, 3, 2]]))
    assert np.array_equal(which, [[2, 4, 2], [1, 2, 3]])
    assert np.array_equal(times, [[1, 3, 0], [1, 2, 1]])


def test_recovered_takes_bases_without_nodes() -> None:
    mesh = femops.box((4, 4)).refined([5])
    V, W = femops.H1(mesh, 2), femops.H1(mesh, 2, family="bernstein")
    u = V.interpolate(lambda x: np.sin(3.0 * x[0]) * x[1])
    w = W.interpolate((V, u))
    assert np.allclose(femops.adapt.recovered(W, w), femops.adapt.recovered(V, u), rtol=1e-9)


@pytest.mark.parametrize(("dim", "name", "order"), CASES)
def test_recovered_and_residual(dim: int, name: str, order: int) -> None:
    """Both estimates are close to the error, at each order, on each mesh, and scale with kappa."""
    kappa = 2.5
    V = femops.H1(meshes(dim)[name], order)
    A, u = solution(V, kappa)
    factor = 3.0 if dim == 2 else 4.0
    right = lambda W: femops.load(W, lambda x: kappa * factor * smooth(x))  # noqa: E731
    error = np.sqrt(kappa) * femops.h1_seminorm_error(V, u, slope, quadrature=order + 5)
    by_fit = np.linalg.norm(femops.adapt.recovered(A, u))
    assert 0.9 < by_fit / error < 1.1
    plain = np.linalg.norm(femops.adapt.recovered(V, u))
    assert np.isclose(np.sqrt(kappa) * plain, by_fit, rtol=1e-3)  # rules differ on curves
    eta = femops.adapt.residual((A, right), u)
    assert eta.shape == (V.mesh.num_elements,)
    low = 0.6 if name == "curved" else 0.85
    assert low < np.linalg.norm(eta) / error < 1.3


def test_estimates_find_where_the_error_is() -> None:
    """On each element the estimates agree with the error, which differs by orders of magnitude."""
    mesh = femops.box((8, 8)).refined(lambda x: x[0] < 0.5)
    V = femops.H1(mesh, 2)
    A, u = solution(V)
    W = femops.L2(mesh, 5, family="gll")
    d = W.interpolate(smooth) - W.interpolate((V, u))
    error = np.sqrt((d * (femops.diffusion(W) @ d)).reshape(mesh.num_elements, -1).sum(axis=1))
    fit = femops.adapt.recovered(V, u) / error
    local = femops.adapt.residual((A, lambda W: femops.load(W, lambda x: 3.0 * smooth(x))), u)
    assert fit.min() > 0.3
    assert fit.max() < 1.5
    assert (local / error).min() > 0.15
    assert (local / error).max() < 1.5
    assert np.corrcoef(np.log(error), np.log(local))[0, 1] > 0.9


def test_residual_vanishes_for_functions_of_the_space() -> None:
    mesh = femops.box((3, 3)).refined([4])
    V = femops.H1(mesh, 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    u = V.interpolate(lambda x: x[0] ** 2 - x[1] ** 2 + x[0])
    assert femops.adapt.residual((A, lambda W: W.zeros()), u).max() < 1e-12
    assert femops.adapt.recovered(V, u).max() < 1e-11


@pytest.mark.parametrize("layers", [1, 2])
def test_a_fit_that_is_not_determined_is_told(layers: int) -> None:
    """In a single layer of elements, also in a single layer of a material."""
    for mesh in (
        femops.box((6, layers)),
        femops.box((6, 6)).with_names({"layer": lambda x: x[1] < layers / 6}),
    ):
        V = femops.H1(mesh, 2)
        u = V.interpolate(lambda x: x[0] + x[1])
        if layers == 1:
            with pytest.warns(UserWarning, match="around 6 of .* no polynomial of degree 4"):
                femops.adapt.recovered(V, u)
        else:
            assert femops.adapt.recovered(V, u).max() < 1e-11


def test_fields_of_order_zero() -> None:
    """The mass measures them: gradients of their fit have no counterpart."""
    errors = []
    for n in (4, 8):
        V = femops.L2(femops.box((n, n)).refined([5]), 0)
        u = V.interpolate(lambda x: x[0] + 2.0 * x[1])
        eta = femops.adapt.recovered(femops.mass(V), u)
        error = femops.l2_error(V, u, lambda x: x[0] + 2.0 * x[1])
        assert np.isclose(np.linalg.norm(eta), error)
        errors.append(error)
    assert errors[1] < 0.6 * errors[0]
    single = femops.L2(femops.box((6, 1)), 0)
    with pytest.warns(UserWarning, match="around 6 of 6"):
        femops.adapt.recovered(single, single.zeros())


def test_jump_of_a_coefficient() -> None:
    """Across an interface the gradient jumps, the estimates do not see that as error."""
    mesh = femops.box((8, 4)).refined([3, 12])
    mesh = mesh.with_attributes(np.where(mesh.element_centers()[:, 0] < 0.5, 1, 2))
    V = femops.H1(mesh, 2)
    kappa = femops.by_attribute(mesh, {1: 1.0, 2: 1000.0})
    A = femops.diffusion(V, kappa).constrained(V.boundary_dofs())

    def exact(x: Any) -> Any:
        s = x[0] - 0.5
        return np.where(s < 0.0, s, s / 1000.0) + 0.0 * x[1]

    u = V.interpolate(exact)
    assert femops.adapt.residual((A, lambda W: W.zeros()), u).max() < 1e-9
    assert femops.adapt.recovered(A, u).max() < 1e-9


def test_boundary_conditions_count() -> None:
    """Fluxes that are not those of the boundary are part of the residual, and Robin's too."""
    mesh = femops.box((4, 4)).refined([0, 15])
    mesh = mesh.with_names(boundary={"right": lambda x: x[0] > 1 - 1e-9})

    def made(order: int, flux: Any) -> Any:
        V = femops.H1(mesh, order)
        A = femops.diffusion(V) + femops.boundary_mass(V, 3.0, attributes="right")
        A = A.constrained(V.boundary_dofs(lambda x: x[0] < 1e-9))
        load = lambda W: femops.boundary_load(W, flux, attributes="right")  # noqa: E731
        u, _ = femops.cg(A, A.rhs(load(V)), M=femops.jacobi(A), rtol=1e-12)
        return V, (A, load), u

    _, equation, u = made(2, 4.0)  # u = x, as -u' = 3 u - 4 at the end
    assert femops.adapt.residual(equation, u).max() < 1e-9
    V, equation, u = made(2, lambda x: np.sin(9.0 * x[1]))
    W, (B, _), w = made(6, lambda x: np.sin(9.0 * x[1]))
    d = w - W.interpolate((V, u))
    eta = femops.adapt.residual(equation, u)
    assert 0.8 < np.linalg.norm(eta) / np.sqrt(d @ (B.unconstrained @ d)) < 1.4
    assert np.argmax(eta) in np.flatnonzero(mesh.element_centers()[:, 0] > 0.8)


def test_nonlinear_and_several_components() -> None:
    """A residual with large strains: estimates agree with the error to a fine solution."""
    mesh = femops.box((4, 4))

    def law(u: Any, x: Any) -> Any:
        return {"grad": (1.0 + femops.inner(u.grad, u.grad)) * u.grad, "value": -3.0 * x}

    def solve(mesh: Any, order: int) -> Any:
        V = femops.H1(mesh, order, ncomp=2)
        F = femops.residual(law, V).constrained(V.boundary_dofs())
        return V, F, femops.newton(F, V.zeros(), rtol=1e-11)[0]

    V, F, u = solve(mesh, 2)
    W, _, w = solve(mesh, 5)
    d = w - W.interpolate((V, u))
    J = femops.residual(law, W).jacobian(W.interpolate((V, u)))
    error = np.sqrt(d @ (J @ d))
    assert 0.8 < np.linalg.norm(femops.adapt.residual(F, u)) / error < 1.2
    assert 0.7 < np.linalg.norm(femops.adapt.recovered(F, u)) / error < 1.3


def test_convection_needs_the_symmetric_part_alone() -> None:
    V = femops.H1(femops.box((8, 8)), 2)
    A = femops.diffusion(V, 0.3) + femops.convection(V, (2.0, 1.0))
    A = A.constrained(V.boundary_dofs())

    def f(x: Any) -> Any:
        return 0.9 * smooth(x) + 2.0 * slope(x)[0] + slope(x)[1]

    u, _ = femops.gmres(A, A.rhs(femops.load(V, f), V.interpolate(smooth)), rtol=1e-11)
    error = np.sqrt(0.3) * femops.h1_seminorm_error(V, u, slope)
    assert 0.9 < np.linalg.norm(femops.adapt.recovered(A, u)) / error < 1.1
    eta = femops.adapt.residual((A, lambda W: femops.load(W, f)), u)
    assert 0.8 < np.linalg.norm(eta) / error < 1.3


@pytest.mark.parametrize("refined", [False, True])
def test_interior_penalty(refined: bool) -> None:
    """Functions that jump: residual, fit and goal, also with faces of two sizes."""
    mesh = femops.box((6, 6))
    mesh = mesh.refined([0, 7, 20]) if refined else mesh
    V, k = femops.L2(mesh, 2), np.pi
    A = femops.interior_penalty(V)

    def f(x: Any) -> Any:
        return 5.0 * k**2 * np.sin(k * x[0]) * np.sin(2.0 * k * x[1])

    def slopes(x: Any) -> Any:
        first = k * np.cos(k * x[0]) * np.sin(2.0 * k * x[1])
        return np.stack([first, 2.0 * k * np.sin(k * x[0]) * np.cos(2.0 * k * x[1])])

    def right(W: Any) -> Any:
        return femops.load(W, f)

    def goal(W: Any) -> Any:
        return femops.load(W, lambda x: x[1])

    u, _ = femops.cg(A, right(V), M=femops.jacobi(A), rtol=1e-11)
    error = femops.h1_seminorm_error(V, u, slopes)
    assert 0.7 < np.linalg.norm(femops.adapt.recovered(V, u)) / error < 1.1
    assert 0.5 < np.linalg.norm(femops.adapt.residual((A, right), u)) / error < 1.1
    W = femops.H1(mesh, 9)
    true = goal(W) @ W.interpolate(lambda x: f(x) / (5.0 * k**2)) - goal(V) @ u
    _, found = femops.adapt.goal((A, right), u, goal, preconditioner="jacobi")
    assert 0.9 < found / true < 1.1


def test_stokes_takes_a_norm() -> None:
    mesh = femops.box((4, 4))
    P = femops.Product(u=femops.H1(mesh, 2, ncomp=2), p=femops.H1(mesh, 1))

    def stokes(u: Any, p: Any, x: Any) -> Any:
        force = np.array([x[1] ** 2, -x[0]])
        return {"u": {"grad": u.grad - p * np.eye(2), "value": -force}, "p": {"value": -u.div}}

    F = femops.residual(stokes, P)
    F = F.constrained(P.positions(u=P.spaces["u"].boundary_dofs(), p=[0]))

    def direct(A: Any, b: Any, rtol: float) -> Any:
        from scipy.sparse.linalg import spsolve

        return spsolve(A.assemble().tocsc(), b)

    z, _ = femops.newton(F, P.zeros(), linear=direct, rtol=1e-10)
    with pytest.raises(OperatorError, match="no energy of the field p: give norm="):
        femops.adapt.residual(F, z)
    norm = femops.form(lambda u, p: {"u": {"grad": u.grad}, "p": {"value": p}}, P)
    assert femops.adapt.residual(F, z, norm=norm).min() > 0.0


def test_essential_conditions_of_a_richer_space() -> None:
    """The boundary of the larger space, also where order 1 has no nodes inside edges."""
    for order in (1, 2):
        V = femops.H1(femops.box((1, 4)).refined([0]), order, ncomp=2)
        for dofs in (V.boundary_dofs(), V.boundary_dofs(1), V.boundary_dofs(components=1)):
            A = femops.elasticity(V, 1.0, 1.0).constrained(dofs)
            W = enriched(V)
            wanted = {
                len(V.boundary_dofs()): W.boundary_dofs(),
                len(V.boundary_dofs(1)): W.boundary_dofs(1),
                len(V.boundary_dofs(components=1)): W.boundary_dofs(components=1),
            }[len(dofs)]
            if len(dofs) == len(V.boundary_dofs(1)) and order == 1:
                continue  # an edge between two constrained corners counts as constrained
            assert np.array_equal(essential(A, W), wanted)


def test_the_enriched_residual_is_orthogonal_to_the_space() -> None:
    V = femops.H1(femops.box((2, 2, 2)).refined([0, 7]), 2)
    A, u = solution(V)
    right = lambda W: femops.load(W, lambda x: 4.0 * smooth(x))  # noqa: E731
    W = enriched(V)
    r = equation_of((A, right)).residual(W, embedded(V, u, W))
    v = np.random.default_rng(0).standard_normal(V.size)
    v[V.boundary_dofs()] = 0.0
    assert abs(r @ embedded(V, v, W)) < 1e-6
    assert np.linalg.norm(r) > 0.01


BAD = {
    "no load": (lambda A, u, b: femops.adapt.residual(A, u), "no right-hand side"),
    "a vector": (lambda A, u, b: femops.adapt.residual((A, b), u), "load is"),
    "no equation": (lambda A, u, b: femops.adapt.residual(3, u), "the equation is 3"),
    "no norm": (
        lambda A, u, b: femops.adapt.residual((A, lambda W: W.zeros()), u, norm=2),
        "norm is 2: give a femops operator",
    ),
    "no energy": (lambda A, u, b: femops.adapt.recovered(3, u), "A is 3: give a femops operator"),
    "few points": (
        lambda A, u, b: femops.adapt.recovered(femops.mass(A.space, quadrature=3), u),
        "functions of order 3 need 4",
    ),
    "no goal": (
        lambda A, u, b: femops.adapt.goal((A, lambda W: W.zeros()), u, 3),
        "J is 3: give a Functional",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    V = femops.H1(femops.box((2, 2)), 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    call, words = BAD[name]
    with pytest.raises(OperatorError, match=words):
        call(A, V.zeros(), femops.load(V, 1.0))
