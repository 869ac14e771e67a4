"""Contractions of batches, held to numpy.einsum over shapes, layouts, ranges and strides.

On the host and on a device.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import femops
from femops.tensor import Batch, Index, Interleaved, Layout, Mapped, Strided, Tiled
from support.cuda import places

place = places.place

TYPES = ("float64", "float32", "complex128", "complex64")
# the same examples each time: what they compile is found again
FEW = settings(max_examples=12, derandomize=True, suppress_health_check=list(HealthCheck))


def numbers(rng, shape, dtype="float64"):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def scaled(values):
    """Members over 24 orders of magnitude."""
    powers = np.linspace(-12, 12, len(values)).astype(np.float32)
    return values * (10.0**powers).reshape(-1, *[1] * (values.ndim - 1)).astype(values.real.dtype)


def check(found, expected, bound):
    """Entry by entry, against sums of absolute values."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert np.all(np.abs(found - expected) <= 64 * np.finfo(expected.dtype).eps * bound)


class _Morton(Layout):
    """A user's layout: the bits of two indices in turns."""

    def offsets(self, shape):
        i, j = np.indices(shape)
        return sum((((i >> b) & 1) << (2 * b + 1)) | (((j >> b) & 1) << (2 * b)) for b in range(6))


def wider(i, j):
    return 128 * j + 2 * i


LAYOUTS = (
    *(Strided(), Strided("F"), Tiled((2, 3)), Interleaved(), Interleaved(4)),
    *(_Morton(), Mapped(wider)),
)
VIEWS = {
    "array": (lambda x: x, lambda x: x),
    "transposed": (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(1, 2, 0)),
    "every other": (lambda x: x.repeat(2, axis=2).repeat(3, axis=0), lambda x: x[::3, :, ::2]),
    "backwards": (lambda x: x[::-1, ::-1, ::-1], lambda x: x[::-1, ::-1, ::-1]),
}
"""What is stored of an array, and how that is seen."""


def operand(draw, place, values, shape):
    """A batch in some layout, an array strided in some way, or one tensor for all members."""
    kind = draw(st.sampled_from(("shared", *VIEWS, *LAYOUTS)))
    if isinstance(kind, Layout):
        return place.move(Batch(shape, len(values), values.dtype, kind).assign(values)), values
    if kind == "shared" and len(values):
        return place.put(values[0]), np.broadcast_to(values[0], values.shape)
    store, view = VIEWS["array" if kind == "shared" else kind]
    return view(place.put(np.ascontiguousarray(store(values)))), values


@FEW
@given(st.data())
def test_gemm_is_matmul_in_any_layout(place, data):
    rng, draw = np.random.default_rng(data.draw(st.integers(0, 99))), data.draw
    m, n, k = (draw(st.sampled_from((1, 2, 3, 5, 8, 17, 33))) for _ in range(3))
    dtype, members = draw(st.sampled_from(TYPES)), draw(st.sampled_from((0, 1, 5, 131)))
    turn_a, turn_b = draw(st.booleans()), draw(st.booleans())
    beta = draw(st.sampled_from((0.0, 2.0)))
    values = scaled(numbers(rng, (members, k, m) if turn_a else (members, m, k), dtype))
    a, A = operand(draw, place, values, values.shape[1:])
    values = numbers(rng, (members, n, k) if turn_b else (members, k, n), dtype)
    b, B = operand(draw, place, values, values.shape[1:])
    before = numbers(rng, (members, m, n), dtype)
    out = place.move(Batch((m, n), members, dtype, draw(st.sampled_from(LAYOUTS))).assign(before))
    femops.tensor.gemm(a, b, out, alpha=-0.5, beta=beta, transpose_a=turn_a, transpose_b=turn_b)
    A, B = (X.swapaxes(1, 2) if turn else X for X, turn in ((A, turn_a), (B, turn_b)))
    expected = (-0.5 * (A @ B) + beta * before).astype(dtype)
    check(out.numpy(), expected, np.abs(A) @ np.abs(B) + beta * np.abs(before))


