"""Many vectors of a space, in panels."""

from fractions import Fraction

import numpy as np
import pytest

import femops
from femops.fields import multivector
from femops.fields.multivector import MultiVector

KINDS = [np.float64, np.float32, np.complex128, np.complex64]


@pytest.fixture(scope="module")
def V():
    return femops.H1(femops.box((3, 2)), order=3)


def columns(space, nvec, kind, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((space.size, nvec))
    if np.dtype(kind).kind == "c":
        x = x + 1j * random.standard_normal(x.shape)
    return x.astype(kind)


def close(a, b, kind):
    eps = np.finfo(kind).eps
    return np.abs(a - b).max() <= 200 * eps * max(1.0, np.abs(b).max())


@pytest.mark.parametrize("kind", KINDS)
def test_columns_there_and_back(V, kind):
    for nvec, width in ((1, None), (61, None), (11, 4), (8, 4)):
        x = columns(V, nvec, kind)
        X = MultiVector.from_columns(V, x, width)
        assert X.dtype == kind
        assert X.panels.shape == (X.npanels, V.size, X.width)
        assert X.shape == x.shape
        assert np.array_equal(X.columns(), x)
        assert all(np.array_equal(one, column) for one, column in zip(X, x.T, strict=True))
        joined = np.moveaxis(X.panels, 0, 1).reshape(V.size, -1)
        assert not joined[:, nvec:].any()
        assert X.panels.ctypes.data % 64 == 0
    for nvec in range(1, 400):
        row = multivector.panel_width(nvec, kind) * np.dtype(kind).itemsize
        assert row % 64 == 0, "whole cache lines"
        assert row % 512 != 0, "rows that share few places of a cache"


def test_parts_are_views_where_panels_begin_and_end(V):
    x = columns(V, 11, np.float64)
    X = MultiVector.from_columns(V, x, 4)
    for chosen, view in [
        (slice(None), True),
        (slice(4, 8), True),
        (slice(4, 11), True),
        (slice(1, 4), False),
        (slice(0, 6), False),
        (slice(0, 11, 2), False),
        (slice(None, None, -1), False),
        ([3, 1, 10], False),
        (np.arange(11) > 6, False),
    ]:
        part = X[chosen]
        assert np.array_equal(part.columns(), x[:, chosen])
        assert np.shares_memory(part.panels, X.panels) == view, chosen
    assert np.shares_memory(X[7], X.panels)
    assert np.array_equal(X[-1], x[:, -1])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: X.__imul__(np.inf),
        lambda X: X.__itruediv__(0.0),
        lambda X: X.__iadd__(X * np.inf),
        lambda X: X.__imatmul__(np.full((11, 11), np.inf)),
        lambda X: (X * np.inf).__matmul__(np.ones((11, 11))),
        lambda X: X.panels.fill(np.nan),
    ],
)
def test_spare_columns_are_in_no_sum(V, spoil):
    x = columns(V, 11, np.float64)
    X = MultiVector.from_columns(V, x, 4)
    with np.errstate(all="ignore"):
        made = spoil(X)
    for Y in (X,) if made is None else (X, made):
        Y[:] = x
        assert np.array_equal((Y @ np.eye(11)).columns(), x)
        assert close(Y.gram(), x.T @ x, np.float64)
        assert np.isfinite((Y + Y * 2).panels).all()
        Y.orthonormalise()
        assert np.allclose(Y.gram(), np.eye(11), atol=1e-13)


