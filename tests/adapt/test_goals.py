"""Estimates of goals against the goals of exact, or of far better, solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops

CENTRE = 0.0736713  # of -Delta u = 1 on the unit square
SQUARE = femops.box((6, 6))
MESHES = {
    "uniform": SQUARE,
    "refined": SQUARE.refined(lambda x: x[0] + x[1] < 0.7).refined([1, 5]),
    "curved": femops.disc(4),
}


def exact(x: Any) -> Any:
    return np.sin(2.0 * x[0] + 0.3) * np.exp(x[1])


def weighted(u: Any, x: Any) -> Any:
    return u * (1.0 + x[0])


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("order", [1, 2])
def test_linear_goals(name: str, order: int) -> None:
    """A mean and the value at a point, with prescribed values that the space does not have."""
    mesh = MESHES[name]
    V = femops.H1(mesh, order)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    load = lambda W: femops.load(W, lambda x: 3.0 * exact(x))  # noqa: E731
    values = lambda W: W.interpolate(exact)  # noqa: E731
    u, _ = femops.cg(A, A.rhs(load(V), values(V)), M=femops.jacobi(A), rtol=1e-13)
    J = femops.functional(weighted, V)
    W = femops.H1(mesh, order + 6)
    true = femops.functional(weighted, W)(W.interpolate(exact)) - J(u)
    eta, error = femops.adapt.goal((A, load, values), u, J)
    assert 0.9 < error / true < 1.1
    assert np.isclose(np.linalg.norm(eta), abs(error))
    assert eta.shape == (mesh.num_elements,)
    at = [0.31, 0.17]
    point = lambda W: femops.Probe(W.mesh, at).load(W)  # noqa: E731
    _, error = femops.adapt.goal((A, load, values), u, point)
    assert 0.8 < error / (exact(np.array(at)) - point(V) @ u) < 1.2


def flow(u: Any, x: Any) -> Any:
    return {"grad": (1.0 + u**2) * u.grad, "value": u**3 - np.exp(x[0])}


@pytest.mark.parametrize("name", ["refined", "curved"])
def test_nonlinear_goals(name: str) -> None:
    goals, states = [], []
    for order in (2, 6):
        V = femops.H1(MESHES[name], order)
        F = femops.residual(flow, V).constrained(V.boundary_dofs())
        u, _ = femops.newton(F, V.zeros(), rtol=1e-12)
        goals.append(femops.functional(lambda u: u**2, V))
        states.append((F, u))
    eta, error = femops.adapt.goal(*states[0], goals[0])
    assert 0.9 < error / (goals[1](states[1][1]) - goals[0](states[0][1])) < 1.1
    assert eta.min() >= 0.0


def test_convection_has_a_transposed_equation() -> None:
    mesh = femops.box((8, 8))
    found = []
    for order in (1, 4):
        V = femops.H1(mesh, order)
        A = femops.diffusion(V, 0.2) + femops.convection(V, (1.0, 0.5))
        A = A.constrained(V.boundary_dofs())
        u, _ = femops.gmres(A, A.rhs(femops.load(V, 1.0)), rtol=1e-12)
        J = femops.functional(lambda u, x: x[0] * u, V)
        found.append((A, u, J))
    (A, u, J), (_, fine, exact_goal) = found
    _, error = femops.adapt.goal((A, lambda V: femops.load(V, 1.0)), u, J)
    assert 0.9 < error / (exact_goal(fine) - J(u)) < 1.1


def centre(mesh: Any) -> Any:
    V = femops.H1(mesh, 2)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    return A, lambda W: femops.load(W, 1.0)


def test_value_in_the_centre_of_a_square() -> None:
    point = lambda V: femops.Probe(V.mesh, [0.5, 0.5]).load(V)  # noqa: E731
    found = [*femops.adapt.loop(centre, femops.box((2, 2)), tol=1e-7, goal=point)]
    mesh, u, last = found[-1]
    assert abs(point(last.space) @ u - CENTRE) < 1.5e-7
    assert last.total <= 1e-7
    assert mesh.forest is not None
    near = np.linalg.norm(mesh.element_centers() - 0.5, axis=1)
    level = mesh.forest.level
    assert level[near < 0.15].min() > level[near > 0.6].min()
    assert abs(point(last.space) @ u + last.error - CENTRE) < 1e-7
