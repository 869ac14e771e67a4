"""Bases and quadrature: exact identities, and values by product formulas in long double."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from femops.basis import Basis1D, Quadrature1D, gauss, lobatto
from femops.errors import BasisError
from femops_meshes.coordinates.mapping import gauss_legendre, gauss_lobatto, tensor_apply
from support.oracles import naive


@pytest.mark.parametrize("family", ["gll", "gauss", "bernstein", "hermite"])
@pytest.mark.parametrize("p", [1, 2, 9, 20])
def test_matrices_against_product_formulas_in_long_double(family, p):
    basis = Basis1D(family, p)
    x = np.concatenate([[0.0, 1.0, 1e-9, 0.3, 1 - 1e-12], basis.nodes, gauss(p + 2).points])
    values, slopes = naive.line(family, p, x)
    np.testing.assert_allclose(basis.interpolation(x), values.astype(float), rtol=0, atol=1e-13)
    tolerance = 4e-13 * p**2
    np.testing.assert_allclose(basis.gradient(x), slopes.astype(float), rtol=0, atol=tolerance)


@pytest.mark.parametrize("p", [3, 8, 40])
def test_hermite_derivatives_are_those_of_the_values(p):
    """By the exact derivative of an interpolant in other points."""
    basis, points = Basis1D("hermite", p), lobatto(p + 1).points
    by_nodes = Basis1D("gll", p).gradient([0.1, 0.77]) @ basis.interpolation(points)
    scale = np.abs(by_nodes).max()
    np.testing.assert_allclose(basis.gradient([0.1, 0.77]), by_nodes, atol=1e-12 * scale)


def test_bernstein_is_positive_and_ends_are_nodal():
    basis = Basis1D("bernstein", 20)
    assert np.all(basis.interpolation(np.linspace(0, 1, 101)) >= 0)
    np.testing.assert_array_equal(basis.interpolation([0.0, 1.0]), np.eye(21)[[0, -1]])


@pytest.mark.parametrize("p", [3, 20])
def test_each_bernstein_coefficient_is_exact_to_round_off(p):
    """By monomials, in rational arithmetic: c_k = sum_i binom(k, i) / binom(p, i) a_i."""
    basis = Basis1D("bernstein", p)
    nodes = [Fraction(float(t)) for t in basis.nodes]
    for j in (0, p // 2, p - 1):
        monomials, others = [Fraction(1)], nodes[:j] + nodes[j + 1 :]
        for node in others:
            shifted = zip([0, *monomials], [*monomials, 0], strict=True)
            monomials = [(high - node * low) / (nodes[j] - node) for high, low in shifted]
        exact = [
            sum(Fraction(comb(k, i), comb(p, i)) * monomials[i] for i in range(k + 1))
            for k in range(p + 1)
        ]
        np.testing.assert_allclose(basis.from_nodal[:, j], np.array(exact, float), rtol=1e-13)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 20, 64])
def test_hermite_functions_vanish_at_the_ends_but_for_two(p):
    """Exactly, so that sums over the others are left out."""
    basis, ends = Basis1D("hermite", p), np.array([0.0, 1.0])
    values, slopes = basis.interpolation(ends), basis.gradient(ends)
    np.testing.assert_array_equal(values, np.eye(p + 1)[[0, -1]])
    if p > 2:
        assert not slopes[0, 2:].any()
        assert not slopes[1, :-2].any()
    assert slopes[0, 0] * slopes[0, 1] < 0.0


@pytest.mark.parametrize("p", [3, 4, 8, 20])
def test_hermite_mass_matrix_couples_opposite_ends_alone(p):
    basis, rule = Basis1D("hermite", p), gauss(p + 1)
    at_points = basis.interpolation(rule.points)
    mass = at_points.T @ (rule.weights[:, None] * at_points)
    coupled = np.abs(mass) > 1e-13
    expected = np.eye(p + 1, dtype=bool)
    expected[:2, -2:] = expected[-2:, :2] = True
    np.testing.assert_array_equal(coupled & ~expected, False)
    assert mass[0, 0] == pytest.approx(mass[1, 1], rel=1e-12)
    scale = 1.0 / np.sqrt(np.diag(mass))
    assert np.linalg.cond(scale[:, None] * mass * scale) < 14.0
    assert np.linalg.cond(basis.from_nodal) < 6.0


@pytest.mark.parametrize(
    ("family", "p", "with_values", "with_slopes"),
    [
        *(("gll", 4, 1, 5), ("gauss", 4, 5, 5), ("gauss", 0, 1, 1), ("bernstein", 1, 1, 2)),
        *(("bernstein", 6, 1, 2), ("hermite", 1, 1, 2), ("hermite", 2, 1, 2)),
        *(("hermite", 3, 1, 2), ("hermite", 64, 1, 2)),
    ],
)
def test_layers_that_have_values_or_derivatives_at_an_end(family, p, with_values, with_slopes):
    basis = Basis1D(family, p)
    assert basis.layers(slopes=False) == with_values
    assert basis.layers(slopes=True) == with_slopes


def test_order_zero_is_a_constant():
    basis = Basis1D("gauss", 0)
    np.testing.assert_allclose(basis.interpolation([0.0, 0.7]), [[1.0], [1.0]])
    np.testing.assert_array_equal(basis.gradient([0.0, 0.7]), [[0.0], [0.0]])


def test_rules_are_those_of_the_meshes():
    for rule, points in ((gauss(3), gauss_legendre(3)), (lobatto(4), gauss_lobatto(4))):
        assert rule.q1d == len(points[0])
        np.testing.assert_array_equal([rule.points, rule.weights], points)


def test_tensor_weights_match_tensor_apply():
    rule = gauss(3)
    f = np.random.default_rng(0).normal(size=(1, 27))
    by_lines = tensor_apply([rule.weights[None]] * 3, f)[0, 0]
    assert rule.tensor_weights(3) @ f[0] == pytest.approx(by_lines, rel=1e-14)


def test_rules_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        gauss(3).weights[0] = 1.0


def test_bad_input_is_refused():
    for call, message in (
        *((lambda p=p: Basis1D("gll", p), "whole number") for p in (0, -1, 1.5, "2", None, True)),
        (lambda: Basis1D("legendre", 2), "'gll', 'gauss', 'bernstein' or 'hermite'"),
        (lambda: gauss(0), "give a whole number from"),
        (lambda: gauss(2.0), "give a whole number from"),
        (lambda: lobatto(1), "give a whole number from"),
        (lambda: Quadrature1D(np.array([0.5]), np.array([1.0, 2.0]), "own"), "points"),
        (lambda: Quadrature1D(np.array([]), np.array([]), "own"), "points"),
        (lambda: Quadrature1D(np.array([1.5]), np.array([1.0]), "own"), "points"),
        (lambda: Quadrature1D(np.array([0.5]), np.array([np.nan]), "own"), "points"),
        (lambda: Basis1D("gll", 2).interpolation(np.zeros((2, 2))), "vector of points"),
    ):
        with pytest.raises(BasisError, match=message):
            call()


def test_bases_compare_by_value():
    assert Basis1D("gll", 3) == Basis1D("gll", 3) != Basis1D("gauss", 3)
    assert len({Basis1D("gll", 3), Basis1D("gll", 3)}) == 1
    assert repr(Basis1D("gll", 3)) == "Basis1D('gll', p=3)"
    assert repr(gauss(3)) == "Quadrature1D('gauss', q1d=3)"
