"""Vector updates of conjugate gradients, piece by piece: any count of entries, any address."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import femops
from femops.solvers.inner_products import Sums
from femops_kernels.compiled import CONVERGED
from femops_kernels.cuda.multigrid.updates import DeviceUpdates
from support.cuda import host_device as host_device_fixture
from support.cuda.host_device import HostDevice
from support.cuda.launches import ADDRESS, replay, require

device = host_device_fixture.device

COUNTS = [1, 2, 3, 5, 257, 7001]
KINDS = [("float64", "float64"), ("float64", "float32"), ("float32", "float32")]


def between(values: NDArray[Any], before: int) -> NDArray[Any]:
    """The same numbers, with others before and behind that nobody may use."""
    whole = np.full(before + len(values) + 40, np.nan, values.dtype)
    whole[before : before + len(values)] = values
    return whole[before : before + len(values)]


def intact(vector: NDArray[Any]) -> bool:
    """True if nothing was written beside a vector."""
    assert vector.base is not None
    return int(np.isnan(vector.base).sum()) == len(vector.base) - len(vector)


@pytest.mark.parametrize(("real", "other"), KINDS)
def test_directions(real: str, other: str, device: HostDevice) -> None:
    for count, before in product(COUNTS, (0, 1)):
        check_directions(count, real, other, before, device)


def check_directions(count: int, real: str, other: str, before: int, device: HostDevice) -> None:
    device.processors = 1  # so that some have several pieces for each thread
    rng, kind, there = np.random.default_rng(count), np.dtype(real), np.dtype(other)
    given = [rng.standard_normal(count).astype(real) for _ in range(4)]
    x, r, p, Ap = (between(values, before) for values in given)
    z = between(rng.standard_normal(count).astype(other), before)
    edges, near = np.array([0, count]), {"rtol": 1e-5 if there.itemsize == 4 else 1e-13}
    found = DeviceUpdates(device).directions(edges, lambda sums: sums[:, 0], kind, there)
    size = np.linalg.norm(given[1]) * np.linalg.norm(z)
    assert abs(found.inner(r, z) - given[1].astype(float) @ z) <= 1e-13 * size
    pair, size = found.inners(Ap, r, z), size + np.linalg.norm(given[3]) * np.linalg.norm(z)
    expected = given[3].astype(float) @ z, given[1].astype(float) @ z
    np.testing.assert_allclose(pair, expected, rtol=0, atol=1e-13 * size)
    norm, scale = found.move((x, r, p, Ap, z), 0.5, 0.25), abs(given[0]).max() + 1.0
    left = given[1] - kind.type(0.5) * given[3]
    np.testing.assert_allclose(x, given[0] + 0.5 * given[2], atol=near["rtol"] * scale, **near)
    np.testing.assert_allclose(r, left, atol=near["rtol"] * scale, **near)
    np.testing.assert_array_equal(z, (kind.type(0.25) * r).astype(other))
    assert norm == pytest.approx(float(r.astype(float) @ r), rel=1e-12)
    found.turn(p, z, -0.75, 2.0)
    turned = kind.type(-0.75) * given[2] + kind.type(2.0) * z.astype(real)
    np.testing.assert_allclose(p, turned, atol=near["rtol"] * 10.0, **near)
    assert all(map(intact, (x, r, p, Ap, z)))


def test_directions_are_within_their_vectors(device: HostDevice) -> None:
    require(ADDRESS)
    updates, kind = DeviceUpdates(device), np.dtype(np.float64)
    found = updates.directions(np.array([0, 7]), lambda sums: sums[:, 0], kind, kind)
    for before in (0, 1):
        with device.recording() as recorded:
            found.move(tuple(np.ones(before + 7)[before:] for _ in range(5)), 1.0, 1.0)
        replay(recorded[0], ADDRESS)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["apart", "merged", "ranks"])
@pytest.mark.parametrize(
    ("count", "dtype"),
    [(1, "float64"), (2, "float32"), (3, "float64"), (5, "float32"), (4001, "float64")],
)
def test_solves_of_any_size(count: int, dtype: str, kind: str, device: HostDevice) -> None:
    """A preconditioner's vector lies anywhere, among numbers that nobody may use."""
    device.processors = 1
    V: Any = femops.L2(femops.box((1,)), min(count, 50) - 1, device=device)
    if count > 50:
        V = femops.H1(femops.box((count - 1,)), 1, device=device)
    A = femops.mass(V, dtype=dtype)
    assert V.size == count
    b = np.random.default_rng(count).standard_normal(count).astype(dtype)
    far = 1.0 + np.arange(count) % 3  # from the best: there are iterations
    inverse = between((far / A.diagonal()).astype(dtype), 1)
    sums = Sums(V)
    sums.many = kind == "ranks"
    solve = A.compiled.conjugate_gradients(b, None, inverse, kind == "merged", sums)
    goal = (1e-5 if dtype == "float32" else 1e-12) * float(np.linalg.norm(b))
    for again in (False, True):
        if again:
            solve.restart(b, None)
        while solve.status == 0:
            solve.advance(goal, 300, solve.every or 8, show=False)
        solve.advance(goal, 300, 0)
        assert solve.status == CONVERGED
        assert np.linalg.norm(A.apply(solve.x) - b) <= 20.0 * goal