def test_a_mass_among_the_vectors_is_read_before_they_change(V):
    x = np.abs(columns(V, 5, np.float64)) + 0.1
    X, mass = MultiVector.from_columns(V, x), x[:, 2].copy()
    X.orthonormalise(X[2])
    assert close(X.mass_gram(mass), np.eye(5), np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_small_matrices(V, kind, monkeypatch):
    monkeypatch.setattr(multivector, "_BLOCK_BYTES", 3000)  # several blocks of rows
    x, y = columns(V, 13, kind), columns(V, 9, kind, 1)
    X, Y = MultiVector.from_columns(V, x, 4), MultiVector.from_columns(V, y)
    assert close(X.gram(), x.conj().T @ x, kind)
    assert close(X.gram(Y), x.conj().T @ y, kind)
    weights = np.linspace(1, 2, V.size).astype(x.real.dtype)
    assert close(X.mass_gram(weights), x.conj().T @ (weights[:, np.newaxis] * x), kind)
    small = np.random.default_rng(2).standard_normal((13, 5)).astype(x.real.dtype)
    assert close((X @ small).columns(), x @ small, kind)
    square = np.random.default_rng(3).standard_normal((13, 13)).astype(x.real.dtype)
    assert close(X.norms(), np.linalg.norm(x, axis=0), kind)
    Z = MultiVector.from_columns(V, 1j * x if x.dtype.kind == "c" else 2 * x, 4)
    assert close(X.dots(Z), (x.conj() * Z.columns()).sum(axis=0), kind)
    X @= square
    assert close(X.columns(), x @ square, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_orthonormal(V, kind):
    real = np.dtype(kind).type(0).real.dtype
    M = femops.mass(V, dtype=real)
    for mass in (None, M, np.linspace(1, 3, V.size).astype(real)):
        X = MultiVector.random(V, 20, kind, seed=3)
        before = X.copy()
        X.orthonormalise(mass)
        assert close(X.mass_gram(mass), np.eye(20), kind)
        joined = np.concatenate([before.columns(), X.columns()], axis=1)
        assert np.linalg.matrix_rank(joined, tol=1e-3) == 20  # they span the same


def test_directions_that_are_missing_are_random_ones(V):
    X = MultiVector.random(V, 20)
    x = X.columns().copy()
    X[15:] = X[:5]
    X[3] = 0.0
    free = np.ones(V.size, bool)
    free[V.boundary_dofs()] = False
    X.panels *= free[:, np.newaxis]
    X.orthonormalise(femops.mass(V), free=free)
    assert np.allclose(X.gram(femops.mass(V) @ X), np.eye(20), atol=1e-12)
    assert not X.columns()[~free].any()
    kept = (x * free[:, np.newaxis])[:, [0, 1, 2, *range(4, 15)]]
    left = kept - X.columns() @ (X.gram(femops.mass(V) @ MultiVector.from_columns(V, kept)))
    assert np.abs(left).max() < 1e-12


def test_nearly_dependent_vectors(V):
    x = columns(V, 6, np.float64)
    x[:, 1:] = x[:, :1] + 1e-6 * x[:, 1:]
    X = MultiVector.from_columns(V, x)
    X.orthonormalise()
    assert np.allclose(X.gram(), np.eye(6), atol=1e-13)


def test_bad_input(V):
    X, A = MultiVector.random(V, 9), femops.mass(V)
    other = femops.H1(V.mesh, order=2)
    odd = np.zeros(48 * V.size + 1, np.uint8)[1:].view(np.float64)  # at an odd address
    refused = [
        (lambda: MultiVector.zeros(V, 0), "whole number"),
        (lambda: MultiVector.zeros(V, 2.5), "whole number"),
        (lambda: MultiVector.zeros(V, 3, int), "float64"),
        (lambda: MultiVector.zeros(V, 10**12), "GiB are free"),
        (lambda: MultiVector.from_columns(V, np.zeros((V.size - 1, 3))), "need"),
        (lambda: MultiVector.from_columns(V, np.zeros((V.size, 0))), "whole number"),
        (lambda: MultiVector.from_columns(V, np.zeros((V.size, 3), int)), "float64"),
        (lambda: MultiVector(V, np.zeros((V.size, 3))), "panels have shape"),
        (lambda: MultiVector(V, np.zeros((2, V.size, 3), int)), "float64"),
        (lambda: MultiVector(V, np.zeros((2, V.size, 6))[:, :, ::2]), "contiguous"),
        (lambda: MultiVector(V, odd.reshape(2, V.size, 3)), "aligned to .*: pass panels.copy"),
        (lambda: MultiVector(V, np.zeros((2, V.size, 3)), 3), "give 4 to 6"),
        (lambda: MultiVector(V, np.ones((2, V.size, 3)), 5), "not zero"),
        (lambda: X[[9]], "9 vectors"),
        (lambda: X[9], "9 vectors"),
        (lambda: X[2:2], "no vector"),
        (lambda: X[True], "True is no index of 9 vectors"),
        (lambda: X[0, 1], r"\(0, 1\) is no index of 9 vectors"),
        (lambda: X[[[0, 1]]], "no index of 9 vectors"),
        (lambda: X["a"], "'a' is no index"),
        (lambda: X["a":], "9 vectors: slice indices"),
        (lambda: np.asarray(X), r"no array: write X\.columns\(\)"),
        (lambda: X.__setitem__(slice(0, 2), np.zeros((V.size, 3))), "cannot be set"),
        (lambda: X.__setitem__(0, np.zeros(3)), "cannot be set"),
        (lambda: X.__setitem__(0, "a"), "cannot be set to 'a'"),
        (lambda: X.__setitem__(0, np.str_("a")), "cannot be set to"),
        (lambda: X.__setitem__(0, Fraction(1, 2)), "cannot be set to"),
        (lambda: X.__setitem__(0, 1j), "cannot be set to complex numbers: make them of complex128"),
        (lambda: X.__setitem__(slice(0, 9), X * 1j), "cannot be set to complex numbers"),
        (lambda: X.__setitem__(9, 1.0), "9 vectors"),
        (lambda: X.__imul__(1j), r"real .* write X = X \+ Y or X = X \* z"),
        (lambda: X.__itruediv__(1j), "real and cannot be overwritten"),
        (lambda: X.__iadd__(X * 1j), "real and cannot be overwritten"),
        (lambda: X.__isub__(X * 1j), "real and cannot be overwritten"),
        (lambda: X + MultiVector.random(V, 10, width=X.width), "not of the same"),
        (lambda: X + MultiVector.random(V, 8, width=8), "not of the same"),
        (lambda: X + np.zeros(X.panels.shape), "is added: give a MultiVector"),
        (lambda: X @ np.zeros((8, 2)), r"give one of shape \(9, m\)"),
        (lambda: X.__imatmul__(np.zeros((9, 2))), "write X @ Q"),
        (lambda: X.gram(MultiVector.random(other, 9)), "not of the space"),
        (lambda: A @ MultiVector.random(other, 9), "not of the space"),
        (lambda: A @ MultiVector.random(V, 9, np.float32), "float32"),
        (lambda: A.apply_many(X, X), "overlaps"),
        (lambda: A.apply_many(X, MultiVector.random(V, 8)), "panels and type"),
        (lambda: X.orthonormalise("a"), "mass is 'a': give an operator"),
        (lambda: X.orthonormalise(np.ones(3)), "give an operator"),
        ((X * np.nan).orthonormalise, "inner products of the vectors are not finite"),
        (lambda: X.orthonormalise(seed="a"), "seed is 'a'"),
        (lambda: X.orthonormalise(-np.ones(V.size)), "positive"),
        (lambda: MultiVector.random(V, V.size + 1).orthonormalise(), "dependent"),
        (lambda: X.gram(A), "give a MultiVector"),
        (lambda: A.apply_many("a"), "give a MultiVector"),
        (lambda: A.apply_many(X, np.zeros((9, 9))), "give a MultiVector"),
    ]
    before = X.panels.copy()
    for call, words in refused:
        with pytest.raises(femops.errors.VectorError, match=words):
            call()
    assert np.array_equal(X.panels, before)
