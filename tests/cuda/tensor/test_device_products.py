"""Products and contractions on a device, held to NumPy; each variant is compiled once."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import femops
from femops.tensor import Batch, Group, Index, Interleaved, Strided, Tiled, gemm, group_gemm
from support.cuda.guarded import guarded_device
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require

# the same examples each time: what they compile is found again
FEW = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TYPES = ("float64", "float32", "complex128", "complex64")
LAYOUTS = (Strided(), Strided("F"), Tiled((2, 3)), Interleaved(4), Interleaved(8))


@pytest.fixture(scope="module")
def device():
    return guarded_device(options=["-O0"])


def numbers(rng, shape, dtype):
    """Normally distributed numbers."""
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
    eps = np.finfo(expected.dtype).eps
    assert np.all(np.abs(found - expected) <= 64 * eps * bound)


def operand(draw, device, values, shape):
    """A batch in some layout, an array strided in some way, or one tensor for all members."""
    kind = draw(st.sampled_from(("array", "innermost", "backwards", "shared", *LAYOUTS)))
    if kind == "shared":
        return device.upload(values[0]), np.broadcast_to(values[0], values.shape)
    if kind == "innermost":
        there = device.upload(np.ascontiguousarray(np.moveaxis(values, 0, -1)))
        return there.transpose(values.ndim - 1, *range(values.ndim - 1)), values
    if kind == "backwards":
        return device.upload(values[::-1, :, ::-1])[::-1, :, ::-1], values
    if kind == "array":
        return device.upload(values), values
    return Batch(shape, len(values), values.dtype, kind).assign(values).to(device), values


@FEW
@given(st.data())
def test_gemm_is_matmul_in_any_layout(device, data):
    rng, draw = np.random.default_rng(data.draw(st.integers(0, 99))), data.draw
    m, n, k = (draw(st.sampled_from((1, 2, 3, 5, 8, 13, 32))) for _ in range(3))
    dtype, members = draw(st.sampled_from(TYPES)), draw(st.sampled_from((1, 5, 131)))
    turn_a, turn_b = (draw(st.booleans()) for _ in range(2))
    beta = draw(st.sampled_from((0.0, 2.0)))
    values = scaled(numbers(rng, (members, k, m) if turn_a else (members, m, k), dtype))
    a, A = operand(draw, device, values, values.shape[1:])
    values = numbers(rng, (members, n, k) if turn_b else (members, k, n), dtype)
    b, B = operand(draw, device, values, values.shape[1:])
    before = numbers(rng, (members, m, n), dtype)
    out = Batch((m, n), members, dtype, draw(st.sampled_from(LAYOUTS))).assign(before).to(device)
    copies = device.host.uploads, device.host.downloads
    gemm(a, b, out, alpha=-0.5, beta=beta, transpose_a=turn_a, transpose_b=turn_b)
    assert (device.host.uploads, device.host.downloads) == copies
    A, B = (X.swapaxes(1, 2) if turn else X for X, turn in ((A, turn_a), (B, turn_b)))
    expected = (-0.5 * (A @ B) + beta * before).astype(dtype)
    check(out.numpy(), expected, np.abs(A) @ np.abs(B) + beta * np.abs(before))


def test_products_by_complex_factors(device):
    rng = np.random.default_rng(1)
    A, B, C = (numbers(rng, (7, 3, 3), "complex128") for _ in range(3))
    found = gemm(*map(device.upload, (A, B, C)), alpha=1 + 2j, beta=-1j).get()
    check(found, (1 + 2j) * (A @ B) - 1j * C, 3 * np.abs(A) @ np.abs(B) + np.abs(C))


def test_new_outputs_are_where_the_operands_are(device):
    rng = np.random.default_rng(2)
    A, B = (rng.standard_normal((9, 3, 3)) for _ in "AB")
    assert device.owns(gemm(device.upload(A), device.upload(B)))
    a = Batch.wrap(A).copy(Interleaved(4)).to(device)
    made = gemm(a, device.upload(B))
    assert (made.device, made.lanes) == (device, 4)
    assert np.allclose(made.numpy(), A @ B)


def test_nothing_but_the_output_is_written(device):
    storage = device.upload(np.full((40, 4, 9), 7.0))
    A, B = device.upload(np.ones((37, 2, 3))), device.upload(np.ones((37, 3, 5)))
    out = storage[1:38, 1:3, 2:7]
    gemm(A, B, out)
    assert np.all(out.get() == 3.0)
    assert np.sum(storage.get() == 7.0) == storage.size - out.size


def test_members_that_shared_memory_does_not_hold_are_read_where_they_are():
    """Only some operands are staged, or none."""
    rng = np.random.default_rng(8)
    A, B = (rng.standard_normal((3, 12, 12)) for _ in "AB")
    found = []
    for nbytes in (48 * 1024, 2500, 500):
        small = guarded_device(shared_bytes=nbytes, options=["-O0"])
        found.append(gemm(small.upload(A), small.upload(B)).get())
    assert np.allclose(found, A @ B, rtol=1e-13)


def test_large_results_are_shared_by_thread_blocks(device):
    rng = np.random.default_rng(9)
    A, B = rng.standard_normal((3, 61, 4)), rng.standard_normal((3, 4, 57))
    a, b = (Batch.wrap(X).copy(Interleaved(2)).to(device) for X in (A, B))
    assert np.allclose(gemm(a, b).numpy(), A @ B, rtol=1e-13, atol=1e-13)


SEEDS = ("kij,kl->ijl", "si,sj,ksl->kilj", "ii->i", "ij->", "ij,ij->ij", "ki,lj,kl->ij")


@pytest.mark.parametrize("subscripts", SEEDS)
def test_einsum_is_that_of_numpy(device, subscripts):
    rng, (left, _, right) = np.random.default_rng(3), subscripts.partition("->")
    sizes = dict(zip("sijkl", (4, 3, 3, 5, 2), strict=True))
    arrays = [rng.standard_normal((11, *(sizes[x] for x in word))) for word in left.split(",")]
    words = ",".join("z" + word for word in left.split(","))
    expected = np.einsum(f"{words}->z{right}", *arrays)
    bound = np.einsum(f"{words}->z{right}", *map(np.abs, arrays))
    check(femops.tensor.einsum(subscripts, *map(device.upload, arrays)).get(), expected, bound)
    last = [device.upload(np.ascontiguousarray(np.moveaxis(array, 0, -1))) for array in arrays]
    found = femops.tensor.einsum(subscripts, *last, batch=-1).get()
    check(found, np.moveaxis(expected, 0, -1), np.moveaxis(bound, 0, -1))


@FEW
@given(st.data())
def test_einsum_of_any_two(device, data):
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
    batches = [Batch.wrap(X).copy(layout).to(device) for X in (A, B)]
    check(femops.tensor.einsum(f"{left},{right}->{result}", *batches).numpy(), expected, bound)


def test_contractions_with_ranges(device):
    rng = np.random.default_rng(5)
    A, B, C = (
        rng.standard_normal((9, *shape)) for shape in ((3, 2, 5, 4), (2, 3, 4, 5), (3, 3, 5, 5))
    )
    a, b, c = (Batch.wrap(X).to(device) for X in (A, B, C))
    i, j, k, n, m = (*(Index(name) for name in "ijkn"), Index("m", 1, 4))
    c[i, j, m, n] -= 2 * a[i, k, m, -1] * b[k, j, 0, n]
    expected = C.copy()
    expected[:, :, :, 1:4] -= 2 * np.einsum("zikm,zkjn->zijmn", A[..., 1:4, -1], B[:, :, :, 0])
    assert np.allclose(c.numpy(), expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_groups_are_multiplied_pair_by_pair(device, dtype):
    sizes, rng = [(2, 3, 4), (5, 3, 1), (2, 3, 4), (2, 3, 4), (5, 3, 1)], np.random.default_rng(0)
    left = [numbers(rng, (m, k), dtype) for m, _, k in sizes]
    right = [numbers(rng, (k, n), dtype) for _, n, k in sizes]
    out = [numbers(rng, (m, n), dtype) for m, n, _ in sizes]
    a, b, c = (Group(arrays).to(device) for arrays in (left, right, out))
    found = group_gemm(a, b, c, alpha=-1.0, beta=2.0).to("cpu")
    for one, x, y, z in zip(found, left, right, out, strict=True):
        assert np.allclose(one, 2 * z - x @ y, rtol=1e-5)
    turned = group_gemm(Group(device.upload(x).T for x in left), b, transpose_a=True).to("cpu")
    assert all(np.allclose(*pair) for pair in zip(turned, map(np.matmul, left, right), strict=True))


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("layout", [Strided(), Interleaved(4)], ids=repr)
def test_nothing_is_found_by_sanitizers(layout, sanitizer):
    require(sanitizer)
    host, rng = host_device(), np.random.default_rng(3)
    A, B = rng.standard_normal((37, 5, 3)), rng.standard_normal((37, 3, 4))
    a, b = (Batch.wrap(X).copy(layout).to(host) for X in (A, B))
    with host.recording() as launches:
        c = gemm(a, b)
    (launch,) = launches
    assert np.allclose(c.array(), A @ B)
    assert np.array_equal(replay(launch, sanitizer)[-1], c.view.array)