def test_products_by_complex_factors(place):
    rng = np.random.default_rng(1)
    A, B, C = (numbers(rng, (7, 3, 3), "complex128") for _ in range(3))
    expected, bound = (1 + 2j) * (A @ B) - 1j * C, 3 * np.abs(A) @ np.abs(B) + np.abs(C)
    check(place.call(femops.tensor.gemm, A, B, C, alpha=1 + 2j, beta=-1j), expected, bound)


def test_nothing_but_the_output_is_written(place):
    """Columns that fill no lane vector end where the next member, or nothing, begins."""
    storage = place.put(np.full((40, 4, 9), 7.0))
    out = storage[1:38, 1:3, 2:7]
    femops.tensor.gemm(place.put(np.ones((37, 2, 3))), place.put(np.ones((37, 3, 5))), out)
    out, storage = place.get(out), place.get(storage)
    assert np.all(out == 3.0)
    assert np.sum(storage == 7.0) == storage.size - out.size


SEEDS = (
    *("kij,kl->ijl", "isj,ksl->ijkl", "si,sj,ksl->kilj"),
    *("ii->i", "ij->", "ij,ij->ij", "ki,lj,kl->ij"),
)


def by_table(shape):
    """A layout of this shape alone: it fails for all others."""
    table = np.arange(2 * np.prod(shape, dtype=int))[::-2].reshape(shape)
    return Mapped(lambda *index: table[index])


EACH = [lambda _: Interleaved(), by_table, lambda shape: Tiled((2,) * len(shape))]
IN_LAYOUTS = [  # each in one, and in the other two with make exhaustive
    pytest.param(words, layout, marks=() if k % 3 == j else pytest.mark.exhaustive)
    for k, words in enumerate(SEEDS)
    for j, layout in enumerate(EACH)
]


def sums(subscripts, members):
    """Arrays, what NumPy makes of them, and of their absolute values."""
    rng, (left, _, right) = np.random.default_rng(3), subscripts.partition("->")
    sizes = dict(zip("sijkl", (4, 3, 3, 5, 2), strict=True))
    shapes = [(members, *(sizes[x] for x in word)) for word in left.split(",")]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    words = ",".join("z" + word for word in left.split(","))
    expected = np.einsum(f"{words}->z{right}", *arrays)
    return arrays, expected, np.einsum(f"{words}->z{right}", *map(np.abs, arrays))


@pytest.mark.parametrize("members", [11, 0])
@pytest.mark.parametrize("subscripts", SEEDS)
def test_einsum_is_that_of_numpy(place, subscripts, members):
    arrays, expected, bound = sums(subscripts, members)
    check(place.call(femops.tensor.einsum, subscripts, *arrays), expected, bound)
    last = [np.ascontiguousarray(np.moveaxis(array, 0, -1)) for array in arrays]
    found = place.call(femops.tensor.einsum, subscripts, *last, batch=-1)
    check(found, np.moveaxis(expected, 0, -1), np.moveaxis(bound, 0, -1))


