"""Meshes and sizes of the problems."""

from itertools import product

import numpy as np
import pytest

from femops.bench.problems import MESHES, PROBLEMS, default_dofs, make_mesh, make_space
from femops.errors import OperatorError
from femops.geometry.jacobians import (
    EXACT,
    LegendreGeometry,
    element_modes,
    mode_degrees,
    negligible,
)


def test_meshes_are_what_they_are_called():
    for nodes in (1e3, 1e4):
        box, bent, curved = (make_mesh(kind, 2, nodes) for kind in MESHES)
        assert LegendreGeometry(box).affine
        assert np.all(beyond(bent, mode_degrees(1, 3).sum(axis=1) <= 1))  # no element is affine
        assert LegendreGeometry(bent).degree == 1
        bilinear = mode_degrees(curved.order, 3).max(axis=1) <= 1
        assert np.all(beyond(curved, bilinear))  # none is multilinear
        assert LegendreGeometry(curved).degree == 2


def beyond(mesh, kept):
    """Elements whose map is not made of these modes alone."""
    modes = element_modes(mesh.coordinates, mesh.order)
    return ~negligible(mesh.coordinates, modes, ~kept, EXACT)


def test_sizes_are_near_what_was_asked():
    for name, order in product(("bp1", "bp2"), (1, 3, 8)):  # of one component, and of three
        space = make_space(PROBLEMS[name], "cartesian", order, 2e4)
        assert space.ncomp == PROBLEMS[name].ncomp
        assert space.size == pytest.approx(2e4, rel=0.3), (name, order)


def test_mass_of_each_component_is_the_volume():
    for name in ("bp1", "bp2"):
        V = make_space(PROBLEMS[name], "cartesian", 1, 300.0)
        ones = np.ones(V.size)
        assert ones @ (PROBLEMS[name].operator(V) @ ones) == pytest.approx(V.ncomp)


def test_diffusion_of_a_constant_is_zero():
    for name in ("bp3", "bp4", "bp5", "bp6"):
        V = make_space(PROBLEMS[name], "curved", 1, 300.0)
        assert np.abs(PROBLEMS[name].operator(V) @ np.ones(V.size)).max() < 1e-12


def test_sizes_of_everything():
    assert default_dofs("ram", 1) == 1.8e6 / 8
    assert default_dofs("ram", 8) == 1.8e6
    assert default_dofs("cache", 1) == 0.12e6


def test_an_unknown_mesh_is_refused():
    with pytest.raises(OperatorError, match="choose one of cartesian"):
        make_mesh("deformed", 2, 100.0)
