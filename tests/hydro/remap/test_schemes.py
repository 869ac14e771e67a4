"""Euler steps of the schemes: bounds, mass, and the high order where nothing limits it."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.hydro.remap.high_order import LocalInverse, Neumann
from femops.hydro.remap.neighbours import Lattice, Neighbours
from femops.hydro.remap.schemes import HIGH_ORDER, LOW_ORDER, ClipScale, scheme
from femops.parallel import Serial
from tests.hydro.remap.cases import meshes, transport

MESH = meshes()["periodic"]


def random_function(seed, order):
    return np.random.default_rng(seed).random((MESH.num_elements, (order + 1) ** MESH.dim))


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("lo", LOW_ORDER)
def test_low_order_keeps_mass_and_bounds(lo, order):
    tables, matrices = transport(MESH, order)
    u, dt = random_function(lo, order), 1e-3
    rate = scheme(MESH, tables, 0, lo, 0).rate(matrices, u, dt)
    assert abs((matrices.lumped * rate).sum()) < 1e-13 * np.abs(matrices.lumped * rate).sum()
    least, largest = Lattice(MESH, order).bounds(u)
    moved = u + dt * rate
    assert (moved >= least - 1e-14).all()
    assert (moved <= largest + 1e-14).all()


@pytest.mark.parametrize("lo", LOW_ORDER)
@pytest.mark.parametrize("ho", HIGH_ORDER)
def test_clip_and_scale_keeps_mass_and_bounds(ho, lo):
    order, dt = 3, 1e-3
    tables, matrices = transport(MESH, order)
    u = random_function(10 * ho + lo, order)
    rate = scheme(MESH, tables, ho, lo, 2).rate(matrices, u, dt)
    least, largest = Lattice(MESH, order).bounds(u)
    moved = u + dt * rate
    assert (moved >= least - 1e-14).all()
    assert (moved <= largest + 1e-14).all()
    low = scheme(MESH, tables, 0, lo, 0).rate(matrices, u, dt)
    change = (matrices.lumped * (rate - low)).sum(axis=1)
    assert np.abs(change).max() < 1e-14 + 1e-13 * np.abs(matrices.lumped * rate).sum(axis=1).max()


@pytest.mark.parametrize("lo", LOW_ORDER)
@pytest.mark.parametrize("ho", HIGH_ORDER)
def test_functions_of_any_size_move_alike(ho, lo):
    order, dt, size = 3, 1e-3, 2.0**-70
    tables, matrices = transport(MESH, order)
    u = 1e-3 * random_function(lo, order)
    rates = scheme(MESH, tables, ho, lo, 2)
    rate, small = rates.rate(matrices, u, dt), rates.rate(matrices, size * u, dt)
    assert small == pytest.approx(size * rate, abs=1e-12 * size * np.abs(rate).max())


def test_a_rate_within_bounds_is_not_limited():
    lattice, u = Lattice(MESH, 2), random_function(3, 2)
    lumped, low = np.ones_like(u), np.zeros_like(u)
    high = np.random.default_rng(4).standard_normal(u.shape)
    high -= high.mean(axis=1, keepdims=True)
    inner = 0.25 + 0.5 * u
    inner[:, 0], inner[:, 1] = 0.0, 1.0  # wide bounds
    high[:, :2] = 0.0
    high[:, 2:] -= high[:, 2:].mean(axis=1, keepdims=True)
    rate = ClipScale(lattice, Serial()).rate(lumped, inner, high, low, 1e-3)
    np.testing.assert_allclose(rate, high, atol=1e-12)


def test_jacobi_iterates_towards_the_exact_inverse():
    """The residual it leaves is below 1e-4, as its limit of iterations is not reached here."""
    _, matrices = transport(MESH, 1)
    u, faces = 1e-2 * random_function(5, 1), Neighbours(MESH, 1)
    exact, found = (kind(faces).rate(matrices, u) for kind in (LocalInverse, Neumann))
    residual = np.einsum("eij,ej->ei", matrices.mass, found - exact)
    assert np.linalg.norm(residual) <= 1e-4
    assert np.abs(found - exact).max() > 0.0


def test_constants_stay_whatever_the_scheme():
    tables, matrices = transport(MESH, 2)
    u = np.full((MESH.num_elements, 9), 0.7)
    for lo in LOW_ORDER:
        rate = scheme(MESH, tables, 3, lo, 2).rate(matrices, u, 1e-3)
        assert np.abs(rate).max() < 1e-11


def test_residual_distribution_in_one_dimension():
    """On a line with p = 1 and wind from the left, by hand: the whole element's integral."""
    mesh = femops.box((4,), periodic=True)
    tables, matrices = transport(mesh, 1)
    u = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 3.0], [3.0, 0.0]])
    rate = scheme(mesh, tables, 0, 3, 0).rate(matrices, u, 1e-3)
    # -a u' integrates to -a (u1 - u0), half to each row; a loss goes to the larger dof,
    # a gain to the smaller one
    wanted = -0.8 * 8.0 * np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 2.0], [0.0, -3.0]])
    np.testing.assert_allclose(rate, wanted, atol=1e-11)
