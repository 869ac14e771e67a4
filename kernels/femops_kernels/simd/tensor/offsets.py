"""Offsets of a row, a column or a sum's terms: numbers known when a kernel is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.values import WORD, build

Offsets = range | tuple[int, ...]
"""Offsets in numbers; a range where each is as far from the one before."""

_SHORTEST = 3  # columns of a run, on average, that has lane vectors of its own


def offsets(values: Iterable[int]) -> Offsets:
    """Return offsets as a range if they are equidistant, else as a tuple."""
    whole = tuple(int(value) for value in values)
    steps = {b - a for a, b in pairwise(whole)} or {1}
    if len(steps) != 1 or 0 in steps:
        return whole
    (step,) = steps
    return range(whole[0], whole[-1] + (1 if step > 0 else -1), step)


def pieces(columns: Offsets, most: int) -> list[tuple[int, int]]:
    """First column and number of columns of each lane vector of a matrix, at most ``most``.

    A vector is one run in memory, unless runs are so short that it is faster to collect columns.
    """
    runs = [0, *(k for k in range(1, len(columns)) if columns[k] != columns[k - 1] + 1)]
    edges = [*(runs if _SHORTEST * len(runs) <= len(columns) else [0]), len(columns)]
    return [
        (first, min(most, end - first))
        for begin, end in pairwise(edges)
        for first in range(begin, end, most)
    ]


def consecutive(columns: Offsets, vectors: Iterable[tuple[int, int]]) -> bool:
    """True if the columns of each vector follow each other in memory."""
    return all(
        columns[first + k] == columns[first] + k for first, count in vectors for k in range(count)
    )


def offsets_at(values: Offsets, first: Any, count: int) -> list[Any]:
    """Emit ``count`` offsets from number ``first`` on, an int or a value of LLVM."""
    if isinstance(first, int):
        return [WORD(value) for value in values[first : first + count]]
    if isinstance(values, range):
        start = build().add(build().mul(first, WORD(values.step)), WORD(values.start))
        return [build().add(start, WORD(i * values.step)) for i in range(count)]
    table = build().gep(word_table(values), [first])
    return [build().load(build().gep(table, [WORD(i)])) for i in range(count)]
