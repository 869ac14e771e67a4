"""The oracle judges the kernels; here it is judged itself, by what can be done by hand."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from support.oracles import connectivity
from support.oracles.naive import (
    Array,
    Oracle,
    digits,
    mapping,
    nodes_1d,
)

SEGMENT = np.array([[0.0], [1.0]])
EPS = 64 * np.finfo(np.longdouble).eps


def box(dim: int, counts: tuple[int, ...], g: int = 1) -> tuple[Array, Array]:
    """Coordinates (ne, (g+1)**dim, dim) and degree-g connectivity of the unit box, by loops."""
    nodes = nodes_1d("gll", g).astype(float)
    coordinates, indices = [], []
    for cell in np.ndindex(*counts[::-1]):
        start = np.array(cell[::-1])
        local = digits(g + 1, dim)
        coordinates.append(((start[:, None] + nodes[local]) / np.array(counts)[:, None]).T)
        grid = start[:, None] * g + local
        strides = np.cumprod([1, *(g * c + 1 for c in counts[:-1])])
        indices.append(strides @ grid)
    return np.array(coordinates), np.array(indices)


def test_segment_matrices_known_by_hand() -> None:
    h = 0.7
    linear = Oracle(h * SEGMENT[None], np.array([[0, 1]]))
    np.testing.assert_allclose(
        linear.mass().local[0], h / 6 * np.array([[2, 1], [1, 2]]), rtol=1e-14
    )
    np.testing.assert_allclose(
        linear.diffusion().local[0], np.array([[1, -1], [-1, 1]]) / h, rtol=1e-14
    )
    quadratic = Oracle(h * SEGMENT[None], np.array([[0, 1, 2]]))
    mass = h / 30 * np.array([[4, 2, -1], [2, 16, 2], [-1, 2, 4]])
    stiffness = np.array([[7, -8, 1], [-8, 16, -8], [1, -8, 7]]) / (3 * h)
    np.testing.assert_allclose(quadratic.mass().local[0], mass, rtol=1e-13)
    np.testing.assert_allclose(quadratic.diffusion().local[0], stiffness, rtol=1e-13)


@pytest.mark.parametrize("p", [1, 4, 9])
def test_bernstein_mass_known_by_formula(p: int) -> None:
    mass = Oracle(SEGMENT[None], np.arange(p + 1)[None], "bernstein").mass().local[0]
    for i in range(p + 1):
        for j in range(p + 1):
            known = comb(p, i) * comb(p, j) / comb(2 * p, i + j) / (2 * p + 1)
            assert mass[i, j] == pytest.approx(known, rel=1e-13)


def test_lumped_quadrature_gives_a_diagonal_mass() -> None:
    coordinates, indices = box(2, (2, 1), 3)
    local = Oracle(coordinates, indices, rule_name="lobatto", q1d=4).mass().local
    off = local[:, ~np.eye(16, dtype=bool)]
    assert np.abs(off).max() < 1e-16 < local.max()


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 3])
def test_polynomials_are_integrated_exactly_on_a_sheared_box(dim: int, p: int) -> None:
    coordinates, indices = box(dim, (2, 3, 2)[:dim], p)
    shear = np.eye(dim) + 0.3 * np.triu(np.ones((dim, dim)), 1)
    oracle = Oracle(coordinates @ shear.T, indices)
    nodes = np.zeros((oracle.ndofs, dim))
    nodes[indices] = coordinates
    # in the coordinates s of the unsheared box: x = shear s, so s_0 = row 0 of its inverse times x
    u, v = nodes[:, 0] ** p, nodes[:, -1]
    moment = 1 / (p + 2) if dim == 1 else 1 / (2 * (p + 1))
    assert u @ oracle.mass().apply(v) == pytest.approx(moment, rel=1e-13)
    first = np.linalg.inv(shear)[0]
    energy = p * p / (2 * p - 1) * (first @ first)
    assert u @ oracle.diffusion().apply(u) == pytest.approx(energy, rel=1e-13)
    tensor = shear @ shear.T
    assert u @ oracle.diffusion(tensor).apply(u) == pytest.approx(p * p / (2 * p - 1), rel=1e-13)
    assert oracle.load(2.0).sum() == pytest.approx(2.0, rel=1e-13)


def test_coefficients_scalar_vector_tensor_agree_where_they_must() -> None:
    coordinates, indices = box(2, (2, 2), 2)
    oracle = Oracle(coordinates, indices)

    def scalar(x: Array) -> Array:
        return 1 + x[0] * x[1]

    def vector(x: Array) -> Array:
        return np.stack([scalar(x), scalar(x)])

    def tensor(x: Array) -> Array:
        return np.stack([np.stack([scalar(x), 0 * x[0]]), np.stack([0 * x[0], scalar(x)])])

    reference = oracle.diffusion(scalar).local
    np.testing.assert_allclose(oracle.diffusion(vector).local, reference, rtol=1e-14)
    np.testing.assert_allclose(oracle.diffusion(tensor).local, reference, rtol=1e-14)
    u = oracle.load(1.0)
    x = np.zeros((oracle.ndofs, 2))
    x[indices] = coordinates
    assert oracle.mass(scalar).apply(np.ones(oracle.ndofs)).sum() == pytest.approx(1.25, rel=1e-13)
    assert u @ x[:, 0] == pytest.approx(0.5, rel=1e-13)


def test_a_bent_square_has_its_known_area() -> None:
    """A polynomial map whose area is known: (s, t) -> (s + t^2 / 2, t + s^2 / 4)."""
    coordinates, _ = box(2, (2, 2), 2)
    s, t = coordinates[..., 0], coordinates[..., 1]
    bent = np.stack([s + t**2 / 2, t + s**2 / 4], axis=-1)
    oracle = Oracle(bent, np.arange(4 * 9).reshape(4, 9), q1d=3)
    assert oracle.volume() == pytest.approx(1 - 1 / 8, rel=1e-14)
    positions, jacobians = mapping(bent, np.array([0.0, 1.0]))
    np.testing.assert_allclose(positions[-1, -1], [1.5, 1.25], rtol=1e-14)
    np.testing.assert_allclose(jacobians[-1, -1], [[0.5, 0.5], [0.25, 0.5]], rtol=1e-13)


def test_assembled_apply_diagonal_and_scale_are_one_matrix() -> None:
    coordinates, indices = box(2, (3, 2), 2)
    matrices = Oracle(coordinates, indices, ncomp=3).diffusion(lambda x: 1 + x[0])
    u = np.random.default_rng(7).standard_normal((matrices.ndofs, 3))
    dense = matrices.assembled().toarray()
    np.testing.assert_allclose(dense @ u.ravel(), matrices.apply(u).ravel(), atol=1e-13)
    np.testing.assert_allclose(np.diag(dense), matrices.diagonal(), rtol=1e-14)
    assert matrices.scale(u) == pytest.approx(np.linalg.norm(np.abs(dense) @ np.abs(u.ravel())))
    assert matrices.error(matrices.apply(u), u) < 1e-15
    assert matrices.error(1.01 * matrices.apply(u), u) > 1e-4
    both = 2.0 * matrices + matrices
    np.testing.assert_allclose(both.apply(u), 3 * matrices.apply(u), rtol=1e-12, atol=1e-12)


def test_connectivity_check_accepts_a_right_one_and_names_each_fault() -> None:
    coordinates, indices = box(2, (3, 2), 3)
    positions = connectivity.node_positions(coordinates, 3)
    assert connectivity.faults(positions, indices) == []
    swapped = indices.copy()
    swapped[1, [0, 4]] = swapped[1, [4, 0]]
    assert "share a number" in connectivity.faults(positions, swapped)[0]
    split = indices.copy()
    split[1, 0] = indices.max() + 1
    assert "at one place" in connectivity.faults(positions, split)[0]
    merged = np.where(indices == 5, 4, indices)
    assert len(connectivity.faults(positions, merged)) == 2


def test_connectivity_check_knows_periods() -> None:
    coordinates, indices = box(1, (4,), 2)
    positions = connectivity.node_positions(coordinates, 2)
    around = np.where(indices == 8, 0, indices)
    assert connectivity.faults(positions, around, np.array([1.0])) == []
    assert connectivity.faults(positions, around) != []
    assert connectivity.faults(positions, indices, np.array([1.0])) != []


def test_first_touch_check() -> None:
    _, indices = box(1, (4,), 1)
    assert connectivity.first_touch_faults(indices) == []
    assert connectivity.first_touch_faults(indices[::-1]) != []
