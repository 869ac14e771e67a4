"""Weighted sums of vectors: by NumPy, compiled, on a device; beside sums in long double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from femops.spaces import weighted_sums
from femops.spaces.memory import HOST, DeviceMemory, Memory
from femops.spaces.weighted_sums import memory_of_array, sums_of
from femops_kernels.cpu import machine
from femops_kernels.cpu import weighted_sums as compiled
from support.cuda.guarded import guarded_device

PLACES = "numpy", "compiled", "device"


def place_of(place: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Memory, Callable[..., None]]:
    """Memory, and the function that sets vectors there, whatever their length."""
    if place == "device":
        memory: Memory = DeviceMemory(guarded_device())
    else:
        memory = HOST
    monkeypatch.setattr(weighted_sums, "_SHORT", 10**9 * (place == "numpy"))
    return memory, sums_of(memory, 1)


def random(rng: Any, n: int, dtype: str) -> Any:
    """Numbers over 40 orders of magnitude."""
    return (rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-20, 20, n)).astype(dtype)


def close(found: Any, terms: Any, dtype: str) -> bool:
    """Whether each number is a sum of terms, to round-off of the largest."""
    exact = np.sum(terms, axis=0, dtype=np.longdouble)
    bound = 8 * np.finfo(dtype).eps * np.abs(terms).sum(axis=0)
    return bool((abs(found - exact) <= bound).all())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("n", [1, 37, 20_011])
def test_sums_are_those_of_long_double(
    place: str, dtype: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to eight terms, with and without a mean, into a new vector or that of a term."""
    memory, set_sums = place_of(place, monkeypatch)
    rng = np.random.default_rng(n)
    for count, own, with_mean in ((1, 0, 0), (2, 2, 1), (3, 1, 0), (8, 0, 1)):
        given = [random(rng, n, dtype) for _ in range(count)]
        weights = [1.0, *rng.uniform(-3, 3, count - 1)][::-1]
        kept, share = random(rng, n, dtype), 0.3 * with_mean
        vectors = [memory.put(v.copy()) for v in given]
        out = vectors[own - 1] if own else memory.put(np.full(n, np.nan, dtype))
        terms = tuple((float(w), v) for w, v in zip(weights, vectors, strict=True))
        set_sums((out, terms, (share, memory.put(kept)) if with_mean else None))
        parts = [(1.0 - share) * w * v for w, v in zip(weights, given, strict=True)]
        rounded = [v * np.longdouble(1.0) for v in (*parts, share * kept)]
        assert close(memory.get(out), rounded, dtype)
        for k, (vector, before) in enumerate(zip(vectors, given, strict=True)):
            assert k == own - 1 or np.array_equal(memory.get(vector), before)


@pytest.mark.parametrize("place", PLACES)
def test_the_second_sum_reads_the_first(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, set_sums = place_of(place, monkeypatch)
    n, rng = 1001, np.random.default_rng(3)
    a, b, c = (rng.standard_normal(n) for _ in range(3))
    first, second, k = (memory.put(v.copy()) for v in (a, b, c))
    set_sums(
        (first, ((-0.5, first), (2.0, k)), None), (second, ((3.0, first), (1.0, second)), None)
    )
    assert close(memory.get(first), [-0.5 * a, 2.0 * c], "float64")
    assert close(memory.get(second), [-1.5 * a, 6.0 * c, b], "float64")
    set_sums((first, ((1.0, k),), None), (second, ((1.0, k), (0.5, k)), (0.25, first)))
    assert np.array_equal(memory.get(first), c)
    assert close(memory.get(second), [1.5 * 0.75 * c, 0.25 * c], "float64")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_compiled_sums_have_the_bits_of_numpy(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any number of threads, for vectors that begin anywhere in a cache line."""
    n, rng, found = 5003, np.random.default_rng(5), []
    given = random(rng, 3 * n + 64, dtype)
    monkeypatch.setattr(compiled, "PARALLEL_ENTRIES", 1)
    for place, threads, start in (("numpy", 1, 0), ("compiled", 1, 3), ("compiled", 3, 8)):
        _, set_sums = place_of(place, monkeypatch)
        monkeypatch.setattr(machine, "get_threads", lambda threads=threads: threads)
        room = np.zeros(3 * n + 64, dtype)
        a, b, c = (room[start + k * n : start + (k + 1) * n] for k in range(3))
        for k, vector in enumerate((a, b, c)):
            vector[:] = given[k * n : (k + 1) * n]
        terms = (0.1, a), (-0.7, b), (1.0, c)
        set_sums((b, ((0.3, c), (1.0 / 3.0, b)), None), (a, terms, (1.0 / 3.0, b)))
        found.append((a.copy(), b.copy(), c.copy()))
        assert not room[:start].any()
        assert not room[start + 3 * n :].any()
    for other in found[1:]:
        assert all(map(np.array_equal, other, found[0]))


@pytest.mark.parametrize("place", PLACES)
def test_terms_with_gaps(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another order, with gaps, or not aligned to their numbers; also of the vector itself."""
    memory, set_sums = place_of(place, monkeypatch)
    n = 99
    numbers = np.random.default_rng(6).standard_normal(2 * n)
    wide = memory.put(numbers)
    out = memory.put(numbers[:n].copy())
    set_sums((out, ((2.0, wide[::2]), (0.5, out[::-1])), (0.5, wide[: n - 1 : -1])))
    total = 2.0 * numbers[::2] + 0.5 * numbers[n - 1 :: -1]
    np.testing.assert_allclose(memory.get(out), 0.5 * (total + numbers[: n - 1 : -1]), rtol=1e-14)
    if place == "compiled":
        odd = np.zeros(8 * n + 1, np.uint8)[1:].view(np.float64)
        odd[:] = numbers[:n]
        set_sums((out, ((1.0, odd), (1.0, odd)), None))
        assert np.array_equal(out, 2.0 * numbers[:n])


def test_the_memory_of_an_array() -> None:
    device = guarded_device()
    assert memory_of_array(np.zeros(2)) is HOST
    assert memory_of_array(device.upload(np.zeros(2))).device is device
    before = device.host.launches
    first, second, k = (device.upload(np.ones(300)) for _ in range(3))
    sums = (first, ((2.0, k),), None), (second, ((1.0, first), (1.0, k)), (0.5, k))
    sums_of(DeviceMemory(device), 300)(*sums)
    assert device.host.launches == before + 1
    assert device.made == 0
