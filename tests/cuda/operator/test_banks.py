"""Strides of work arrays, and how often threads meet in a bank of shared memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from femops_kernels.cuda.operator.kernel import Lines, Strides, strides_for

ODD_ROWS = {  # what strides are by rows of an odd length, and elements without gaps
    2: lambda q: Strides(1, q | 1, 0, 0),
    3: lambda q: Strides(1, q | 1, q * (q | 1), 0),
}


def block(
    dim: int,
    p: int,
    gradient: bool,
    itemsize: int = 8,
    arrays: int | None = None,
    identity: bool = False,
) -> Lines:
    """About 128 threads, with p + 2 points; p + 1 if these are the nodes."""
    q = p + 2 - identity
    if arrays is None:
        arrays = 2 if gradient and dim == 3 else 1
    elements = max(1, 128 // q ** (dim - 1))
    return Lines(dim, q, p + 1, gradient, arrays, elements, itemsize, identity)


def naive(lines: Lines, strides: Strides) -> int:
    """The same as `Lines.rows`, number by number."""
    q, p, banks = lines.q1d, lines.p1d, 128 // lines.itemsize
    threads = range(lines.elements * q ** (lines.dim - 1))
    slab = lines.arrays * q * strides.x + strides.more

    def busy(first_stride: int, second_stride: int, firsts: int, seconds: int) -> int:
        total = 0
        for begin in range(0, len(threads), banks):
            there: Counter[int] = Counter()
            for t in threads[begin : begin + banks]:
                slot, line = divmod(t, q ** (lines.dim - 1))
                second, first = divmod(line, q)
                if first < firsts and second < seconds:
                    at = slot * slab + first * first_stride + second * second_stride
                    there[at % banks] += 1
            total += max(there.values(), default=0)
        return total

    along = {"x": (strides.y, strides.z), "y": (strides.x, strides.z), "z": (strides.x, strides.y)}
    total = 2 * p * busy(*along["x"], q, q)
    if lines.dim == 3:
        total += 2 * q * busy(*along["z"], p, p)
        if not lines.identity:
            total += 2 * (p + q) * busy(*along["y"], p, q)
    else:
        total += 2 * q * busy(*along["y"], p, q)
    if lines.gradient:
        total += (6 if lines.identity else 7) * q * busy(*along["x"], q, q)
        total += 4 * q * busy(*along["y"], q, q)
        total += 4 * q * busy(*along["z"], q, q) * (lines.dim == 3)
    return total


def test_rows_are_counted() -> None:
    """With any strides."""
    orders = ((1, 8, True), (2, 4, False), (5, 8, False), (6, 8, True))
    for dim, gradient, (p, itemsize, identity) in product((2, 3), (False, True), orders):
        lines = block(dim, p, gradient, itemsize, identity=identity)
        q = lines.q1d
        tried = ODD_ROWS[dim](q), Strides(q**2 + 3, 1, q * (dim == 3), p)
        assert lines.rows(*tried).tolist() == [naive(lines, strides) for strides in tried]


@pytest.mark.sample(2)
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("gradient", [False, True])
def test_no_worse_than_odd_rows(dim: int, gradient: bool) -> None:
    ratios = []
    orders = ((1, 8), (3, 4), (4, 8), (6, 4), (8, 8), (9, 4))
    for (p, itemsize), identity in zip(orders, 3 * [False, True], strict=True):
        lines = block(dim, p, gradient, itemsize, identity=identity)
        plain = ODD_ROWS[dim](lines.q1d)
        # where rows are the fastest, what `rows` takes for the end of an element is not it
        volume = lines.q1d * (plain.y if dim == 2 else plain.z)
        gap = lines.arrays * (volume - lines.q1d * plain.x)
        ratios.append(lines.rows(strides_for(lines)) / lines.rows(replace(plain, more=gap)))
    assert max(ratios) <= 1
    assert np.mean(ratios) < 0.9


def test_a_mass_in_3d_meets_few_conflicts() -> None:
    for p in (1, 3, 5, 7, 8):
        lines = block(3, p, gradient=False)
        q = lines.q1d
        halves = -(-lines.elements * q * q // 16)
        least = 2 * halves * (lines.p1d + (lines.p1d + q) + q)  # if all threads worked
        assert lines.rows(strides_for(lines)) <= 1.35 * least, p


def test_numbers_of_a_block_lie_apart() -> None:
    for dim, p in ((2, 3), (3, 4), (3, 7)):
        lines = block(dim, p, gradient=True)
        s, q = strides_for(lines), lines.q1d
        slab = lines.arrays * q * s.x + s.more
        x, y = np.arange(q) * s.x, np.arange(q) * s.y
        z = np.arange(q) * s.z * (dim == 3)
        begin = np.arange(lines.elements * lines.arrays)
        begin = begin // lines.arrays * slab + begin % lines.arrays * q * s.x
        places = np.add.outer(np.add.outer(begin, x), np.add.outer(y, z[: q if dim == 3 else 1]))
        assert len(np.unique(places)) == places.size
        assert places.max() < lines.elements * slab


def test_large_elements_take_no_more_room() -> None:
    """Where nothing is spare, as much as rows of an odd length do."""
    lines = block(3, 9, gradient=True, arrays=6)
    assert strides_for(lines).x <= 11 * 11
    assert strides_for(block(3, 9, gradient=True)).x > 11 * 11
