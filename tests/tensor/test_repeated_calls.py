"""Calls with arrays of the same types, shapes and strides as earlier ones, which are remembered."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from femops.errors import TensorError
from femops.tensor import Batch, Index, Interleaved, Strided, einsum, gemm
from femops.tensor.known import KNOWN
from femops_kernels.cpu import machine
from femops_kernels.cpu.tensor.arrays import ArrayCall

# the same examples each time: what they compile is found again
FEW = settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
TYPES = ("float64", "float32", "complex128", "complex64")


@pytest.fixture
def runs(monkeypatch):
    """Results of remembered calls: 1 for each that ran, 0 for each that was looked at again."""
    found, run = [], ArrayCall.run

    def counted(self, a, b, c):
        found.append(run(self, a, b, c))
        return found[-1]

    monkeypatch.setattr(ArrayCall, "run", counted)
    KNOWN.clear()
    return found


def numbers(rng, shape, dtype="float64"):
    values = rng.standard_normal((2, *shape))
    return (values[0] + (1j * values[1] if dtype[0] == "c" else 0)).astype(dtype)


@FEW
@given(st.data())
def test_results_are_those_of_the_first_call(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype, members = data.draw(st.sampled_from(TYPES)), data.draw(st.integers(1, 9))
    m, n, k = data.draw(st.sampled_from([(2, 3, 4), (5, 1, 6), (3, 6, 1)]))
    step = data.draw(st.sampled_from([1, -1, 2]))
    turned, shared = data.draw(st.booleans()), data.draw(st.booleans())

    def arrays():
        a = numbers(rng, (abs(step) * members, m, k), dtype)[::step]
        b = numbers(rng, (k, n) if shared else (members, k, n), dtype)
        c = numbers(rng, (members, m, 2 * n), dtype)[:, :, ::2]
        return np.asfortranarray(a) if turned else a, b, c

    factors = data.draw(st.sampled_from([(1.0, 0.0), (-1, 1), (2.5, -0.5), (0.0, 1.0)]))
    for _ in range(3):
        a, b, c = arrays()
        expected = factors[0] * (a @ b) + factors[1] * c
        for call in (
            lambda a, b, c: gemm(a, b, c, alpha=factors[0], beta=factors[1]),
            lambda a, b, c: einsum("ik,kj->ij", a, b, out=c, alpha=factors[0], beta=factors[1]),
        ):
            out = c.copy()
            assert call(a, b, out) is out
            eps = 50 * np.finfo(dtype).eps
            assert np.abs(out - expected).max() <= eps * max(1, np.abs(expected).max())
        assert np.abs(gemm(a, b) - a @ b).max() <= eps * max(1, np.abs(a @ b).max())
    assert any(isinstance(one, ArrayCall) for one in KNOWN.values())


LAYOUTS = [
    *(Strided("F"), Interleaved(2)),
    *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (Strided(), Interleaved())),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_and_indexed_tensors(runs, layout):
    rng = np.random.default_rng(0)
    i, j, k, part = Index("i"), Index("j"), Index("k"), Index("part", 1, 3)
    c = Batch((3, 4), 11, layout=layout)
    for turn in range(3):
        x, y = numbers(rng, (11, 3, 5)), numbers(rng, (11, 5, 4))
        a, b = (Batch.wrap(one).copy(layout) for one in (x, y))
        gemm(a, b, c)
        assert np.allclose(c.numpy(), x @ y)
        c[i, j] -= a[i, k] * b[k, j]
        assert np.allclose(c.numpy(), 0.0)
        c[i, part] += 2.0 * a[i, k] * b[k, part]
        assert np.allclose(c.numpy()[:, :, 1:3], 2.0 * (x @ y)[:, :, 1:3])
        assert not c.numpy()[:, :, 3].any()
        assert sum(runs) == 3 * turn
    assert Batch.wrap(x).lanes == 1


def test_large_groups_of_complex_numbers():
    """A group of 16 has more real numbers than lanes have slots."""
    x, y, z = numbers(np.random.default_rng(0), (3, 37, 3, 3), "complex64")
    a, b, c = (Batch.wrap(one).copy(Interleaved(16)) for one in (x, y, z))
    for _ in range(2):
        c.assign(z)
        gemm(a, y, c, alpha=1j, beta=1.0)
        assert np.allclose(c.numpy(), z + 1j * (x @ y), atol=1e-5)
    assert np.allclose(gemm(a, b).numpy(), x @ y, atol=1e-5)
    gemm(a[:, :, :2], b[:, 1:], c, beta=0.0)
    assert np.allclose(c.numpy(), x[:, :, :2] @ y[:, 1:], atol=1e-5)


def test_arrays_are_looked_at_each_time(runs):
    rng = np.random.default_rng(1)
    a, b, block = (numbers(rng, (4, 3, 3)) for _ in range(3))
    out = np.empty((4, 3, 3))
    gemm(a, b, out)
    gemm(a, b, out)
    assert runs == [1]
    frozen = out.copy()
    frozen.flags.writeable = False
    shifted = np.frombuffer(bytearray(8 * 36 + 8), np.uint8)[4 : 4 + 8 * 36].view(np.float64)
    shifted = shifted.reshape(4, 3, 3)
    assert shifted.ctypes.data % 8
    near = np.concatenate([block.ravel(), np.zeros(8)])
    for wrong, message in (
        (lambda: gemm(a, b, a), "overlaps"),
        (lambda: gemm(near[:36].reshape(4, 3, 3), b, near[8:].reshape(4, 3, 3)), "overlaps"),
        (lambda: gemm(a, b, frozen), "can't be written"),
        (lambda: gemm(shifted, b, out), "whole numbers apart"),
        (lambda: gemm(a, b, shifted), "whole numbers apart"),
        (lambda: gemm(a, b, out, alpha=True), "alpha is True"),
        (lambda: gemm(a, b, out, transpose_a=0), "transpose_a"),
        (lambda: gemm(a, b, out, alpha=[1.0]), "alpha is a"),
        (lambda: gemm(a, b, out, alpha=1.0 + 1e-3j), "give a real one"),
        (lambda: gemm(a.astype(">f8"), b, out), "convert it"),
        (lambda: gemm(a, b, out.astype("f4")), "one type"),
    ):
        with pytest.raises(TensorError, match=message):
            wrong()
    a[0, 0, 0] = np.nan
    gemm(a, b, out, alpha=1.0)
    assert np.isnan(out[0, 0]).all()
    assert np.isfinite(out[1:]).all()
    assert np.copysign(1.0, gemm(0 * b, b, alpha=-0.0)[0, 0, 0]) == np.copysign(
        1.0, (-0.0 * (0 * b @ b))[0, 0, 0]
    )


def test_interlocked_arrays_and_subclasses_are_looked_at(runs):
    rng = np.random.default_rng(2)
    both, b = numbers(rng, (4, 3, 6)), numbers(rng, (4, 3, 3))
    for _ in range(3):
        gemm(both[:, :, ::2], b, both[:, :, 1::2])  # no overlap
        assert np.allclose(both[:, :, 1::2], both[:, :, ::2] @ b)
    a = np.ones((20, 3, 3)).view(np.recarray)
    for other in (a, np.asarray(a)) * 2:
        assert np.array_equal(gemm(a, other)[7], np.full((3, 3), 3.0))
    assert runs == [0, 0]


def test_large_calls_are_for_a_number_of_threads(runs):
    rng, before = np.random.default_rng(4), machine.get_threads()
    a = numbers(rng, (20_000, 3, 3))
    b = a.swapaxes(1, 2)  # it is copied by the kernel, for each thread
    try:
        for threads in (1, 1, 2, 2, 1):
            machine.set_threads(threads)
            assert np.allclose(gemm(a, b), a @ b)
    finally:
        machine.set_threads(before)
    assert runs == [1, 0, 1, 0]


def test_copies_of_batches_have_memory_of_their_own():
    i, j, k = (Index(name) for name in "ijk")
    ones = Batch.wrap(np.ones((5, 3, 3)))
    batch = ones.copy()
    batch[i, j] = ones[i, k] * ones[k, j]  # a part of it is remembered
    for made in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        made[i, j] += ones[i, k] * ones[k, j]
        assert np.array_equal(made.numpy(), np.full((5, 3, 3), 6.0))
        assert np.array_equal(batch.numpy(), np.full((5, 3, 3), 3.0))


def test_threads_may_make_one_call(runs):
    rng = np.random.default_rng(3)
    a = [numbers(rng, (50, 8, 8)) for _ in range(8)]
    b = np.ascontiguousarray(a[0].swapaxes(1, 2)).swapaxes(1, 2)  # it is copied by the kernel
    gemm(a[0], b)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: [gemm(one, b) for _ in range(50)][-1], a))
    assert all(np.allclose(one, other @ b) for one, other in zip(found, a, strict=True))
    assert sum(runs) == 400


@pytest.mark.parametrize(
    ("words", "shapes"),
    [
        ("lnm,ilj->imjn", [(4, 2, 3), (7, 3, 4, 3)]),
        ("ki,kj,kl->ilj", [(4, 3), (4, 3), (7, 4, 4)]),
        ("lm,ln,ilj->imjn", [(4, 3), (4, 2), (7, 3, 4, 3)]),
        ("ij,jk,kl,lm", [(7, 2, 3), (3, 4), (7, 4, 5), (5, 6)]),
        ("ij,ij,ij->", [(7, 2, 3), (2, 3), (7, 2, 3)]),
        ("ii,ij,j->i", [(7, 3, 3), (3, 3), (3,)]),
        ("a,b,c->cba", [(2,), (3,), (4,)]),
    ],
)
def test_several_operands(runs, words, shapes):
    rng = np.random.default_rng(0)
    named = ",".join(
        "z" * (len(shape) > len(word)) + word
        for shape, word in zip(shapes, words.split("->")[0].split(","), strict=True)
    )
    batch = "z" * ("z" in named)
    result = words.split("->")[1] if "->" in words else "im"
    for turn in range(3):
        operands = [numbers(rng, shape) for shape in shapes]
        expected = np.einsum(f"{named}->{batch}{result}", *operands)
        found = einsum(words, *operands)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-13 * max(1, np.abs(expected).max())
        out = np.ones_like(expected)
        assert einsum(words, *operands, out=out, alpha=2.0, beta=-1.0) is out
        assert np.abs(out - (2 * expected - 1)).max() <= 1e-13 * max(1, np.abs(expected).max())
        assert bool(sum(runs)) == bool(turn)
    with pytest.raises(TensorError, match="long in one operand"):
        einsum("ij,jk,kl->il", *numbers(rng, (3, 9, 2, 3)))
    with pytest.raises(TensorError, match="without out"):
        einsum(words, *operands, beta=1.0)


def test_results_of_several_operands_that_overlap_one(runs):
    memory, out = numbers(np.random.default_rng(1), (3, 5, 4, 4)), np.zeros((5, 4, 4))
    for _ in range(2):
        einsum("ij,jk,kl->il", *memory, out=out)
        for one in memory:
            with pytest.raises(TensorError, match="overlaps"):
                einsum("ij,jk,kl->il", *memory, out=one)
