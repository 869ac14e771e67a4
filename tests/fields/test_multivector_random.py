"""Statements on many vectors, beside the same on NumPy's columns: in shared memory too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import femops
from femops.fields.multivector import MultiVector
from support.cuda.guarded import GuardedDevice
from support.cuda.host_device import HostDevice

Array = Any
KINDS = [np.float64, np.complex64]
RNG = np.random.default_rng(0)


def numbers(shape: tuple[int, ...], kind: Any) -> Array:
    """Of many orders of magnitude."""
    reach = 6 if np.dtype(kind).type(0).real.dtype == np.float32 else 100
    x = RNG.standard_normal(shape) * 10.0 ** RNG.uniform(-reach, reach, shape)
    if np.dtype(kind).kind == "c":
        x = x + 1j * RNG.standard_normal(shape) * 10.0 ** RNG.uniform(-reach, reach, shape)
    return x.astype(kind)


def indices(n: int) -> list[Any]:
    """Of columns: all, parts, single ones, in other orders, none."""
    listed = RNG.integers(-n, n, RNG.integers(1, n + 1))
    a, b = sorted(RNG.integers(0, n + 1, 2).tolist())
    slices = [slice(None), slice(None, None, -1), slice(a, b), slice(b, a, -2), slice(-n - 2, n, 3)]
    masks = [RNG.random(n) < 0.5, (RNG.random(n) < 0.5).tolist()]
    single = [int(RNG.integers(-n, n)), RNG.integers(0, n), np.array(RNG.integers(0, n))]
    return [*slices, listed, listed.tolist(), RNG.permutation(n), *masks, *single]


class Pair:
    """Many vectors where a space has them, and beside them NumPy's."""

    def __init__(self, space: Any, kind: Any, nvec: int, width: int) -> None:
        self.space, self.kind, self.memory = space, kind, space.memory
        self.x = numbers((space.size, nvec), kind)
        self.X = MultiVector.from_columns(space, self.memory.put(self.x.copy()), width)

    def of(self, given: Any) -> Array:
        """The numbers of an array, a number or vectors as they are now."""
        found = given.columns() if isinstance(given, MultiVector) else given
        return np.array(found if np.isscalar(found) else self.memory.get(found))

    def check(self) -> None:
        np.testing.assert_array_equal(self.of(self.X), self.x)
        used = self.X.nvec - (self.X.npanels - 1) * self.X.width
        assert not self.memory.get(self.X.panels[-1, :, used:]).any()

    def values(self, shape: tuple[int, ...]) -> list[Any]:
        """What vectors can be set to; most of it in the memory of these."""
        X, panel = self.X, self.X.panels[0]
        fresh = [numbers((), self.kind)[()], self.memory.put(numbers(shape, self.kind))]
        if len(shape) == 1:
            return [*fresh, X[-1], X[-1][::-1], panel[:, 0]]
        count = shape[1]
        found = [*fresh, X[:count], X.columns()[::-1, -count:], panel[0, 0, ...]]
        found += [X[RNG.integers(0, X.nvec, count)]]
        if count <= X.width:
            found += [panel[:, X.width - count :], panel[::-1, :count][:, ::-1]]
        if X.nvec == X.npanels * X.width:  # the same numbers as other vectors
            turned = X.panels.reshape(X.width, self.space.size, X.npanels)
            found.append(MultiVector(self.space, turned)[:count])
        return found


@pytest.fixture(scope="module", params=["host", "device"])
def space(request: Any) -> Any:
    device = GuardedDevice(HostDevice()) if request.param == "device" else None
    return femops.H1(femops.box((2, 1)), 2, device=device)


@pytest.fixture(params=KINDS)
def pairs(request: Any, space: Any) -> list[Pair]:
    return [Pair(space, request.param, *sizes) for sizes in ((1, 1), (6, 3), (7, 3), (5, 6))]


def test_vectors_are_read_and_written_by_any_index(pairs: list[Pair]) -> None:
    for pair in pairs:
        for which in indices(pair.X.nvec):
            old = pair.x[:, which]
            if not old.size:
                with pytest.raises(femops.errors.VectorError, match="no vector is chosen"):
                    pair.X[which]
                continue
            np.testing.assert_array_equal(pair.of(pair.X[which]), old)
            for k in RNG.permutation(len(pair.values(old.shape)))[:4]:
                value = pair.values(old.shape)[k]
                pair.x[:, which] = pair.of(value)
                pair.X[which] = value
                pair.check()


def add(pair: Pair, target: MultiVector, theirs: Array, other: MultiVector) -> None:
    if other.panels.shape != target.panels.shape:
        other = MultiVector.from_columns(pair.space, other.columns(), target.width)
    with np.errstate(all="ignore"):
        theirs += pair.of(other)
        target += other
        pair.check()
        theirs -= pair.of(other)
        target -= other
    pair.check()


def test_vectors_are_added_to_others_of_their_memory(pairs: list[Pair]) -> None:
    """All of them or some, in another order or place."""
    for pair in pairs:
        X, some = pair.X, slice(0, (pair.X.npanels - 1) * pair.X.width)
        for other in (X[::-1], X[:], X):
            add(pair, X, pair.x, other)
        if X.npanels > 1:
            add(pair, X[some], pair.x[:, some], X[some][::-1])
        if X.npanels > 1 and X.nvec == X.npanels * X.width:
            add(pair, X[some], pair.x[:, some], MultiVector(pair.space, X.panels[1:]))


def test_vectors_are_scaled_by_any_number(pairs: list[Pair]) -> None:
    for pair in pairs:
        for factor in (2.0, -0.5, 3, np.float32(1.5), np.inf, np.nan, 0.0):
            pair.x[:] = fresh = numbers(pair.x.shape, pair.kind)
            pair.X[:] = pair.memory.put(fresh)
            with np.errstate(all="ignore"):
                pair.x *= factor
                pair.X *= factor
                pair.check()
                pair.x /= factor
                pair.X /= factor
            pair.check()


def test_vectors_are_combined_by_a_matrix_in_their_memory(pairs: list[Pair]) -> None:
    for pair in pairs:
        pair.x[:] = small = RNG.integers(-3, 4, pair.x.shape)
        pair.X[:] = pair.memory.put(small.astype(pair.kind))
        n, panel = pair.X.nvec, pair.X.panels[0]
        matrix = RNG.integers(-2, 3, (n, n)).astype(pair.kind)
        if pair.memory.scipy and n <= min(panel.shape):
            matrix = panel[:n, :n]
        np.testing.assert_array_equal(pair.of(pair.X @ matrix), pair.x @ matrix)
        pair.x[:] = pair.x @ matrix
        pair.X @= matrix
        pair.check()
