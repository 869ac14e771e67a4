import numpy as np
import pytest

from femops_meshes import MeshArgumentError
from femops_meshes.coordinates.mapping import (
    equispaced,
    gauss_legendre,
    gauss_lobatto,
    lagrange_derivative_matrix,
    lagrange_matrix,
    tensor_apply,
)


@pytest.mark.parametrize("n", [1, 2, 5, 13, 40])
def test_gauss_integrates_all_it_should_and_no_more(n):
    x, w = gauss_legendre(n)
    for degree in range(2 * n):
        assert w @ x**degree == pytest.approx(1 / (degree + 1), rel=2e-14)
    # the error for x**2n is 1 / ((2n+1) binom(2n, n)**2) exactly
    if n < 8:
        assert abs(w @ x ** (2 * n) - 1 / (2 * n + 1)) > 1e-12


@pytest.mark.parametrize("n", [2, 3, 5, 13, 40])
def test_lobatto_has_the_ends_and_integrates(n):
    x, w = gauss_lobatto(n)
    assert x[0] == 0
    assert x[-1] == 1
    assert (np.diff(x) > 0).all()
    np.testing.assert_array_equal(x + x[::-1], 1.0)
    for degree in range(2 * n - 2):
        assert w @ x**degree == pytest.approx(1 / (degree + 1), rel=2e-14)
    if n < 8:
        assert abs(w @ x ** (2 * n - 2) - 1 / (2 * n - 1)) > 1e-12


def test_known_points():
    np.testing.assert_allclose(gauss_lobatto(4)[0][1], 0.5 - np.sqrt(1 / 20), rtol=1e-15)
    np.testing.assert_allclose(gauss_legendre(2)[0][0], 0.5 - np.sqrt(1 / 12), rtol=1e-15)
    np.testing.assert_allclose(gauss_lobatto(3)[1], [1 / 6, 2 / 3, 1 / 6], rtol=1e-15)


@pytest.mark.parametrize("p", [1, 2, 5, 30])
def test_lagrange_is_exact_for_its_polynomials(p):
    """Between the nodes, on them, and where the distance to one is round-off."""
    nodes = gauss_lobatto(p + 1)[0]
    between = np.random.default_rng(p).random(50)
    basis = np.polynomial.chebyshev.Chebyshev.basis(p, domain=[0, 1])
    for x in (between, nodes, np.clip(nodes + 1e-15, 0, 1)):
        values, slopes = lagrange_matrix(nodes, x), lagrange_derivative_matrix(nodes, x)
        np.testing.assert_allclose(values @ basis(nodes), basis(x), atol=2e-13)
        np.testing.assert_allclose(slopes @ basis(nodes), basis.deriv()(x), atol=3e-13 * p**2)
    np.testing.assert_array_equal(lagrange_matrix(nodes, nodes), np.eye(p + 1))


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("trailing", [(), (1,), (3,)])
def test_tensor_apply_is_the_kronecker_product(dim, trailing):
    rng = np.random.default_rng(0)
    matrices = [rng.random((k, m)) for k, m in ((4, 2), (3, 5), (2, 3))[:dim]]
    columns = int(np.prod([m.shape[1] for m in matrices]))
    values = rng.random((6, columns, *trailing))
    full = np.ones((1, 1))
    for matrix in matrices:
        full = np.kron(matrix, full)
    expected = np.einsum("km,nm...->nk...", full, values)
    got = tensor_apply(matrices, values)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(("shape", "trailing"), [((3, 2), ()), ((1, 5), (3,)), ((14, 12), (3,))])
def test_tensor_apply_rounds_an_element_alone_as_among_others(dim, trailing, shape):
    rng = np.random.default_rng(2)
    matrices = [rng.standard_normal(shape)] * dim
    values = rng.standard_normal((40 if dim < 3 else 7, shape[1] ** dim, *trailing))
    whole = tensor_apply(matrices, values)
    for some in (slice(0, 1), slice(3, 5), slice(2, 7)):
        np.testing.assert_array_equal(tensor_apply(matrices, values[some]), whole[some])


def test_bad_arguments_are_refused():
    for call in (
        lambda: gauss_legendre(0),
        lambda: gauss_lobatto(1),
        lambda: gauss_lobatto(2.5),
        lambda: gauss_legendre(True),
        lambda: equispaced(1),
        lambda: lagrange_matrix([0.0, 0.0], [0.5]),
        lambda: tensor_apply([np.eye(2)] * 2, np.zeros((3, 5))),
    ):
        with pytest.raises(MeshArgumentError):
            call()


def test_cached_points_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        gauss_legendre(3)[0][0] = 0.0
