"""Factors, solves and eigenvalues of small matrices, held to NumPy's."""

import numpy as np
import pytest

import femops
from femops.bench.machine import using
from femops.tensor import Batch, Interleaved, cholesky, eigh, lu, solve, solve_triangular

MEMBERS = 21  # no whole number of groups
CASES = [(1, "float64"), (3, "float64"), (3, "float32"), (8, "float64")]


def systems(n, dtype, seed=0):
    """General matrices, positive definite ones, right sides."""
    rng = np.random.default_rng(seed)
    general = rng.standard_normal((MEMBERS, n, n))
    positive = general @ general.swapaxes(1, 2) + n * np.eye(n)
    right = rng.standard_normal((MEMBERS, n, 2))
    return tuple(one.astype(dtype) for one in (general, positive, right))


def close(found, expected, condition=1.0):
    eps = np.finfo(expected.dtype).eps
    return np.abs(found - expected).max() <= 200 * eps * condition * max(1, np.abs(expected).max())


@pytest.mark.sample(2)
@pytest.mark.parametrize(("n", "dtype"), CASES)
def test_factors_and_solves(n, dtype):
    general, positive, right = systems(n, dtype)
    factor = cholesky(positive)
    assert close(factor, np.linalg.cholesky(positive))
    both, rows = lu(general)
    lower = np.tril(both, -1) + np.eye(n, dtype=dtype)
    assert np.abs(np.tril(both, -1)).max(initial=0) <= 1
    assert close(lower @ np.triu(both), np.take_along_axis(general, rows[:, :, None], 1))
    for found, matrix in (
        (solve(general, right), general),
        (solve(positive, right, assume="positive"), positive),
        (solve_triangular(factor, right), factor),
        (solve_triangular(factor, right, transpose=True), factor.swapaxes(1, 2)),
    ):
        size = np.abs(found).max() * np.abs(matrix).max() * n
        assert close(matrix @ found, right, max(1, size))
    one = solve(general, right[:, :, 0])
    assert np.array_equal(one, solve(general, right)[:, :, 0])


@pytest.mark.parametrize(("n", "dtype"), CASES)
def test_eigenvalues(n, dtype):
    general, _, _ = systems(n, dtype, 1)
    symmetric = general + general.swapaxes(1, 2)
    symmetric[3] = np.eye(n)  # equal eigenvalues
    symmetric[4] = 0.0
    symmetric[5] *= 1e-12
    values, vectors = eigh(symmetric)
    assert close(values, np.linalg.eigvalsh(symmetric), n)
    assert close(symmetric @ vectors, vectors * values[:, None], n)
    assert close(
        vectors.swapaxes(1, 2) @ vectors,
        np.broadcast_to(np.eye(n, dtype=dtype), symmetric.shape),
        n,
    )


@pytest.mark.parametrize(("dtype", "power"), [("float64", 200), ("float32", 30)])
def test_eigenvalues_of_any_size(dtype, power):
    """Squares of the entries are beyond all numbers."""
    general, _, _ = systems(4, "float64", 2)
    scale = 10.0 ** np.linspace(-power, power, MEMBERS)[:, None, None]
    symmetric = (scale * (general + general.swapaxes(1, 2))).astype(dtype)
    values, vectors = eigh(symmetric)
    expected = np.linalg.eigvalsh(symmetric.astype("float64"))
    eps = 40 * np.finfo(dtype).eps
    assert np.all(np.abs(values - expected).max(1) <= eps * np.abs(expected).max(1))
    assert np.abs(vectors.swapaxes(1, 2) @ vectors - np.eye(4)).max() <= eps


