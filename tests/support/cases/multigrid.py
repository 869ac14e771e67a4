"""What multigrid is tried on, and how it is used."""

from __future__ import annotations

import numpy as np

import femops

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def bent(x):
    return x + 0.08 * np.sin(3 * x[::-1])


SQUARE = femops.box((4, 4), mapping=bent)
CUBE = femops.box((3, 3, 3), mapping=bent)
DISC = femops.read_mesh(femops.sample("disc.mesh"))


def poisson(mesh, order, **options):
    V = femops.H1(mesh, order)
    return femops.diffusion(V, **options).constrained(V.boundary_dofs())


def noise(A, seed=0):
    b = np.random.default_rng(seed).standard_normal(A.shape[0]).astype(A.dtype)
    b[A.constrained_dofs] = 0.0
    return b


def dense(apply, rows, columns, dtype=DOUBLE):
    matrix = np.empty((rows, columns))
    for k, unit in enumerate(np.eye(columns, dtype=dtype)):
        out = np.zeros(rows, dtype)
        apply(unit, out)
        matrix[:, k] = out
    return matrix


def solve(A, b=None, **options):
    M = femops.multigrid(A, **options)
    x, info = femops.cg(A, noise(A) if b is None else b, M=M, rtol=1e-9, maxiter=60)
    assert info.converged
    return x, info.iterations


def varied(V, level="partial"):
    half = V.mesh.element_centers()[:, 0] > 0.4
    field = femops.GridFunction(femops.L2(V.mesh, 0), np.where(half, 50.0, 1.0))
    stiff = femops.diffusion(V, kappa=field, level=level)
    waves = femops.mass(V, rho=lambda x: 1 + x[0] ** 2, level=level)
    return stiff + 2 * waves + femops.boundary_mass(V, 3.0, level=level)
