"""Eigenvalues and singular values of small matrices, on numbers and in kernels."""

import numpy as np
import pytest

import femops

COUNT = 4000


def orthogonal(rng, n):
    return np.linalg.qr(rng.standard_normal((COUNT, n, n)))[0]


def spectra(rng, n):
    """Eigenvalues with gaps, over 20 orders, equal, and almost equal."""
    values = rng.standard_normal((COUNT, n))
    quarter = COUNT // 4
    values[:quarter] *= 10.0 ** rng.uniform(-20, 0, (quarter, n))
    values[quarter : 2 * quarter] = values[quarter : 2 * quarter, :1]
    near = 1.0 + 10.0 ** rng.uniform(-16, -4, quarter)
    values[2 * quarter : 3 * quarter, -1] = values[2 * quarter : 3 * quarter, 0] * near
    values[-1] = 0.0
    return values


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_eigh_sym(n, scale):
    rng = np.random.default_rng(n)
    Q = orthogonal(rng, n)
    A = scale * np.einsum("nij,nj,nkj->nik", Q, spectra(rng, n), Q)
    A = (A + A.swapaxes(1, 2)) / 2
    values, vectors = femops.eigh_sym(A.transpose(1, 2, 0))
    exact = np.linalg.eigvalsh(A).T
    size = np.abs(exact).max(axis=0) + 1e-300
    residual = np.einsum("nij,jkn->ikn", A, vectors) - vectors * values
    products = np.einsum("ikn,iln->kln", vectors, vectors)
    assert (np.diff(values, axis=0) >= 0).all()
    assert (np.abs(values - exact) / size).max() < 4e-15
    assert (np.abs(residual) / size).max() < 4e-15
    assert np.abs(products - np.eye(n)[:, :, None]).max() < 4e-15


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_svd_min(n, scale):
    rng = np.random.default_rng(n)
    A = scale * np.einsum(
        "nij,nj,nkj->nik", orthogonal(rng, n), spectra(rng, n), orthogonal(rng, n)
    )
    exact = np.linalg.svd(A, compute_uv=False)
    error = np.abs(femops.svd_min(A.transpose(1, 2, 0)) - exact[:, -1])
    assert (error / (exact[:, 0] + 1e-300)).max() < 1e-14


def test_svd_min_of_graded_columns_is_accurate_relatively():
    A = np.diag([1e20, 1.0, 1e-20]) @ np.diag([1.0, 1.0, 3.0])
    assert femops.svd_min(A) == pytest.approx(3e-20, rel=1e-14)


@pytest.mark.parametrize("n", [2, 3])
def test_eigenvalues_in_a_kernel_are_those_of_numpy(n):
    space = femops.L2(femops.box((3,) * n), order=0)
    A = np.random.default_rng(0).standard_normal((n, n))

    def least(u, S, G):
        values, vectors = femops.eigh_sym(S)
        return {"value": (values[0] + vectors[0, 0] ** 2 + femops.svd_min(G) * u.value) * u.value}

    form = femops.residual(least, space, S=A + A.T, G=A, quadrature=1)
    u = np.arange(1.0, space.size + 1)
    values, vectors = np.linalg.eigh(A + A.T)
    smallest = np.linalg.svd(A)[1][-1]
    expected = (values[0] + vectors[0, 0] ** 2) * u + smallest * u**2
    assert np.allclose(form.residual(u) * space.mesh.num_elements, expected, rtol=1e-14)


@pytest.mark.parametrize("function", [femops.eigh_sym, femops.svd_min])
def test_another_shape_is_refused(function):
    with pytest.raises(femops.errors.TraceError, match="2 x 2 or 3 x 3"):
        function(np.zeros((4, 4)))
