"""Diagonals by the compiled sweep, beside those of the matrix."""

import numpy as np
import pytest

import femops
from femops.operators.execution import diagonal


def coupled(u):
    tensor = np.array([[2.0, 0.3], [0.4, 3.0]])
    return {"value": u + 0.4 * u.grad[0], "grad": tensor @ u.grad + u * np.array([0.1, 0.2])}


DISC = femops.H1(femops.disc(2), 3)
BALL = femops.H1(femops.ball(1), 2, ncomp=3)
MAKERS = {
    "sum with boundary": lambda: 3 * femops.diffusion(DISC) - 2 * femops.boundary_mass(DISC),
    "nothing stored": lambda: femops.diffusion(DISC, level="matrix-free"),
    "mixed entries": lambda: femops.form(coupled, DISC),
    "vector": lambda: femops.elasticity(BALL, lam=lambda x: 1 + x[0] ** 2, mu=2.0),
    "segment": lambda: femops.mass(femops.H1(femops.box(7), 3)) * 0.5,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_sweep_gives_the_diagonal_of_the_matrix(name, monkeypatch):
    monkeypatch.setattr(diagonal, "_COMPILED_FROM", 0)
    A = MAKERS[name]()
    expected = A.assemble().diagonal()
    np.testing.assert_allclose(A.diagonal(), expected, rtol=1e-12, atol=1e-12 * expected.max())


def test_small_operators_compile_nothing(monkeypatch):
    monkeypatch.setattr(diagonal, "_swept", None)
    A = MAKERS["mixed entries"]()
    np.testing.assert_allclose(A.diagonal(), A.assemble().diagonal(), rtol=1e-12)
