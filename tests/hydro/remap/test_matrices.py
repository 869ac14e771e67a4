"""Element matrices and neighbours beside the library's forms, which share none of their code."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.hydro.remap.high_order import LocalInverse
from femops.hydro.remap.matrices import monotone
from femops.hydro.remap.neighbours import Lattice, Neighbours
from tests.hydro.remap.cases import WIND, meshes, transport

MESHES = meshes()


def bernstein(mesh, order):
    return femops.L2(mesh, order, family="bernstein")


@pytest.mark.parametrize(
    "order", [2, *(pytest.param(p, marks=pytest.mark.exhaustive) for p in (1, 3))]
)
@pytest.mark.parametrize("name", MESHES)
def test_the_high_order_rate_is_that_of_upwind_convection(name, order):
    mesh = MESHES[name]
    tables, matrices = transport(mesh, order)
    V, points = bernstein(mesh, order), round(len(tables.weights) ** (1.0 / mesh.dim))
    u = np.random.default_rng(order).standard_normal(V.size)
    wind = WIND[: mesh.dim]
    A = femops.upwind_convection(V, velocity=wind, quadrature=points)
    M = femops.block_jacobi(femops.mass(V, quadrature=points))
    wanted = -(M @ (A @ u))
    found = LocalInverse(Neighbours(mesh, order)).rate(matrices, u.reshape(mesh.num_elements, -1))
    np.testing.assert_allclose(found.reshape(-1), wanted, atol=1e-11 * np.abs(wanted).max())


@pytest.mark.parametrize("name", MESHES)
def test_the_lumped_mass_is_that_of_the_constant(name):
    mesh = MESHES[name]
    tables, matrices = transport(mesh, 2)
    V, points = bernstein(mesh, 2), round(len(tables.weights) ** (1.0 / mesh.dim))
    wanted = femops.load(V, 1.0, quadrature=points)
    np.testing.assert_allclose(matrices.lumped.reshape(-1), wanted, rtol=1e-12)
    assert abs(matrices.lumped.sum() - mesh.volume()) < 1e-12 * mesh.volume()


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", MESHES)
def test_jumps_of_continuous_functions_are_zero(name, order):
    mesh = MESHES[name]
    H, V, faces = femops.H1(mesh, order), bernstein(mesh, order), Neighbours(mesh, order)
    u = np.random.default_rng(0).standard_normal(H.size)
    jumps = faces.jumps(V.interpolate((H, u)).reshape(mesh.num_elements, -1))
    assert np.abs(jumps[~faces.outer]).max() < 1e-12
    assert faces.outer.sum() == (mesh.topology.faces[:, 1] < 0).sum()


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("name", MESHES)
def test_bounds_are_those_of_the_elements_at_a_node(name, order):
    mesh = MESHES[name]
    nodes = femops.H1(mesh, order).restriction.indices
    u = np.random.default_rng(1).standard_normal(nodes.shape)
    least, largest = Lattice(mesh, order).bounds(u)
    for found, best in ((least, np.minimum), (largest, np.maximum)):
        wanted = np.full(
            nodes.max() + 1, u[0, 0] * 0.0 + (np.inf if best is np.minimum else -np.inf)
        )
        of_elements = best.reduce(u, axis=1)
        best.at(wanted, nodes, of_elements[:, np.newaxis])
        np.testing.assert_array_equal(found, wanted[nodes])


def test_marks_spread_over_the_elements_at_a_node():
    mesh = femops.box((3, 3))
    marked = np.zeros((9, 9), dtype=bool)
    marked[0, 8] = True  # the corner that four elements share
    spread = Lattice(mesh, 2).spread(marked)
    x = femops.H1(mesh, 2).dof_coordinates()[femops.H1(mesh, 2).restriction.indices]
    np.testing.assert_array_equal(spread, np.abs(x - x[0, 8]).max(axis=-1) < 1e-12)


@pytest.mark.parametrize("name", MESHES)
def test_subcells_integrate_the_slope_of_linear_functions(name):
    """On elements of one kind of subcells, and of the constant on all: zero."""
    _, matrices = transport(MESHES[name], 2)
    assert np.abs(matrices.subcells.sum(axis=0)).max() < 1e-12 * np.abs(matrices.subcells).max()


def test_subcells_of_a_box():
    mesh = femops.box((2, 2), upper=(2.0, 6.0))  # elements of 1 x 3
    tables, matrices = transport(mesh, 3)
    x = np.matmul(tables.lattice, mesh.coordinates)
    u = np.moveaxis((2.0 * x[..., 0] + x[..., 1])[:, tables.corners], -1, 0)
    wanted = -(2.0 * WIND[0] + WIND[1]) * 3.0 / 9.0
    np.testing.assert_allclose((matrices.subcells * u).sum(axis=0), wanted, rtol=1e-12)


def test_monotone_matrices_have_no_negative_neighbours_and_the_same_sums():
    A = np.random.default_rng(2).standard_normal((5, 6, 6))
    B = monotone(A)
    off = ~np.eye(6, dtype=bool)
    assert (B[:, off] >= 0.0).all()
    np.testing.assert_allclose(B.sum(axis=-1), A.sum(axis=-1), atol=1e-13)
    np.testing.assert_allclose(B.sum(axis=-2), A.sum(axis=-2), atol=1e-13)
