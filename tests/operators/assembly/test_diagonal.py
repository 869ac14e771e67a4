"""Diagonals by the compiled sweep, beside those of the matrix."""

import numpy as np
import pytest

import femops
from femops.operators.execution import host


def coupled(u):
    tensor = np.array([[2.0, 0.3], [0.4, 3.0]])
    return {"value": u + 0.4 * u.grad[0], "grad": tensor @ u.grad + u * np.array([0.1, 0.2])}


def across(u, n):
    """On faces between elements, or one-sided."""
    if hasattr(u, "jump"):
        value = u.plus.value + 3.0 * u.jump.value + u.mean.grad @ n
        return {"minus": {"value": value, "grad": n * u.plus.value}, "plus": 0.4 * u.jump.grad @ n}
    return {"value": u.value + u.grad @ n, "grad": n * u.value + 0.1 * u.grad}


def joined(u, w, n):
    gradient = {"grad": n * (w.jump.grad @ n)}
    return {"u": {"jump": u.jump + w.mean}, "w": {"jump": gradient, "mean": {"value": w.mean}}}


def product_on_faces():
    mesh = femops.ball(1)
    return femops.form(
        joined, femops.Product(u=femops.L2(mesh, 2), w=femops.H1(mesh, 2)), faces="interior"
    )


DISC = femops.H1(femops.disc(2), 3)
BALL = femops.H1(femops.ball(1), 2, ncomp=3)
BALL_1 = femops.H1(femops.ball(1), 2)
MAKERS = {
    "sum with boundary": lambda: 3 * femops.diffusion(DISC) - 2 * femops.boundary_mass(DISC),
    "nothing stored": lambda: femops.diffusion(DISC, level="matrix-free"),
    "mixed entries": lambda: femops.form(coupled, DISC),
    "vector": lambda: femops.elasticity(BALL, lam=lambda x: 1 + x[0] ** 2, mu=2.0),
    "boundary, with derivatives": lambda: femops.form(across, BALL_1, boundary="all"),
    "faces": lambda: femops.form(across, femops.L2(femops.ball(1), 2), faces="interior"),
    "faces of squares": lambda: femops.form(across, femops.L2(femops.disc(1), 2), faces="interior"),
    "faces of segments": lambda: femops.interior_penalty(femops.L2(femops.box(5), 2)),
    "faces without derivatives": lambda: femops.upwind_convection(
        femops.L2(femops.ball(1), 2, family="gll"), np.array([1.0, 2.0, 3.0])
    ),
    "faces, vector": lambda: femops.elastic_interior_penalty(femops.L2(femops.disc(1), 2, ncomp=2)),
    "faces, shared dofs": lambda: femops.form(across, BALL_1, faces="interior"),
    "faces, product": product_on_faces,
    "segment": lambda: femops.mass(femops.H1(femops.box(7), 3)) * 0.5,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_sweep_gives_the_diagonal_of_the_matrix(name, monkeypatch):
    monkeypatch.setattr(host, "_COMPILED_FROM", 0)
    A = MAKERS[name]()
    expected = A.assemble().diagonal()
    np.testing.assert_allclose(A.diagonal(), expected, rtol=1e-12, atol=1e-12 * expected.max())


def test_small_operators_compile_nothing(monkeypatch):
    monkeypatch.setattr(host, "_swept", None)
    A = MAKERS["mixed entries"]()
    np.testing.assert_allclose(A.diagonal(), A.assemble().diagonal(), rtol=1e-12)
