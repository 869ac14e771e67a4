"""Modes of the elements' maps: their values, and what they tell of a mesh."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Legendre

import femops
from femops.geometry.jacobians import (
    ElementClass,
    LegendreGeometry,
    classify,
    element_modes,
    mode_degrees,
    mode_values,
)
from support.garbage import collect
from support.oracles.naive import Array, mapping


def shifted_legendre(k: int) -> Legendre:
    """The k-th Legendre polynomial on [0, 1]; the first has the slope 1."""
    polynomial = Legendre.basis(k, domain=[0, 1])
    return polynomial / 2 if k == 1 else polynomial


@pytest.mark.parametrize("count", [1, 2, 3, 6, 9])
def test_values_and_slopes_are_those_of_the_polynomials(count: int) -> None:
    x = np.linspace(0.0, 1.0, 11)
    values, slopes = mode_values(count, x)
    assert values.shape == slopes.shape == (11, count)
    for k in range(count):
        polynomial = shifted_legendre(k)
        np.testing.assert_allclose(values[:, k], polynomial(x), atol=1e-12)
        np.testing.assert_allclose(slopes[:, k], polynomial.deriv()(x), atol=1e-9)
        assert np.abs(values[:, k]).max() <= 1.0 + 1e-15  # so that left_out is a bound


@settings(max_examples=20)
@given(dim=st.integers(1, 3), order=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_modes_rebuild_positions_and_jacobians(dim: int, order: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = rng.standard_normal((2, (order + 1) ** dim, dim))
    points = rng.uniform(0.0, 1.0, 3)
    modes, degrees = element_modes(nodes, order), mode_degrees(order, dim)
    values, slopes = mode_values(order + 1, points)
    grid = np.indices((3,) * dim).reshape(dim, -1)[::-1]  # x fastest

    def tabulated(along: int | None) -> Array:
        factors = [
            (slopes if d == along else values)[grid[d]][:, degrees[:, d]] for d in range(dim)
        ]
        return np.prod(factors, axis=0)

    positions, jacobians = mapping(nodes, points)
    np.testing.assert_allclose(tabulated(None) @ modes, positions, atol=1e-12)
    for d in range(dim):
        np.testing.assert_allclose(tabulated(d) @ modes, jacobians[..., d], atol=1e-11)


def taper(x: Array) -> Array:
    """Multilinear, nowhere affine (in 1-D affine)."""
    return np.stack([c * (1 + 0.3 * x[d - 1]) if len(x) > 1 else 2 * c for d, c in enumerate(x)])


def power(n: int) -> object:
    """A map of degree n in each direction, alone."""
    return lambda x: x + 0.1 * x**n


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_affine_meshes_and_degrees(dim: int) -> None:
    identity, linear = (lambda x: x), (dim == 1, 1)
    cases = [(order, identity, (True, 1)) for order in (1, 2, 3)]
    cases += [(order, taper, linear) for order in (1, 2, 3)]
    cases += [(order, power(n), (False, n)) for n in (2, 3) for order in range(n, 5)]
    for order, curve, expected in cases:
        modes = LegendreGeometry(femops.box((3, 2, 2)[:dim], order=order, mapping=curve))
        assert (modes.affine, modes.degree) == expected


@pytest.mark.parametrize("which", [0, -1])
def test_one_element_decides_for_all(which: int) -> None:
    mesh = femops.box((40, 30)).curved(2)
    coordinates = mesh.coordinates.copy()
    coordinates[which, 4] += 1e-6  # the middle of one element
    bent = femops.Mesh.from_arrays(None, np.array(mesh.elements), coordinates=coordinates)
    modes = LegendreGeometry(bent)
    assert (modes.affine, modes.degree) == (False, 2)
    assert np.count_nonzero(classify(bent) == ElementClass.CURVED) == 1


def test_the_modes_kept_are_the_maps() -> None:
    mesh = femops.box((5, 4), mapping=taper).curved(3)  # more elements than nodes of one
    modes = LegendreGeometry(mesh)
    blocks = list(modes.blocks())
    assert [start for start, _ in blocks] == [0]
    assert blocks[0][1].shape == (20, 2, 4)
    values = mode_values(2, np.array([0.0, 1.0]))[0]
    corners = np.einsum("qm,eim->eqi", np.kron(values, values), blocks[0][1])
    np.testing.assert_allclose(corners, mesh.coordinates[:, [0, 3, 12, 15]], atol=1e-15)


@pytest.mark.parametrize(
    ("dim", "size", "offset"), [(2, 1e-9, 0.0), (3, 1e9, 0.0), (2, 0.01, 1e3), (3, 0.01, 1e6)]
)
def test_size_and_place_make_no_difference(dim: int, size: float, offset: float) -> None:
    """Round-off of large coordinates is no curvature; what is larger than that is."""
    counts, shift = (4, 3, 2)[:dim], offset * np.array([[1.0], [-1.0], [1.0]])[:dim]

    def check(order: int, mapping: object, affine: bool, degree: int, kind: ElementClass) -> None:
        mesh = femops.box(counts, order=order, mapping=lambda x: size * mapping(x) + shift)
        modes = LegendreGeometry(mesh)
        assert (modes.affine, modes.degree) == (affine, degree)
        assert set(classify(mesh)) == {kind}

    for order in (1, 2, 4):
        check(order, lambda x: x, True, 1, ElementClass.AFFINE)
        check(order, taper, False, 1, ElementClass.MULTILINEAR)
    check(2, power(2), False, 2, ElementClass.CURVED)


def test_a_part_is_treated_as_the_whole() -> None:
    whole = femops.box((4, 1), order=2, mapping=lambda x: x + 0.1 * np.maximum(x - 0.5, 0) ** 2)
    part = femops.box((2, 1))
    assert not LegendreGeometry(whole).affine
    LegendreGeometry.share(whole, part)
    assert not LegendreGeometry(part).affine
    assert LegendreGeometry(femops.box((2, 1))).affine


def test_a_mesh_is_let_go() -> None:
    """What is known of a mesh, and its modes for kernels, do not keep it."""
    mesh = femops.box((3, 2), mapping=taper)
    A = femops.mass(femops.H1(mesh, 1), level="matrix-free")
    A.apply(np.ones(A.shape[1]))
    gone = weakref.ref(mesh)
    del A, mesh
    collect()
    assert gone() is None
