"""Manufactured solutions on curved unstructured meshes: errors fall at the rates theory gives.

All are waves, u = a sin(k . x + 1), so -div grad u = |k|^2 u.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import femops
from support import fixtures
from support.cases.kernels import turned
from support.cases.products import stokes
from support.oracles.naive import Array, Oracle

# dimension, degree, refinements of the coarser of two meshes
DISC = [(2, 1, 2), (2, 2, 2), (2, 3, 1), (2, 4, 1), (2, 5, 1), (2, 6, 1)]
BALL = [(3, 1, 2), (3, 2, 1), (3, 3, 1)]


one_thread = fixtures.one_thread


def slope(x: Array) -> Array:
    """The wave vector of the solution."""
    return np.array([3.0, 2.0] if len(x) == 2 else [2.0, 1.5, 1.0])


def exact(x: Array) -> Array:
    """u = sin(k . x + 1)."""
    return np.sin(np.tensordot(slope(x), x, 1) + 1)


def exact_gradient(x: Array) -> Array:
    """k cos(k . x + 1)."""
    return np.multiply.outer(slope(x), np.cos(np.tensordot(slope(x), x, 1) + 1))


def kappa(x: Array) -> Array:
    """1 + x / 2."""
    return 1 + 0.5 * x[0]


def source(x: Array) -> Array:
    """-div(kappa grad u) = kappa |k|^2 u - k_x cos(k . x + 1) / 2."""
    return kappa(x) * (slope(x) @ slope(x)) * exact(x) - 0.5 * exact_gradient(x)[0]


def errors(mesh: femops.Mesh, p: int) -> tuple[float, float, int]:
    """L2 and H1 errors of the solution with exact values on the boundary, and how many dofs."""
    space = femops.H1(mesh, p)
    operator = femops.diffusion(space, kappa).constrained(space.boundary_dofs())
    b = operator.rhs(femops.load(space, source), space.interpolate(exact))
    u, info = femops.cg(operator, b, M=femops.jacobi(operator), rtol=1e-13)
    assert info.converged
    l2 = femops.l2_error(space, u, exact)
    oracle = Oracle(mesh.coordinates, space.restriction.indices, q1d=p + 3)
    assert l2 == pytest.approx(oracle.l2_error(u, exact), rel=1e-6)
    return l2, femops.h1_error(space, u, exact, exact_gradient), space.ndofs


def meshes(dim: int, times: int) -> list[femops.Mesh]:
    """Two meshes, the second twice as fine."""
    start = turned(femops.disc(2, order=3) if dim == 2 else femops.ball(1, order=3))
    return [start.refine(k) for k in (times, times + 1)]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("dim", "p", "times"), DISC + BALL)
def test_rates(dim: int, p: int, times: int) -> None:
    coarse, fine = (errors(mesh, p) for mesh in meshes(dim, times))
    l2_rate, h1_rate = np.log2(coarse[0] / fine[0]), np.log2(coarse[1] / fine[1])
    assert fine[0] > 1e-12, "the rate would be that of round-off"
    assert l2_rate > p + 0.9, (l2_rate, coarse, fine)
    assert h1_rate > p - 0.1, (h1_rate, coarse, fine)


def direction(x: Array) -> Array:
    """a, across k."""
    return np.array([2.0, -3.0] if len(x) == 2 else [1.0, -2.0, 1.0])


def polarised(x: Array) -> Array:
    """u = a sin(k . x + 1) with a across k: without divergence."""
    return np.multiply.outer(direction(x), exact(x))


def pressure(x: Array) -> Array:
    """cos(x + 2 y + z + 1)."""
    return np.cos(np.tensordot([1.0, 2.0, 1.0][: len(x)], x, 1) + 1)


def stokes_errors(mesh: femops.Mesh, p: int) -> Array:
    """L2 errors of velocity and pressure of Taylor-Hood elements Q(p)-Q(p - 1)."""
    V, Q = femops.H1(mesh, p, ncomp=mesh.dim), femops.H1(mesh, p - 1)

    def force(x: Array) -> Array:
        k, m = slope(x), np.array([1.0, 2.0, 1.0][: len(x)])
        wave = np.sin(np.tensordot(m, x, 1) + 1)
        return (k @ k) * polarised(x) - np.multiply.outer(m, wave)

    held, values = V.boundary_dofs(), V.interpolate(polarised)
    W = femops.Product(u=V, p=Q)
    A = femops.form(stokes, W, mu=1.0).constrained(W.positions(u=held))
    b = A.rhs(W.join(u=femops.load(V, force)), W.join(u=values))
    g, ones = W.split(b)[1], femops.load(Q, 1.0)
    g -= ones * (g.sum() / ones.sum())  # what the interpolated values let out
    diagonal = femops.diffusion(V).constrained(held).diagonal()
    scale = W.join(u=diagonal, p=femops.mass(Q).diagonal())
    M = LinearOperator(A.shape, lambda r: r / scale, dtype=float)
    z, info = femops.minres(A, b, rtol=1e-11, M=M)
    assert info.converged
    u, q = W.split(z)
    off = femops.integrate(Q, q) - femops.integrate(Q, pressure, p + 3)
    pressures = q - off / mesh.volume()
    return np.array([femops.l2_error(V, u, polarised), femops.l2_error(Q, pressures, pressure)])


@pytest.mark.sample(2)
@pytest.mark.parametrize(("dim", "p", "times"), [(2, 2, 1), (2, 3, 1), (3, 2, 1)])
def test_rates_of_stokes(dim: int, p: int, times: int) -> None:
    coarse, fine = (stokes_errors(mesh, p) for mesh in meshes(dim, times))
    velocity, pressure = np.log2(coarse / fine)
    assert velocity > p + 0.9, (velocity, coarse, fine)
    assert pressure > p - 0.1, (pressure, coarse, fine)
