"""Random statements on many vectors, beside the same on NumPy's columns: shared memory too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops.fields.multivector import MultiVector
from support.cuda.guarded import GuardedDevice
from support.cuda.host_device import HostDevice

Array = Any
STATEMENTS = 60
KINDS = [np.float64, np.float32, np.complex128, np.complex64]
FACTORS = [2.0, -0.5, 3, np.float32(1.5), np.inf, np.nan, 0.0]


def numbers(random: Any, shape: tuple[int, ...], kind: Any) -> Array:
    """Of many orders of magnitude."""
    reach = 6 if np.dtype(kind).itemsize // (1 + (np.dtype(kind).kind == "c")) == 4 else 100
    x = random.standard_normal(shape) * 10.0 ** random.uniform(-reach, reach, shape)
    if np.dtype(kind).kind == "c":
        x = x + 1j * random.standard_normal(shape) * 10.0 ** random.uniform(-reach, reach, shape)
    return x.astype(kind)


def index(random: Any, n: int, count: int | None = None) -> Any:
    """Of columns; of so many, if that is given."""
    a, b = (int(v) for v in random.integers(-n - 2, n + 3, 2))
    step = int(random.choice([1, 1, 1, -1, 2, -3]))
    listed = random.integers(-n, n, random.integers(0, n + 1) if count is None else count)
    every: list[Any] = [
        slice(None),
        slice(None, None, -1),
        slice(a, b, step),
        slice(int(random.integers(0, n)), None),
        listed,
        listed.tolist(),
        random.permutation(n),
        random.random(n) < 0.5,
        (random.random(n) < 0.5).tolist(),
    ]
    single = [int(random.integers(-n, n)), random.integers(0, n), np.array(random.integers(0, n))]
    if count is None:
        return every[random.integers(len(every))] if random.random() < 0.75 else single[a % 3]
    fitting = [i for i in every if len(np.arange(n)[i]) == count]
    return fitting[random.integers(len(fitting))]


class Pair:
    """Many vectors where a space has them, and beside them NumPy's."""

    def __init__(self, random: Any, space: Any, kind: Any) -> None:
        self.random, self.space, self.kind, self.memory = random, space, kind, space.memory
        nvec, width = int(random.integers(1, 14)), int(random.integers(1, 7))
        self.x = numbers(random, (space.size, nvec), kind)
        given = self.memory.put(self.x.copy())
        self.X = MultiVector.from_columns(space, given, None if random.random() < 0.3 else width)

    @property
    def nvec(self) -> int:
        return self.X.nvec

    def of(self, given: Any) -> Array:
        """The numbers of an array, a number or vectors as they are now."""
        found = given.columns() if isinstance(given, MultiVector) else given
        return np.array(found if np.isscalar(found) else self.memory.get(found))

    def again(self) -> MultiVector:
        """Other vectors in the same memory, or some of it."""
        panels, random = self.X.panels, self.random
        found = [self.X, self.X[:]]
        begin = int(random.integers(self.X.npanels))
        end = int(random.integers(begin, self.X.npanels)) + 1
        if end < self.X.npanels or self.nvec == panels.shape[0] * panels.shape[2]:
            found.append(MultiVector(self.space, panels[begin:end]))
        if self.nvec == panels.shape[0] * panels.shape[2]:  # the same numbers as other vectors
            turned = panels.reshape(panels.shape[2], self.space.size, panels.shape[0])
            found.append(MultiVector(self.space, turned))
        return found[random.integers(len(found))]

    def value(self, count: int | None) -> Any:
        """What so many vectors can be set to, or one; most of it in the memory of these."""
        random, space, kind = self.random, self.space, self.kind
        shape = (space.size,) if count is None else (space.size, count)
        panel = self.X.panels[random.integers(self.X.npanels)]
        found: list[Any] = [
            numbers(random, (), kind)[()],
            self.memory.put(numbers(random, shape, kind)),
        ]
        turn = slice(None, None, int(random.choice([1, -1])))
        if count is None:
            column = int(random.integers(self.nvec))
            found += [self.X[column], self.X[column][::-1], panel[:, 0]]
        elif count:
            other = self.again()
            found += [self.X[index(random, self.nvec, count)], panel[0, 0, ...]]
            if count <= other.nvec:
                start = int(random.integers(other.nvec - count + 1))
                found += 2 * [
                    other[start : start + count],
                    other.columns()[turn, start : start + count],
                ]
            if count <= self.X.width:
                start = int(random.integers(self.X.width - count + 1))
                found += 2 * [panel[turn, start : start + count][:, turn]]
        return found[random.integers(len(found))]


