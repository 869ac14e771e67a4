"""Relaxed meshes: their quality, their walls, and meshes that cannot be relaxed."""

from __future__ import annotations

import numpy as np
import pytest

import femops
from femops.errors import HydroError
from femops.hydro import Lagrangian, built_in, problem
from femops.hydro.ale.relaxation import Relaxation, quality

MESHES = {1: "segment01", 2: "square01_quad", 3: "cube01_hex"}


def equations(dim, order=2):
    return Lagrangian(problem("sedov"), built_in(MESHES[dim]).refine(1), order, 1)


def bent(x, size=0.08):
    """Points moved by a vortex that slides along the walls."""
    s, c = np.sin(np.pi * x), np.cos(np.pi * x)
    return x + size * s * np.stack(
        [np.prod(np.delete(c, d, axis=0), axis=0) for d in range(len(x))]
    )


@pytest.mark.parametrize("dim", MESHES)
def test_the_initial_mesh_stays(dim):
    equal = equations(dim)
    position = equal.V.interpolate(lambda x: x)
    found = Relaxation(equal, 1.0).relaxed(position)
    np.testing.assert_allclose(found, position, atol=1e-12)
    assert abs(quality(equal.V, position) - 1.0) < 1e-12


@pytest.mark.parametrize("dim", [2, 3])
def test_relaxed_meshes_are_better_and_slide_along_walls(dim):
    equal = equations(dim)
    position, before = equal.V.interpolate(bent), equal.V.interpolate(lambda x: x)
    found = Relaxation(equal, 1.0).relaxed(position)
    further = Relaxation(equal, 3.0).relaxed(position)
    qualities = [quality(equal.V, x) for x in (position, found, further)]
    assert qualities == sorted(qualities)
    assert qualities[0] < 0.9 < qualities[2]
    np.testing.assert_array_equal(found[equal.walls], position[equal.walls])
    distances = [np.abs(x - before).max() for x in (position, found, further)]
    assert distances == sorted(distances, reverse=True)
    moved = np.abs(found - position)
    along = np.setdiff1d(equal.V.boundary_dofs(), equal.walls)
    assert moved[along].max() > 1e-3


def test_the_result_is_stationary():
    """The residual against finite differences of the energy, written once more with NumPy."""
    equal, length = equations(2), 0.7
    position, rule = equal.V.interpolate(bent), equal.quadrature
    found, V = Relaxation(equal, length).relaxed(position), equal.V
    volume = equal.h0 * equal.order * length

    def energy(x):
        F = V.gradient(x, rule)
        det = np.linalg.det(F)
        solid = 0.5 * (F * F).sum(axis=(-1, -2)) - np.log(det) + 0.5 * (det - 1.0) ** 2
        near = ((V.values(x, rule) - V.values(position, rule)) ** 2).sum(axis=-1) / (2 * volume**2)
        weights = rule.tensor_weights(2) / V.mesh.num_elements
        return float(((solid + near) * weights).sum())

    free = np.setdiff1d(np.arange(V.size), equal.walls)
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = np.zeros(V.size)
        direction[free] = rng.standard_normal(len(free))
        slopes = [
            (energy(x + 1e-5 * direction) - energy(x - 1e-5 * direction)) / 2e-5
            for x in (found, position)
        ]
        assert abs(slopes[0]) < 1e-4 * abs(slopes[1])


def test_a_tangled_mesh_is_not_relaxed():
    equal = equations(2)
    position = equal.V.interpolate(lambda x: bent(x, 0.9))
    assert quality(equal.V, position) < 0.0
    with pytest.raises(HydroError, match="the relaxation "):
        Relaxation(equal, 1e-3).relaxed(position)


def test_quality_of_long_elements():
    V = femops.H1(femops.box((1, 1)), 1, ncomp=2)
    long = V.interpolate(lambda x: x * np.array([[4.0], [1.0]]))
    assert abs(quality(V, long) - 8.0 / 17.0) < 1e-12
