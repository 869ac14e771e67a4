"""Factors, solves and eigenvalues of complex matrices, on the host and on a device."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.tensor import Batch, Interleaved, cholesky, eigh, lu, solve, solve_triangular
from support.cuda.guarded import guarded_device

MEMBERS = 21  # no whole number of groups
CASES = [(3, "complex128"), (5, "complex128"), (9, "complex64"), (1, "complex64")]


@pytest.fixture(scope="module", params=["host", "device"])
def call(request):
    """A function that calls another one with arrays where they are worked on."""
    if request.param == "host":
        return lambda method, *arrays, **rest: method(*arrays, **rest)
    device = guarded_device(options=["-O0"])

    def there(method, *arrays, **rest):
        found = method(*map(device.upload, arrays), **rest)
        return tuple(map(local, found)) if isinstance(found, tuple) else local(found)

    return there


def local(array):
    return array if isinstance(array, np.ndarray) else array.get()


def turned(matrices):
    return matrices.conj().swapaxes(-1, -2)


def systems(n, dtype, seed=0, members=MEMBERS):
    """General matrices, positive definite ones, right sides."""
    rng = np.random.default_rng(seed)
    shapes = (members, n, n), (members, n, 2)
    general, right = (rng.standard_normal((2, *one)) for one in shapes)
    general, right = (one[0] + 1j * one[1] for one in (general, right))
    positive = general @ turned(general) + n * np.eye(n)
    return tuple(one.astype(dtype) for one in (general, positive, right))


def close(found, expected, factor=1.0):
    """Member by member, to round-off times a factor."""
    axes = tuple(range(1, expected.ndim))
    eps = 100 * np.finfo(expected.dtype).eps
    assert found.dtype == expected.dtype
    error = np.abs(found - expected).max(axes)
    return np.all(error <= eps * factor * np.abs(expected).max(axes))


def conditions(matrices):
    return np.linalg.cond(matrices.astype(complex))


@pytest.mark.sample(2)
@pytest.mark.parametrize(("n", "dtype"), CASES)
def test_factors_and_solves(call, n, dtype):
    general, positive, right = systems(n, dtype)
    assert close(call(cholesky, positive), np.linalg.cholesky(positive), n)
    both, rows = call(lu, general)
    lower = np.tril(both, -1) + np.eye(n, dtype=dtype)
    assert np.array_equal(np.sort(rows), np.tile(np.arange(n), (MEMBERS, 1)))
    assert close(lower @ np.triu(both), np.take_along_axis(general, rows[:, :, None], 1), n)
    assert np.abs(np.tril(both, -1)).max() <= 1.4143  # pivots have the largest sum of both parts
    for matrix, assume in ((general, "general"), (positive, "positive")):
        found = call(solve, matrix, right, assume=assume)
        assert close(found, np.linalg.solve(matrix, right), conditions(matrix))
        one = call(solve, matrix, np.ascontiguousarray(right[:, :, 0]), assume=assume)
        assert close(one, found[:, :, 0])


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("conjugate", [True, False])
def test_triangles(call, lower, transpose, conjugate):
    _, positive, right = systems(4, "complex128")
    whole = positive * np.exp(1j * np.arange(4))  # its diagonal is not real
    junk = np.where(np.tri(4, dtype=bool) == lower, whole, np.nan)
    junk[:, range(4), range(4)] = whole[:, range(4), range(4)]
    taken = np.tril(whole) if lower else np.triu(whole)
    taken = taken.swapaxes(1, 2) if transpose else taken
    taken = taken.conj() if conjugate else taken
    flags = {"lower": lower, "transpose": transpose, "conjugate": conjugate}
    found = call(solve_triangular, junk, right, **flags)
    assert close(found, np.linalg.solve(taken, right), conditions(taken))
    real = call(solve_triangular, positive.real.copy(), right.real.copy(), **flags)
    flags["conjugate"] = not conjugate  # of real numbers nothing changes
    again = call(solve_triangular, positive.real.copy(), right.real.copy(), **flags)
    assert np.array_equal(real, again)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("n", "dtype"), CASES)
def test_eigenvalues(call, n, dtype):
    general, _, _ = systems(n, dtype, 1)
    matrices = general + turned(general)
    matrices[3], matrices[4] = np.eye(n), 0.0  # equal eigenvalues
    matrices[5] *= np.array(1e-8, dtype)  # the squares vanish in single precision
    junk = np.where(np.tri(n, dtype=bool), matrices, np.nan)
    junk[:, range(n), range(n)] += np.array(7j, dtype)  # it counts as real
    values, vectors = call(eigh, junk)
    assert values.dtype == matrices.real.dtype
    expected, norm = np.linalg.eigvalsh(matrices), np.abs(matrices).max((1, 2))
    eps = 40 * n * np.finfo(dtype).eps
    assert np.all(np.diff(values, axis=1) >= 0)
    assert np.all(np.abs(values - expected).max(1) <= eps * norm)
    residual = matrices @ vectors - vectors * values[:, None]
    assert np.all(np.abs(residual).max((1, 2)) <= eps * norm)
    assert np.abs(turned(vectors) @ vectors - np.eye(n)).max() <= eps


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_numbers_over_forty_orders(call, dtype):
    """Scaled rows and columns, by which these methods lose nothing."""
    n = 5
    general, positive, right = systems(n, dtype, 2)
    scale = 10.0 ** np.random.default_rng(3).uniform(-10, 10, (MEMBERS, n, 1))
    scale[0] = 10.0 ** np.linspace(-10, 10, n)[:, None]
    scale = scale.astype(general.real.dtype)
    across = scale.swapaxes(1, 2)
    factor = call(cholesky, scale * positive * across) / scale
    assert close(factor, np.linalg.cholesky(positive), n)
    solution, worst = np.linalg.solve(positive, right), conditions(positive)
    graded = call(solve, scale * positive * across, scale * right, assume="positive")
    assert close(graded * scale, solution, worst)
    expected = np.linalg.solve(general, right)
    assert close(call(solve, general * across, right) * scale, expected, conditions(general))
    lower = np.tril(positive)
    graded = call(solve_triangular, scale * lower * across, scale * right)
    assert close(graded * scale, np.linalg.solve(lower, right), conditions(lower))
    size = 10.0 ** np.linspace(-20, 20, MEMBERS)[:, None].astype(scale.dtype)
    values, _ = call(eigh, size[:, :, None] * positive)
    assert close(values / size, np.linalg.eigvalsh(positive))


def test_eigenvalues_at_the_ends_of_the_numbers(call):
    matrix = np.array([[2.0, 1j], [-1j, 1.0]])
    scale = np.array([1e307, 1e-307, 5e-324, 1.0])
    with np.errstate(under="ignore"):
        values, _ = call(eigh, scale[:, None, None] * matrix)
    expected = scale[:, None] * np.linalg.eigvalsh(matrix)
    assert np.all(np.abs(values - expected) <= 1e-14 * np.abs(expected) + 5e-324)


@pytest.mark.parametrize("method", ["cholesky", "solve", "positive", "lu", "triangle", "eigh"])
def test_bad_matrices_are_named_and_the_others_done(call, method):
    general, positive, right = systems(3, "complex128")
    calls = {
        "cholesky": lambda one: call(cholesky, one),
        "solve": lambda one: call(solve, one, right),
        "positive": lambda one: call(solve, one, right, assume="positive"),
        "lu": lambda one: call(lu, one)[0],
        "triangle": lambda one: call(solve_triangular, one, right),
        "eigh": lambda one: call(eigh, one)[0],
    }
    matrices = general if method in ("solve", "lu", "triangle") else positive
    expected, broken = calls[method](matrices), matrices.copy()
    if method == "eigh":
        broken[4, 1, 0], broken[20, 2, 2] = 1j * np.nan, np.inf  # one entry is enough
    else:
        broken[4], broken[20] = 0.0, 1j * np.nan
    if method == "lu":
        broken[4] = np.outer([1j, 2, 3], [1, 1j, 4])  # of rank 1
    if method in ("cholesky", "positive"):
        broken[4] = positive[4] - 100 * np.eye(3)
    with pytest.raises(femops.errors.SingularError, match=r"2 of 21 .*\(members 4, 20\)") as caught:
        calls[method](broken)
    assert caught.value.members.tolist() == [4, 20]
    found = caught.value.result
    found = local(found[0] if isinstance(found, tuple) else found)
    others = np.setdiff1d(np.arange(MEMBERS), [4, 20])
    assert np.array_equal(found[others], expected[others])


@pytest.mark.parametrize(("n", "dtype"), [(3, "complex128"), (17, "float64")])
@pytest.mark.parametrize("method", ["cholesky", "solve", "positive", "lu", "triangle", "eigh"])
def test_any_entry_that_is_not_finite_names_its_matrix(call, method, n, dtype):
    """One entry of each member, of those that are read."""
    values, entries = np.repeat([np.nan, np.inf, -np.inf], n * n), np.tile(np.arange(n * n), 3)
    general, positive, right = systems(n, "complex128", 4, len(values) + 1)
    kept = np.real if dtype[0] == "f" else np.asarray
    general, positive, right = (kept(one).astype(dtype) for one in (general, positive, right))
    broken = (general if method in ("solve", "lu") else positive).copy()
    broken.reshape(len(broken), -1)[np.arange(len(values)), entries] = values
    calls = {
        "cholesky": lambda: call(cholesky, broken),
        "solve": lambda: call(solve, broken, right),
        "positive": lambda: call(solve, broken, right, assume="positive"),
        "lu": lambda: call(lu, broken),
        "triangle": lambda: call(solve_triangular, broken, right, lower=False, unit_diagonal=True),
        "eigh": lambda: call(eigh, broken),
    }
    row, column = np.divmod(entries, n)
    read = {"solve": row >= 0, "lu": row >= 0, "triangle": row < column}.get(method, row >= column)
    with pytest.raises(femops.errors.SingularError, match="not finite") as caught:
        calls[method]()
    assert caught.value.members.tolist() == np.flatnonzero(read).tolist()


@settings(max_examples=20)
@given(st.data())
def test_layouts_and_strides_do_not_matter(data):
    n, dtype = data.draw(st.sampled_from([(2, "complex64"), (3, "complex128")]))
    members = data.draw(st.integers(1, 20))
    general, positive, right = systems(n, dtype, data.draw(st.integers(0, 99)), members)
    grouped = [Batch.wrap(one).copy(Interleaved()) for one in (general, positive, right)]
    assert np.array_equal(cholesky(grouped[1]).numpy(), cholesky(positive))
    assert np.array_equal(solve(grouped[0], grouped[2]).numpy(), solve(general, right))
    step = data.draw(st.sampled_from([-1, 2, 3]))
    apart = np.repeat(np.asfortranarray(general), abs(step), axis=0)[:: abs(step)][:: np.sign(step)]
    found = solve(apart, right[:: np.sign(step)])[:: np.sign(step)]
    assert np.array_equal(found, solve(general, right))