def read(pair: Pair) -> None:
    which = index(pair.random, pair.nvec)
    expected = pair.x[:, which]
    if expected.size:
        same(pair.of(pair.X[which]), expected)
    else:
        with pytest.raises(femops.errors.VectorError, match="no vector is chosen"):
            pair.X[which]


def write(pair: Pair) -> None:
    which = index(pair.random, pair.nvec)
    old = pair.x[:, which]
    value = pair.value(None if old.ndim == 1 else old.shape[1])
    pair.x[:, which] = pair.of(value)
    pair.X[which] = value


def add(pair: Pair) -> None:
    """Vectors of the same memory, in another order or place, to all or some of them."""
    random, target, theirs = pair.random, pair.X, pair.x
    if target.npanels > 1 and random.random() < 0.4:
        some = slice(0, (target.npanels - 1) * target.width)
        target, theirs = target[some], theirs[:, some]
    options = [
        target,
        target[::-1],
        target[:],
        MultiVector.from_columns(pair.space, pair.memory.put(pair.of(target[::-1])), target.width),
    ]
    if target.npanels < pair.X.npanels:
        shifted = pair.X.panels[1:]
        if target.nvec == shifted.shape[0] * shifted.shape[2]:
            options = [MultiVector(pair.space, shifted)]
    other = options[random.integers(len(options))]
    if other.panels.shape != target.panels.shape:
        other = MultiVector.from_columns(pair.space, other.columns(), target.width)
    value = pair.of(other)
    if random.random() < 0.5:
        theirs += value
        target += other
    else:
        theirs -= value
        target -= other


def scale(pair: Pair) -> None:
    factor: Any = FACTORS[pair.random.integers(len(FACTORS))]
    if pair.random.random() < 0.5:
        pair.x *= factor
        pair.X *= factor
    else:
        pair.x /= factor
        pair.X /= factor
    if not np.isfinite(pair.x).all() or not pair.x.all():
        pair.x[:] = fresh = numbers(pair.random, pair.x.shape, pair.kind)
        pair.X[:] = pair.memory.put(fresh)


def combine(pair: Pair) -> None:
    """By a matrix of whole numbers, which may be in the memory of the vectors."""
    pair.x[:] = small = pair.random.integers(-3, 4, pair.x.shape)
    pair.X[:] = pair.memory.put(small.astype(pair.kind))
    n, panel = pair.nvec, pair.X.panels[0]
    matrix = pair.random.integers(-2, 3, (n, n)).astype(pair.kind)
    if pair.memory.scipy and n <= min(panel.shape):
        matrix = panel[:n, :n]
    same(pair.of(pair.X @ matrix), pair.x @ matrix)
    pair.x[:] = pair.x @ matrix
    pair.X @= matrix


def same(a: Array, b: Array) -> None:
    np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module", params=["host", "device"])
def space(request: Any) -> Any:
    device = GuardedDevice(HostDevice()) if request.param == "device" else None
    return femops.H1(femops.box((2, 1)), 2, device=device)


@pytest.mark.parametrize("kind", KINDS)
def test_statements(space: Any, kind: Any) -> None:
    kinds: list[Callable[[Pair], None]] = [read, write, write, add, scale, combine]
    for seed in range(STATEMENTS // 6):
        random = np.random.default_rng((seed, np.dtype(kind).num))
        pair = Pair(random, space, kind)
        for _ in range(6):
            with np.errstate(all="ignore"):
                kinds[random.integers(len(kinds))](pair)
            same(pair.of(pair.X), pair.x)
            used = pair.nvec - (pair.X.npanels - 1) * pair.X.width
            assert not pair.memory.get(pair.X.panels[-1, :, used:]).any(), seed