def test_layouts_and_strides_do_not_matter():
    general, positive, right = systems(3, "float64")
    grouped = [Batch.wrap(one).copy(Interleaved()) for one in (general, positive, right)]
    assert np.array_equal(cholesky(grouped[1]).numpy(), cholesky(positive))
    assert np.array_equal(solve(grouped[0], grouped[2]).numpy(), solve(general, right))
    turned = np.asfortranarray(general)[::-1]
    assert np.array_equal(solve(turned, right[::-1])[::-1], solve(general, right))
    lower = np.tril(positive)
    junk = positive + np.triu(np.full((3, 3), np.nan), 1)
    assert np.array_equal(solve_triangular(junk, right), solve_triangular(lower, right))
    assert np.array_equal(cholesky(junk), cholesky(positive))


@pytest.mark.parametrize("method", ["cholesky", "solve", "positive", "lu", "triangle", "eigh"])
def test_bad_matrices_are_named_and_the_others_done(method):
    general, positive, right = systems(3, "float64")
    matrices = positive if method in ("cholesky", "positive", "eigh") else general
    if method == "triangle":
        matrices = np.tril(general)

    def call(matrices):
        calls = {
            "cholesky": lambda: cholesky(matrices),
            "solve": lambda: solve(matrices, right),
            "positive": lambda: solve(matrices, right, assume="positive"),
            "lu": lambda: lu(matrices),
            "triangle": lambda: solve_triangular(matrices, right),
            "eigh": lambda: eigh(matrices),
        }
        return calls[method]()

    expected, broken = call(matrices), matrices.copy()
    broken[4], broken[20] = (np.nan, np.inf) if method == "eigh" else (0.0, np.nan)
    with pytest.raises(femops.errors.SingularError, match=r"2 of 21 .*\(members 4, 20\)") as caught:
        call(broken)
    assert caught.value.members.tolist() == [4, 20]
    others = np.setdiff1d(np.arange(MEMBERS), [4, 20])
    pairs = (
        zip(caught.value.result, expected, strict=True)
        if isinstance(expected, tuple)
        else [(caught.value.result, expected)]
    )
    for found, right_one in pairs:
        assert np.array_equal(found[others], right_one[others])


@pytest.mark.sample(2)
@pytest.mark.parametrize(("n", "members"), [(16, 4501), (15, 4501), (6, 4500), (17, 9)])
def test_large_batches(n, members):
    """Results of the first are written past the caches."""
    rng = np.random.default_rng(n)
    scale = 10.0 ** rng.uniform(-20, 20, (members, 1, 1))
    general = scale * (rng.standard_normal((members, n, n)) + n * np.eye(n))
    positive = general @ general.swapaxes(1, 2) / scale
    right = rng.standard_normal((members, n, 3))
    for threads in (1, 2):
        with using(threads):
            factor, found = cholesky(positive), solve(general, right)
            both, rows = lu(general)
        assert np.allclose(factor / np.sqrt(scale), np.linalg.cholesky(positive / scale), rtol=1e-9)
        assert np.allclose(general @ found, right, atol=1e-9)
        product = (np.tril(both, -1) + np.eye(n)) @ np.triu(both)
        permuted = np.take_along_axis(general, rows[:, :, None], 1)
        assert np.allclose(product / scale, permuted / scale, atol=1e-12 * n)


def test_calls_like_an_earlier_one():
    """What is remembered is all but the numbers, and where they are."""
    for seed in range(3):
        general, positive, right = systems(5, "float64", seed)
        assert close(cholesky(positive), np.linalg.cholesky(positive))
        turned = positive[:, ::-1, ::-1]
        assert close(cholesky(turned), np.linalg.cholesky(turned))
        assert close(general @ solve(general, right), right, 1e3)
        broken = positive.copy()
        broken[seed] = 0.0
        with pytest.raises(femops.errors.SingularError) as caught:
            cholesky(broken)
        assert caught.value.members.tolist() == [seed]
        shifted = np.frombuffer(b"\0" + positive.tobytes(), np.uint8)[1:].view("float64")
        with pytest.raises(femops.errors.TensorError, match="whole numbers apart"):
            cholesky(shifted.reshape(positive.shape))
        assert cholesky(positive[:0]).shape == (0, 5, 5)