@pytest.mark.parametrize(("m", "k", "n"), [(0, 4, 2), (3, 0, 2), (3, 4, 0), (0, 0, 0)])
def test_extents_of_zero(place, m, k, n):
    """Sums over nothing are zeros, beta times the output is left, and the rest is empty."""
    A, B = np.ones((5, m, k)), np.full((5, k, n), 2.0)
    C, D = np.arange(5.0 * m * n).reshape(5, m, n), np.ones((5, n, 3))
    tensor, i, j, p = femops.tensor, Index("i"), Index("j"), Index("p")
    for _ in range(2):  # the second calls are repeated ones
        check(place.call(tensor.gemm, A, B), A @ B, 0.0)
        check(place.call(tensor.gemm, A, B, np.full_like(C, np.nan)), A @ B, 0.0)
        check(place.call(tensor.gemm, A, B, C.copy(), beta=-2.0), A @ B - 2 * C, 0.0)
        check(place.call(tensor.einsum, "ik,kj,jl->li", A, B, D), (A @ B @ D).swapaxes(1, 2), 0.0)
        check(place.call(tensor.einsum, "ik->", A), A.sum((1, 2)), 0.0)
        for layout in (Strided(), Interleaved(), Tiled((2, 2))):
            a, b, c = (place.move(Batch.wrap(X.copy()).copy(layout)) for X in (A, B, C))
            check(tensor.gemm(a, b).numpy(), A @ B, 0.0)
            c[i, j] += a[i, p] * b[p, j]
            check(c.numpy(), C + A @ B, 0.0)


def test_empty_ranges():
    for layout in (None, Interleaved(2)):
        values = np.arange(24.0).reshape(4, 3, 2)
        batch = Batch.wrap(values.copy()).copy(layout)
        nothing, last, i, k = Index("m", 2, 2), Index("n", 2), Index("i"), Index("k", 0, 0)
        assert np.array_equal(batch[:, 1:1].numpy(), values[:, 1:1])
        batch[:, 3:] = 7.0
        batch[nothing, i] = batch[nothing, i] * 2.0
        assert np.array_equal(batch.numpy(), values)
        batch[last, i] = batch[last, k] * batch[k, i]
        values[:, 2:] = 0.0
        assert np.array_equal(batch.numpy(), values)


@pytest.mark.parametrize(("subscripts", "layout"), IN_LAYOUTS)
def test_einsum_in_any_layout(subscripts, layout):
    for members in (11, 0):
        arrays, expected, bound = sums(subscripts, members)
        batches = [Batch.wrap(array).copy(layout(array.shape[1:])) for array in arrays]
        check(femops.tensor.einsum(subscripts, *batches).numpy(), expected, bound)


@FEW
@given(st.data())
def test_einsum_of_any_two(place, data):
    rng, draw = np.random.default_rng(7), data.draw
    left, right = (
        "".join(draw(st.lists(st.sampled_from("ijkl"), min_size=1, max_size=3, unique=True)))
        for _ in range(2)
    )
    result = "".join(x for x in draw(st.permutations("ijkl")) if x in left + right)
    result = result[: draw(st.integers(0, 3))]
    sizes = dict(zip("ijkl", (2, 3, 4, 5), strict=True))
    A, B = (rng.standard_normal((6, *(sizes[x] for x in word))) for word in (left, right))
    expected = np.einsum(f"z{left},z{right}->z{result}", A, B)
    bound = np.einsum(f"z{left},z{right}->z{result}", np.abs(A), np.abs(B))
    layout = draw(st.sampled_from((Strided(), Interleaved(2))))
    batches = [place.move(Batch.wrap(X).copy(layout)) for X in (A, B)]
    check(femops.tensor.einsum(f"{left},{right}->{result}", *batches).numpy(), expected, bound)


@FEW
@given(st.data())
def test_ranges_of_indices(place, data):
    rng, draw = np.random.default_rng(5), data.draw
    first = draw(st.integers(0, 3))
    last = draw(st.integers(first + 1, 5))
    fixed, layout = draw(st.integers(-4, 3)), draw(st.sampled_from((Strided(), Interleaved())))
    A, B, C = (
        rng.standard_normal((9, *shape)) for shape in ((3, 2, 5, 4), (2, 3, 4, 5), (3, 3, 5, 5))
    )
    a, b, c = (place.move(Batch.wrap(X.copy()).copy(layout)) for X in (A, B, C))
    i, j, k, n = (Index(name) for name in "ijkn")
    m = Index("m", first, last)
    c[i, j, m, n] -= 2 * a[i, k, m, fixed] * b[k, j, 0, n]
    bound = np.abs(C)
    pair = A[..., first:last, fixed], B[:, :, :, 0]
    C[:, :, :, first:last] -= 2 * np.einsum("zikm,zkjn->zijmn", *pair)
    bound[:, :, :, first:last] += 2 * np.einsum("zikm,zkjn->zijmn", *map(np.abs, pair))
    check(c.numpy(), C, bound)


