"""Factors, solves and eigenvalues on a device, held to NumPy's."""

import numpy as np
import pytest

import femops
from femops.tensor import Batch, Interleaved, Tiled, cholesky, eigh, lu, solve, solve_triangular
from support.cuda.guarded import guarded_device

MEMBERS = 133  # no whole number of thread blocks


@pytest.fixture(scope="module")
def device():
    return guarded_device(options=["-O0"])


def systems(n, dtype):
    """General matrices, positive definite ones, right sides; members over 24 orders."""
    rng = np.random.default_rng(n)
    general = rng.standard_normal((MEMBERS, n, n))
    positive = general @ general.swapaxes(1, 2) + n * np.eye(n)
    scale = 10.0 ** np.linspace(-12, 12, MEMBERS)[:, None, None]
    right = rng.standard_normal((MEMBERS, n, 2))
    return tuple(one.astype(dtype) for one in (scale * general, scale * positive, right))


def close(found, expected, condition=1.0):
    """Member by member."""
    eps = np.finfo(expected.dtype).eps
    axes = tuple(range(1, expected.ndim))
    error = np.abs(found - expected).max(axes)
    return np.all(error <= 200 * eps * condition * np.abs(expected).max(axes))


@pytest.mark.parametrize(("n", "dtype"), [(3, "float64"), (7, "float32"), (17, "float64")])
def test_factors_and_solves(device, n, dtype):
    general, positive, right = systems(n, dtype)
    there = device.upload
    factor = cholesky(there(positive))
    assert device.owns(factor)
    assert close(factor.get(), np.linalg.cholesky(positive), n)
    both, rows = (one.get() for one in lu(there(general)))
    lower = np.tril(both, -1) + np.eye(n, dtype=dtype)
    assert np.abs(np.tril(both, -1)).max() <= 1
    assert close(lower @ np.triu(both), np.take_along_axis(general, rows[:, :, None], 1), n)
    x = solve(there(general), there(right)).get()
    size = np.abs(general).max((1, 2)) * np.abs(x).max((1, 2)) * n
    assert np.all(np.abs(general @ x - right).max((1, 2)) <= 200 * np.finfo(dtype).eps * size)
    x = solve(there(positive), there(right[:, :, 0]), assume="positive").get()
    assert x.shape == right.shape[:2]
    expected = np.linalg.solve(positive, right)[:, :, 0]
    assert close(x, expected, np.linalg.cond(positive).max())


@pytest.mark.parametrize("transpose", [False, True])
def test_triangles(device, transpose):
    _, positive, right = systems(4, "float64")
    lower = np.linalg.cholesky(positive)
    junk = lower + np.triu(np.full((4, 4), np.nan), 1)
    found = solve_triangular(device.upload(junk), device.upload(right), transpose=transpose)
    whole = lower.swapaxes(1, 2) if transpose else lower
    assert close(found.get(), np.linalg.solve(whole, right), 100)
    unit = np.tril(lower, -1) + np.eye(4)
    found = solve_triangular(
        device.upload(lower.swapaxes(1, 2)), device.upload(right), lower=False, unit_diagonal=True
    )
    assert close(found.get()[60:70], np.linalg.solve(unit.swapaxes(1, 2), right)[60:70], 1e6)


@pytest.mark.parametrize(("n", "dtype"), [(3, "float64"), (6, "float32"), (8, "float64")])
def test_eigenvalues(device, n, dtype):
    general, _, _ = systems(n, dtype)
    symmetric = general + general.swapaxes(1, 2)
    symmetric[3], symmetric[4] = np.eye(n), 0.0
    symmetric[5] *= np.dtype(dtype).type(1e-8)  # its squares vanish in float32
    values, vectors = (one.get() for one in eigh(device.upload(symmetric)))
    norm = np.abs(symmetric).max((1, 2))
    eps = 200 * n * np.finfo(dtype).eps
    expected = np.linalg.eigvalsh(symmetric)
    assert np.all(np.abs(values - expected).max(1) <= eps * norm)
    residual = symmetric @ vectors - vectors * values[:, None]
    assert np.all(np.abs(residual).max((1, 2)) <= eps * norm)
    assert np.abs(vectors.swapaxes(1, 2) @ vectors - np.eye(n)).max() <= eps


def test_layouts_and_strides_do_not_matter(device):
    general, positive, right = systems(3, "float64")
    expected, factor = (
        solve(*map(device.upload, (general, right))).get(),
        np.linalg.cholesky(positive),
    )
    for layout in (Interleaved(4), Tiled((2, 2))):
        a, p, b = (Batch.wrap(one).copy(layout).to(device) for one in (general, positive, right))
        made = solve(a, b)
        assert (made.layout, made.device) == (layout, device)
        assert np.array_equal(made.numpy(), expected)
        assert close(cholesky(p).numpy(), factor)
    turned = device.upload(np.ascontiguousarray(general.swapaxes(1, 2)[::-1]))
    found = solve(turned.transpose(0, 2, 1)[::-1], device.upload(right))
    assert np.array_equal(found.get(), expected)
    vectors = Batch.wrap(right[:, :, 0]).copy(Interleaved(8)).to(device)
    assert np.array_equal(solve(device.upload(general), vectors).numpy(), expected[:, :, 0])


@pytest.mark.parametrize("method", ["cholesky", "solve", "positive", "lu", "triangle", "eigh"])
def test_bad_matrices_are_named_and_the_others_done(device, method):
    general, positive, right = systems(3, "float64")
    calls = {
        "cholesky": cholesky,
        "solve": lambda a: solve(a, device.upload(right)),
        "positive": lambda a: solve(a, device.upload(right), assume="positive"),
        "lu": lambda a: lu(a)[0],
        "triangle": lambda a: solve_triangular(a, device.upload(right)),
        "eigh": lambda a: eigh(a)[0],
    }
    matrices = general if method in ("solve", "lu", "triangle") else positive
    expected, broken = calls[method](device.upload(matrices)).get(), matrices.copy()
    broken[4], broken[132] = (np.nan, np.inf) if method == "eigh" else (0.0, np.nan)
    with pytest.raises(
        femops.errors.SingularError, match=r"2 of 133 .*\(members 4, 132\)"
    ) as caught:
        calls[method](device.upload(broken))
    assert caught.value.members.tolist() == [4, 132]
    found = caught.value.result
    found = (found[0] if isinstance(found, tuple) else found).get()
    others = np.setdiff1d(np.arange(MEMBERS), [4, 132])
    assert np.array_equal(found[others], expected[others])


def test_bad_input(device):
    general, _, right = systems(3, "float64")
    for call, message in (
        (lambda: solve(device.upload(general), right), "copy them to one"),
        (
            lambda: cholesky(device.upload(np.ones((2, 33, 33)))),
            "33 rows on .*: copy them to 'cpu'",
        ),
        (lambda: eigh(device.upload(right)), "give \\(members, n, n\\)"),
    ):
        with pytest.raises(femops.errors.TensorError, match=message):
            call()
    assert cholesky(device.upload(general[:0])).shape == (0, 3, 3)
