"""Problems with Robin and Neumann conditions, whose solutions are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from support.cases.boundary import mesh
from support.cases.kernels import turned
from support.oracles.naive import Array


def exact(x: Array) -> Array:
    return np.sin(1.3 * x[0] + 0.4) * np.exp(0.7 * x[1])


def exact_flux(x: Array, n: Array) -> Array:
    e = np.exp(0.7 * x[1])
    slopes = 1.3 * np.cos(1.3 * x[0] + 0.4) * e, 0.7 * np.sin(1.3 * x[0] + 0.4) * e
    return slopes[0] * n[0] + slopes[1] * n[1]


LAPLACE = (0.7**2 - 1.3**2, exact)  # of the solution: a number times itself


def solve(A: Any, b: Array) -> Array:
    u, info = femops.cg(A, b, rtol=1e-13, M=femops.jacobi(A))
    assert info.converged
    return u


@pytest.mark.parametrize("p", [2, 3])
def test_robin_converges(p: int) -> None:
    """-div grad u = f with a varying Robin coefficient all around."""
    errors = []
    for n in (4, 8):
        V = femops.H1(turned(femops.disc(n, order=p)), p)
        A = femops.diffusion(V) + femops.boundary_mass(V, lambda x: 2 + x[1])
        b = femops.load(V, lambda x: -LAPLACE[0] * exact(x))
        b += femops.boundary_load(V, lambda x, n: exact_flux(x, n) + (2 + x[1]) * exact(x))
        errors.append(femops.l2_error(V, solve(A, b), exact))
    assert np.log2(errors[0] / errors[1]) > p + 0.9


def test_pressure_shrinks_a_disc() -> None:
    """Uniform pressure p on a solid in plane strain: the displacement is -p / (2 lam + 2 mu) x."""
    V = femops.H1(mesh("disc"), mesh("disc").order, ncomp=2)
    lam, mu, pressure = 1.5, 0.8, 2.0
    springs = femops.form(lambda u, n: {"value": (u.value @ n) * n}, V, boundary="all")
    A = femops.elasticity(V, lam=lam, mu=mu) + springs + 1e-3 * femops.mass(V)
    # the springs and the support push back with what they take up
    a = -pressure / (2 * lam + 2 * mu)
    load = femops.boundary_load(V, lambda x, n: -pressure * n)
    known = V.interpolate(lambda x: a * x)
    extra = springs @ known + 1e-3 * (femops.mass(V) @ known)
    np.testing.assert_allclose(solve(A, load + extra), known, atol=1e-9)
