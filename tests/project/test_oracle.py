"""The oracle judges the kernels; here it is judged itself, by what can be done by hand."""

from math import comb

import numpy as np
import pytest

from support.oracles import connectivity
from support.oracles.naive import (
    Oracle,
    digits,
    mapping,
    nodes_1d,
)

SEGMENT = np.array([[0.0], [1.0]])
EPS = 64 * np.finfo(np.longdouble).eps


def box(dim, counts, g=1):
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


def test_bernstein_mass_known_by_formula():
    p = 4
    mass = Oracle(SEGMENT[None], np.arange(p + 1)[None], "bernstein").mass().local[0]
    for i, j in np.ndindex(mass.shape):
        known = comb(p, i) * comb(p, j) / comb(2 * p, i + j) / (2 * p + 1)
        assert mass[i, j] == pytest.approx(known, rel=1e-13)


def test_lumped_quadrature_gives_a_diagonal_mass():
    coordinates, indices = box(2, (2, 1), 3)
    local = Oracle(coordinates, indices, rule_name="lobatto", q1d=4).mass().local
    off = local[:, ~np.eye(16, dtype=bool)]
    assert np.abs(off).max() < 1e-16 < local.max()


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 3])
def test_polynomials_are_integrated_exactly_on_a_sheared_box(dim, p):
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


def test_coefficients_scalar_vector_tensor_agree_where_they_must():
    oracle = Oracle(*box(2, (2, 2), 2))

    def scalar(x):
        return 1 + x[0] * x[1]

    reference = oracle.diffusion(scalar).local
    for shape in (np.ones(2), np.eye(2)):
        other = oracle.diffusion(lambda x, shape=shape: np.multiply.outer(shape, scalar(x)))
        np.testing.assert_allclose(other.local, reference, rtol=1e-14)
    ones = np.ones(oracle.ndofs)
    assert oracle.mass(scalar).apply(ones).sum() == pytest.approx(1.25, rel=1e-13)


def test_a_bent_square_has_its_known_area():
    """A polynomial map whose area is known: (s, t) -> (s + t^2 / 2, t + s^2 / 4)."""
    coordinates, _ = box(2, (2, 2), 2)
    s, t = coordinates[..., 0], coordinates[..., 1]
    bent = np.stack([s + t**2 / 2, t + s**2 / 4], axis=-1)
    oracle = Oracle(bent, np.arange(4 * 9).reshape(4, 9), q1d=3)
    assert oracle.volume() == pytest.approx(1 - 1 / 8, rel=1e-14)
    positions, jacobians = mapping(bent, np.array([0.0, 1.0]))
    np.testing.assert_allclose(positions[-1, -1], [1.5, 1.25], rtol=1e-14)
    np.testing.assert_allclose(jacobians[-1, -1], [[0.5, 0.5], [0.25, 0.5]], rtol=1e-13)


def test_assembled_apply_diagonal_and_scale_are_one_matrix():
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


def test_connectivity_check_accepts_a_right_one_and_names_each_fault():
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


def test_connectivity_check_knows_periods_and_first_touch():
    coordinates, indices = box(1, (4,), 2)
    positions = connectivity.node_positions(coordinates, 2)
    around = np.where(indices == 8, 0, indices)
    assert connectivity.faults(positions, around, np.array([1.0])) == []
    assert connectivity.faults(positions, around) != []
    assert connectivity.faults(positions, indices, np.array([1.0])) != []
    _, indices = box(1, (4,), 1)
    assert connectivity.first_touch_faults(indices) == []
    assert connectivity.first_touch_faults(indices[::-1]) != []
