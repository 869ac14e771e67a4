"""Offsets of a row, a column or a sum's terms: numbers known when a kernel is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from llvmlite import ir

from femops_kernels.simd.number_tables import word_table

WORD = ir.IntType(64)

Offsets = range | tuple[int, ...]
"""Offsets in numbers; a range where each is as far from the one before."""


def offsets(values: Iterable[int]) -> Offsets:
    """The shortest way to write offsets down."""
    whole = tuple(int(value) for value in values)
    steps = {b - a for a, b in pairwise(whole)} or {1}
    if len(steps) != 1 or 0 in steps:
        return whole
    (step,) = steps
    return range(whole[0], whole[-1] + (1 if step > 0 else -1), step)


def offsets_at(builder: Any, values: Offsets, first: Any, count: int) -> list[Any]:
    """Emit the offsets ``first`` to ``first + count``; ``first`` may be known only when it runs."""
    if isinstance(first, int):
        return [WORD(value) for value in values[first : first + count]]
    if isinstance(values, range):
        start = builder.add(builder.mul(first, WORD(values.step)), WORD(values.start))
        return [builder.add(start, WORD(i * values.step)) for i in range(count)]
    table = builder.gep(word_table(builder, values), [first])
    return [builder.load(builder.gep(table, [WORD(i)])) for i in range(count)]
