"""Manufactured solutions on curved unstructured meshes: errors fall at the rates theory gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import femops
from femops_kernels.machine import max_threads, set_threads
from kernel_cases import turned
from oracle import Array, Oracle

# dimension, degree, refinements of the coarser of two meshes
DISC = [(2, 1, 2), (2, 2, 2), (2, 3, 1), (2, 4, 1), (2, 5, 1), (2, 6, 1)]
BALL = [(3, 1, 2), (3, 2, 1), (3, 3, 1)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    set_threads(1)  # thousands of small products
    yield
    set_threads(max_threads())


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


@pytest.mark.parametrize(("dim", "p", "times"), DISC + BALL)
def test_rates(dim: int, p: int, times: int) -> None:
    start = turned(femops.disc(2, order=3) if dim == 2 else femops.ball(1, order=3))
    coarse, fine = (errors(start.refine(k), p) for k in (times, times + 1))
    l2_rate, h1_rate = np.log2(coarse[0] / fine[0]), np.log2(coarse[1] / fine[1])
    assert fine[0] > 1e-12, "the rate would be that of round-off"
    assert l2_rate > p + 0.9, (l2_rate, coarse, fine)
    assert h1_rate > p - 0.1, (h1_rate, coarse, fine)
