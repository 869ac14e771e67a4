"""Factors, solves and eigenvalues of small matrices, held to NumPy's, on the host and a device."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops.bench.machine import using
from femops.errors import SingularError
from femops.tensor import Batch, Interleaved, Tiled, cholesky, eigh, lu, solve, solve_triangular
from support.cuda import places
from support.cuda.guarded import guarded_device

place = places.place

MEMBERS = 133  # no whole number of groups, or of thread blocks
CASES = [(3, "complex128"), (3, "float32"), (1, "complex64")]
CASES += [
    pytest.param(*case, marks=pytest.mark.exhaustive) for case in ((8, "float64"), (9, "complex64"))
]
METHODS = ["cholesky", "solve", "positive", "lu", "triangle", "eigh"]


def turned(matrices):
    return matrices.conj().swapaxes(-1, -2)


def systems(n, dtype, seed=0, members=MEMBERS, orders=0):
    """General matrices, positive definite ones, right sides; members over orders of magnitude."""
    rng = np.random.default_rng(seed)
    shapes = (members, n, n), (members, n, 2)
    general, right = (rng.standard_normal((2, *one)) for one in shapes)
    i = 1j * (np.dtype(dtype).kind == "c")
    general, right = (one[0] + i * one[1] if i else one[0] for one in (general, right))
    positive = general @ turned(general) + n * np.eye(n)
    scale = 10.0 ** np.linspace(-orders, orders, members)[:, None, None]
    return tuple(one.astype(dtype) for one in (scale * general, scale * positive, right))


def close(found, expected, factor=1.0):
    """Member by member, to round-off times a factor."""
    axes = tuple(range(1, expected.ndim))
    eps = 100 * np.finfo(expected.dtype).eps
    assert found.dtype == expected.dtype
    error = np.abs(found - expected).max(axes)
    return np.all(error <= eps * factor * np.abs(expected).max(axes))


def conditions(matrices):
    return np.linalg.cond(matrices.astype(complex))


def upper_nan(matrices):
    """With numbers above the diagonal that nobody may use."""
    return np.where(np.tri(matrices.shape[1], dtype=bool), matrices, np.nan)


# tiles of registers with rests, right sides that are read when A is factored, rows that are padded
LARGE = [(17, "float64"), (16, "complex64"), (32, "float64")]


@pytest.mark.parametrize(("n", "dtype"), [*CASES, *LARGE])
def test_factors_and_solves(place, n, dtype):
    general, positive, right = systems(n, dtype, orders=12)
    assert close(place.call(cholesky, upper_nan(positive)), np.linalg.cholesky(positive), n)
    both, rows = place.call(lu, general)
    lower = np.tril(both, -1) + np.eye(n, dtype=dtype)
    assert np.array_equal(np.sort(rows), np.tile(np.arange(n), (MEMBERS, 1)))
    assert close(lower @ np.triu(both), np.take_along_axis(general, rows[:, :, None], 1), n)
    # pivots have the largest sum of both parts
    assert np.abs(np.tril(both, -1)).max() <= (1.4143 if np.iscomplexobj(both) else 1.0)
    for matrix, assume in ((general, "general"), (positive, "positive")):
        found = place.call(solve, matrix, right, assume=assume)
        assert close(found, np.linalg.solve(matrix, right), conditions(matrix))
        one = place.call(solve, matrix, np.ascontiguousarray(right[:, :, 0]), assume=assume)
        assert close(one, found[:, :, 0])


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(32, "float64"), pytest.param(9, "complex64", marks=pytest.mark.exhaustive)],
)
def test_many_right_hand_sides(n, dtype):
    """Those of general matrices are read by rows, in the order of the pivots of each matrix."""
    general, positive, _ = systems(n, dtype, 6, 19)
    right = systems(n, dtype, 7, 19)[0]
    apart = np.repeat(right, 2, axis=2)[:, ::-1, ::2][:, ::-1]
    for matrix, assume in ((general, "general"), (positive, "positive")):
        found = solve(matrix, right, assume=assume)
        assert close(found, np.linalg.solve(matrix, right), conditions(matrix))
        assert np.array_equal(solve(matrix, apart, assume=assume), found)
        few = solve(matrix, right[:, :, :3].copy(), assume=assume)
        assert close(few, found[:, :, :3], conditions(matrix))


def triangle(matrix, lower, transpose, conjugate, unit_diagonal=False):
    """The triangle that a solve takes of a matrix."""
    taken = np.tril(matrix) if lower else np.triu(matrix)
    if unit_diagonal:
        taken[:, range(4), range(4)] = 1.0
    taken = taken.swapaxes(1, 2) if transpose else taken
    return taken.conj() if conjugate else taken


PAIRS = [  # every two values of two flags
    pytest.param(*flags, marks=() if sum(flags) % 2 else pytest.mark.exhaustive)
    for flags in itertools.product([True, False], repeat=3)
]


@pytest.mark.parametrize(("lower", "transpose", "conjugate"), PAIRS)
def test_triangles(place, lower, transpose, conjugate):
    _, positive, right = systems(4, "complex128")
    whole = positive * np.exp(1j * np.arange(4))  # its diagonal is not real
    junk = np.where(np.tri(4, dtype=bool) == lower, whole, np.nan)
    junk[:, range(4), range(4)] = whole[:, range(4), range(4)]
    flags = {"lower": lower, "transpose": transpose, "conjugate": conjugate}
    found = place.call(solve_triangular, junk, right, **flags)
    taken = triangle(whole, **flags)
    assert close(found, np.linalg.solve(taken, right), conditions(taken))
    flags["unit_diagonal"] = lower != conjugate
    real, right = positive.real.copy(), right.real.copy()
    found = place.call(solve_triangular, real, right, **flags)
    taken = triangle(real, **flags)
    assert close(found, np.linalg.solve(taken, right), conditions(taken))
    flags["conjugate"] = not conjugate  # of real numbers nothing changes
    assert np.array_equal(found, place.call(solve_triangular, real, right, **flags))


@pytest.mark.parametrize(("n", "dtype"), CASES)
def test_eigenvalues(place, n, dtype):
    general, _, _ = systems(n, dtype, 1, orders=12)
    matrices = general + turned(general)
    matrices[3], matrices[4] = np.eye(n), 0.0  # equal eigenvalues
    matrices[5] *= np.array(1e-8, dtype)  # the squares vanish in single precision
    junk = upper_nan(matrices)
    if np.iscomplexobj(junk):
        junk[:, range(n), range(n)] += np.array(7j, dtype)  # it counts as real
    values, vectors = place.call(eigh, junk)
    assert values.dtype == matrices.real.dtype
    expected, norm = np.linalg.eigvalsh(matrices), np.abs(matrices).max((1, 2))
    eps = 40 * n * np.finfo(dtype).eps
    assert np.all(np.diff(values, axis=1) >= 0)
    assert np.all(np.abs(values - expected).max(1) <= eps * norm)
    residual = matrices @ vectors - vectors * values[:, None]
    assert np.all(np.abs(residual).max((1, 2)) <= eps * norm)
    assert np.abs(turned(vectors) @ vectors - np.eye(n)).max() <= eps


@pytest.mark.parametrize("dtype", ["complex128", "float32"])
def test_numbers_over_forty_orders(place, dtype):
    """Scaled rows and columns, by which these methods lose nothing."""
    n = 3
    general, positive, right = systems(n, dtype, 2)
    scale = 10.0 ** np.random.default_rng(3).uniform(-10, 10, (MEMBERS, n, 1))
    scale[0] = 10.0 ** np.linspace(-10, 10, n)[:, None]
    scale = scale.astype(general.real.dtype)
    across = scale.swapaxes(1, 2)
    factor = place.call(cholesky, scale * positive * across) / scale
    assert close(factor, np.linalg.cholesky(positive), n)
    solution, worst = np.linalg.solve(positive, right), conditions(positive)
    graded = place.call(solve, scale * positive * across, scale * right, assume="positive")
    assert close(graded * scale, solution, worst)
    expected = np.linalg.solve(general, right)
    assert close(place.call(solve, general * across, right) * scale, expected, conditions(general))
    lower = np.tril(positive)
    graded = place.call(solve_triangular, scale * lower * across, scale * right)
    assert close(graded * scale, np.linalg.solve(lower, right), conditions(lower))
    size = 10.0 ** np.linspace(-20, 20, MEMBERS)[:, None].astype(scale.dtype)
    values, _ = place.call(eigh, size[:, :, None] * positive)
    assert close(values / size, np.linalg.eigvalsh(positive))


@pytest.mark.parametrize("dtype", ["complex128", "float32"])
def test_eigenvalues_at_the_ends_of_the_numbers(place, dtype):
    """Squares of the entries are beyond all numbers."""
    limits = np.finfo(dtype)
    across = 1j if dtype == "complex128" else 1.0
    matrix = np.array([[2.0, across], [np.conj(across), 1.0]])
    scale = np.array([limits.max / 16, limits.tiny * 16, limits.smallest_subnormal, 1.0])
    with np.errstate(under="ignore"):
        values, vectors = place.call(eigh, (scale[:, None, None] * matrix).astype(dtype))
    expected = scale[:, None] * np.linalg.eigvalsh(matrix)
    error = np.abs(values - expected)
    assert np.all(error <= 40 * limits.eps * np.abs(expected) + limits.smallest_subnormal)
    assert np.abs(turned(vectors) @ vectors - np.eye(2)).max() <= 40 * limits.eps


def work(place, method, matrices, right, **flags):
    """What a method makes of matrices: an array, or the first of several."""
    calls = {
        "cholesky": cholesky,
        "solve": lambda a: solve(a, place.put(right)),
        "positive": lambda a: solve(a, place.put(right), assume="positive"),
        "lu": lambda a: lu(a)[0],
        "triangle": lambda a: solve_triangular(a, place.put(right), **flags),
        "eigh": lambda a: eigh(a)[0],
    }
    return calls[method](place.put(matrices))


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_bad_matrices_are_named_and_the_others_done(place, method, dtype):
    general, positive, right = systems(3, dtype)
    i = 1j if dtype == "complex128" else 1.0
    matrices = general if method in ("solve", "lu", "triangle") else positive
    expected, broken = place.get(work(place, method, matrices, right)), matrices.copy()
    if method == "eigh":
        broken[4, 1, 0], broken[132, 2, 2] = i * np.nan, np.inf  # one entry is enough
    else:
        broken[4], broken[132] = 0.0, i * np.nan
    if method == "lu":
        broken[4] = np.outer([i, 2, 3], [1, i, 4])  # of rank 1
    if method in ("cholesky", "positive"):
        broken[4] = positive[4] - 100 * np.eye(3)
    with pytest.raises(SingularError, match=r"2 of 133 .*\(members 4, 132\)") as raised:
        work(place, method, broken, right)
    assert raised.value.members.tolist() == [4, 132]
    found = raised.value.result
    found = place.get(found[0] if isinstance(found, tuple) else found)
    others = np.setdiff1d(np.arange(MEMBERS), [4, 132])
    assert np.array_equal(found[others], expected[others])


@pytest.mark.parametrize(("n", "dtype"), [(3, "complex128"), (17, "float64")])
@pytest.mark.parametrize("method", METHODS)
def test_any_entry_that_is_not_finite_names_its_matrix(place, method, n, dtype):
    """One entry of each member, of those that are read."""
    values, entries = np.repeat([np.nan, np.inf, -np.inf], n * n), np.tile(np.arange(n * n), 3)
    general, positive, right = systems(n, dtype, 4, len(values) + 1)
    broken = (general if method in ("solve", "lu") else positive).copy()
    broken.reshape(len(broken), -1)[np.arange(len(values)), entries] = values
    row, column = np.divmod(entries, n)
    read = {"solve": row >= 0, "lu": row >= 0, "triangle": row < column}.get(method, row >= column)
    with pytest.raises(SingularError, match="not finite") as caught:
        work(place, method, broken, right, lower=False, unit_diagonal=True)
    assert caught.value.members.tolist() == np.flatnonzero(read).tolist()


@pytest.mark.parametrize(("members", "n", "columns"), [(5, 0, 3), (0, 2, 3), (5, 2, 0)])
def test_extents_of_zero(place, members, n, columns):
    matrices, right = (
        np.tile(np.eye(n, dtype="complex64"), (members, 1, 1)),
        np.ones((members, n, columns), "complex64"),
    )
    alike = (place.call(solve, matrices, right), np.linalg.solve(matrices, right))
    pairs = [alike, (place.call(cholesky, matrices), np.linalg.cholesky(matrices))]
    pairs += zip(place.call(eigh, matrices), np.linalg.eigh(matrices), strict=True)
    for found, expected in pairs:
        assert np.array_equal(found, expected)
        assert found.dtype == expected.dtype
    factors, order = lu(place.put(matrices))
    assert np.array_equal(place.get(factors), matrices)
    assert order.shape == (members, n)
    a, b = (place.move(Batch.wrap(one).copy(Interleaved())) for one in (matrices, right))
    assert solve(a, b).numpy().shape == (members, n, columns)
    if not columns:  # NumPy raises too
        with pytest.raises(SingularError, match="5 of 5 matrices are singular") as caught:
            solve(place.put(0 * matrices), place.put(right))
        assert caught.value.result.shape == (5, 2, 0)


@settings(max_examples=12)
@given(st.data())
def test_layouts_and_strides_do_not_matter(data):
    kinds = st.sampled_from([(3, "complex128"), (3, "float64")])
    n, dtype = data.draw(kinds)
    members = data.draw(st.integers(1, 20))
    general, positive, right = systems(n, dtype, data.draw(st.integers(0, 99)), members)
    grouped = [Batch.wrap(one).copy(Interleaved()) for one in (general, positive, right)]
    assert np.array_equal(cholesky(grouped[1]).numpy(), cholesky(positive))
    assert np.array_equal(solve(grouped[0], grouped[2]).numpy(), solve(general, right))
    step = data.draw(st.sampled_from([-1, 2, 3]))
    apart = np.repeat(np.asfortranarray(general), abs(step), axis=0)[:: abs(step)][:: np.sign(step)]
    found = solve(apart, right[:: np.sign(step)])[:: np.sign(step)]
    assert np.array_equal(found, solve(general, right))


def test_layouts_and_strides_on_a_device():
    device = guarded_device()
    general, positive, right = systems(3, "float64")
    expected = solve(*map(device.upload, (general, right))).get()
    for layout in (Interleaved(4), Tiled((2, 2))):
        a, p, b = (Batch.wrap(one).copy(layout).to(device) for one in (general, positive, right))
        made = solve(a, b)
        assert (made.layout, made.device) == (layout, device)
        assert np.array_equal(made.numpy(), expected)
        assert close(cholesky(p).numpy(), np.linalg.cholesky(positive))
    other = device.upload(np.ascontiguousarray(general.swapaxes(1, 2)[::-1]))
    found = solve(other.transpose(0, 2, 1)[::-1], device.upload(right))
    assert np.array_equal(found.get(), expected)
    vectors = Batch.wrap(right[:, :, 0]).copy(Interleaved(8)).to(device)
    assert np.array_equal(solve(device.upload(general), vectors).numpy(), expected[:, :, 0])


def test_what_a_device_refuses():
    device = guarded_device()
    general, _, right = systems(3, "float64")
    large = device.upload(np.ones((2, 33, 33)))
    for call, message in (
        (lambda: solve(device.upload(general), right), "copy them to one"),
        (lambda: cholesky(large), "33 rows on .*: copy them to 'cpu'"),
        (lambda: eigh(device.upload(right)), "give \\(members, n, n\\)"),
    ):
        with pytest.raises(femops.errors.TensorError, match=message):
            call()
    assert cholesky(device.upload(general[:0])).shape == (0, 3, 3)


@pytest.mark.parametrize(("n", "members"), [(16, 4501), (3, 4500)])
def test_large_batches(n, members):
    """Results of the first are written past the caches."""
    rng = np.random.default_rng(n)
    scale = 10.0 ** rng.uniform(-20, 20, (members, 1, 1))
    general = scale * (rng.standard_normal((members, n, n)) + n * np.eye(n))
    positive = general @ general.swapaxes(1, 2) / scale
    right = rng.standard_normal((members, n, 2))
    for threads in (1, 2):
        with using(threads):
            factor, found = cholesky(positive), solve(general, right)
            one = solve(general, right[:, :, 0].copy())
            both, rows = lu(general)
        assert np.allclose(factor / np.sqrt(scale), np.linalg.cholesky(positive / scale), rtol=1e-9)
        assert np.allclose(general @ found, right, atol=1e-9)
        assert np.allclose(one, found[:, :, 0])
        product = (np.tril(both, -1) + np.eye(n)) @ np.triu(both)
        permuted = np.take_along_axis(general, rows[:, :, None], 1)
        assert np.allclose(product / scale, permuted / scale, atol=1e-12 * n)


def test_calls_like_an_earlier_one():
    """What is remembered is all but the numbers, and where they are."""
    for seed in range(3):
        general, positive, right = systems(3, "float64", seed)
        assert close(cholesky(positive), np.linalg.cholesky(positive))
        other = positive[:, ::-1, ::-1]
        assert close(cholesky(other), np.linalg.cholesky(other))
        assert close(solve(general, right), np.linalg.solve(general, right), conditions(general))
        broken = positive.copy()
        broken[seed] = 0.0
        with pytest.raises(SingularError) as caught:
            cholesky(broken)
        assert caught.value.members.tolist() == [seed]
        shifted = np.frombuffer(b"\0" + positive.tobytes(), np.uint8)[1:].view("float64")
        with pytest.raises(femops.errors.TensorError, match="whole numbers apart"):
            cholesky(shifted.reshape(positive.shape))
        assert cholesky(positive[:0]).shape == (0, 3, 3)
