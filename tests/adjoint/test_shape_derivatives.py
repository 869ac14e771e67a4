"""Derivatives by the mesh and by a coefficient, beside formulas summed by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.random_forms.spaces import mesh_of
from support.oracles.shape_derivatives import Values

MESHES = [(1, "curved"), (2, "sheared"), (2, "curved"), (3, "multilinear"), (3, "curved")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("dim", "kind"), MESHES)
def test_formulas(dim: int, kind: str) -> None:
    mesh = mesh_of(dim, kind)
    random = np.random.default_rng(dim)
    V, K = femops.H1(mesh, 2), femops.H1(mesh, 1)
    X = femops.H1(mesh, 2, ncomp=dim)
    u, k = random.standard_normal(V.size), 1.5 + random.random(K.size)
    field = femops.GridFunction(K, k)

    def slopes(function: Any, *wrt: str, **more: Any) -> Any:
        goal = femops.functional(function, V, quadrature=5, **more)
        spaces = {name: X if name == "mesh" else None for name in wrt}
        return femops.gradient(goal, u=u, wrt=spaces)

    energy = slopes(lambda u, k: 0.5 * k * femops.inner(u.grad, u.grad), "mesh", "k", k=field)
    volume = slopes(lambda u: 1.0 + 0.0 * u, "mesh")["mesh"]
    surface = slopes(lambda u: 1.0 + 0.0 * u, "mesh", boundary="all")["mesh"]
    inside, outside = Values(mesh), Values(mesh, boundary=True)
    for _ in range(3):
        theta, change = random.standard_normal(X.size), random.standard_normal(K.size)
        pairs = [
            (volume @ theta, inside.volume(X, theta)),
            (surface @ theta, outside.surface(X, theta)),
            (energy["mesh"] @ theta, inside.energy(X, theta, (V, u), (K, k))),
            (energy["k"] @ change, inside.by_conductivity((V, u), (K, change))),
        ]
        for found, expected in pairs:
            assert found == pytest.approx(expected, rel=1e-11, abs=1e-11)