def test_sums_of_products_with_indices():
    rng = np.random.default_rng(6)
    A, B = (rng.standard_normal((5, 3, 3)) for _ in "AB")
    a, b, c = Batch.wrap(A), Batch.wrap(B), Batch((3, 3), 5)
    i, j, k = (Index(name) for name in "ijk")
    c[i, j] = a[i, k] * b[k, j] - (a[j, i] + 3 * b[i, k] * b[k, j])
    P, Q = np.abs(A), np.abs(B)
    check(c.numpy(), A @ B - A.swapaxes(1, 2) - 3 * B @ B, P @ Q + P.swapaxes(1, 2) + 3 * Q @ Q)


def test_views_of_members_and_ranges_share_memory():
    values = np.arange(120.0).reshape(5, 4, 6)
    for layout in LAYOUTS[:3]:
        batch = Batch((4, 6), 5, layout=layout).assign(values)
        part = batch[1:4, 1:3, ::2]
        assert np.array_equal(part.numpy(), values[1:4, 1:3, ::2])
        part[:, 0].assign(-1.0)
        assert np.sum(batch.numpy() == -1.0) == 9
    wrapped = Batch.wrap(values)
    wrapped[2, :, 0].assign(0.5)
    assert np.all(values[2, :, 0] == 0.5)
    blocks = np.zeros((3, 4, 6, 8))
    Batch.wrap(blocks, Interleaved(8), members=20)[8:16].assign(1.0)
    assert np.all(blocks[1] == 1.0)
    assert not blocks[[0, 2]].any()


@pytest.mark.parametrize("step", [1, -1])
def test_values_in_the_memory_of_the_batch(step):
    memory = np.random.default_rng(0).standard_normal((2, 3, 3, 8))
    batch = Batch.wrap(memory, Interleaved(8), 11)
    values = memory.reshape(-1)[::step][:99].reshape(11, 3, 3)
    expected = values.copy()
    batch.assign(values)
    assert np.array_equal(batch.numpy(), expected)


@pytest.mark.parametrize(
    "layout", [Strided(), Strided("F"), Tiled((2, 3)), Interleaved(2), by_table((4, 6))]
)
def test_a_part_may_be_set_to_another_part(layout):
    values = np.arange(120.0).reshape(5, 4, 6)
    batch = Batch((4, 6), 5, layout=layout).assign(values)
    batch[:, 1:] = batch[:, :-1]
    values[:, 1:] = values[:, :-1].copy()
    assert np.array_equal(batch.numpy(), values)
    batch[:, :, ::-1] = batch.copy(Interleaved(2))
    assert np.array_equal(batch.numpy(), values[:, :, ::-1])


def test_copies_of_parts_are_laid_out_anew():
    values = np.random.default_rng(7).standard_normal((5, 4, 6))
    for layout in (by_table((4, 6)), Tiled((2, 3)), Interleaved(2)):
        batch = Batch.wrap(values).copy(layout)
        for key in (np.s_[:, :, 1], np.s_[:, 1:3], np.s_[:, ::-1]):
            assert np.array_equal(batch[key].copy().numpy(), values[key])
    square = Batch.wrap(values[:, :, :4]).copy(by_table((4, 4)))[:, :3, 1:]
    right = Batch.wrap(values[:, :, 0]).copy(by_table((4,)))[:, 1:]
    found = femops.tensor.solve(square, right).numpy()
    assert np.allclose(np.einsum("zij,zj->zi", values[:, :3, 1:4], found), values[:, 1:, 0])
