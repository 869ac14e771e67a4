"""Functions that are written into a kernel by running them: as Python, or refused."""

from itertools import product

import numpy as np
import pytest
from numba import njit

from femops_kernels.errors import KernelError
from femops_kernels.simd.compiling import carrying, inner
from femops_kernels.simd.lanes import Lane, get, put, word
from femops_kernels.simd.tracing import traced, when

REAL = Lane(2, "float64")
SIZE = 64
OFFSET = 3


@inner
def shifted(pair, k):
    """Numbers and tuples of an inner function, traced where it is called from a traced one."""
    first, second = pair
    return first + k * OFFSET, (second - k,)


def mixed(out, n, pair):
    """Loops in loops, ranges of three bounds, division of negative numbers, tuples."""
    for i in range(n):
        for j in range(i, n, 2):
            a, rest = shifted(pair, i)
            put(REAL, out, i * n + j, 0.5 * get(REAL, out, i * n + j) + (a - 5 * j) // 3 - rest[0])
        for _ in when(i % 2 != 0):
            put(REAL, out, n * n + 1, 1.5 * i)
    for i in range(2, 2):
        put(REAL, out, i, -1.0)
    for i in range(1):
        put(REAL, out, n * n + i, -2.0)


def naive(out, n, pair):
    """The same on an array."""
    for i in range(n):
        for j in range(i, n, 2):
            a, rest = pair[0] + i * OFFSET, pair[1] - i
            out[i * n + j] = 0.5 * out[i * n + j] + (a - 5 * j) // 3 - rest
        if i % 2:
            out[n * n + 1] = 1.5 * i
    out[n * n] = -2.0


@traced
def outer(out, n, pair):
    """A traced function that calls another, twice."""
    written(out, n, pair)
    written(out, n, (pair[1], 7))


written = traced(mixed)


def test_as_python():
    @njit
    def run(address, n, first):
        outer(address, n, (first, n))

    for n in (0, 1, 2, 7):
        out = np.arange(SIZE, dtype=np.float64)
        expected = out.copy()
        run(out.ctypes.data, n, -11)
        naive(expected, n, (-11, n))
        naive(expected, n, (n, 7))
        assert np.array_equal(out, expected), n


@carrying
def total_of(out, n):
    """The sum of n numbers, carried through a loop."""
    total = 0.0
    for i in range(n):
        total += get(REAL, out, i)
    return total


@traced
def conditions(out, n, factor):
    """Conditions in conditions, the lesser of two, real arguments, a function that carries."""
    put(REAL, out, n, factor * total_of(out, n))
    for i in range(min(n, 4)):
        for _ in when(i >= 1):
            for _ in when(factor > 0.0):
                put(REAL, out, i, factor)
        for _ in when(OFFSET > 3):
            put(REAL, out, i, -1.0)


def test_conditions():
    @njit
    def run(address, n, factor):
        conditions(address, n, factor)

    for n, factor in product((1, 3, 9), (2.0, -2.0, 0.0, np.nan)):
        out = np.arange(SIZE, dtype=np.float64)
        expected = out.copy()
        expected[n] = factor * sum(range(n))
        expected[1 : min(n, 4)] = factor if factor > 0.0 else expected[1 : min(n, 4)]
        run(out.ctypes.data, n, factor)
        assert np.array_equal(out, expected, equal_nan=True), (n, factor)


def leaves(out, n):
    """Leaves a loop."""
    for i in range(n):
        put(REAL, out, i, 1.0)
        break


def decides(out, n):
    """Looks at what is known only when it runs."""
    if word(out, n):
        put(REAL, out, 0, 1.0)


def compares(out, n):
    """The same by a comparison."""
    for i in range(n):
        if i == 0:
            put(REAL, out, i, 1.0)


def carries(out, n):
    """Adds up in a variable."""
    total = 0.0
    for i in range(n):
        total = total + get(REAL, out, i)
    put(REAL, out, 0, total)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (leaves, KernelError, "left a loop early"),
        (decides, KernelError, "can't decide by a number of the kernel"),
        (compares, KernelError, "can't decide by a number of the kernel"),
        (carries, RuntimeError, "dominate"),
    ],
)
def test_refused(function, error, message):
    refused = traced(function)

    @njit
    def run(address, n):
        refused(address, n)

    with pytest.raises(error, match=message):
        run(np.zeros(SIZE).ctypes.data, 3)
