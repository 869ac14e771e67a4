"""Products of several members at once, if a member is shorter than a lane vector.

Members are real matrices by rows, one after the other in memory. So a lane vector may have numbers
of two members. Each vector of c is a sum of products of two vectors, whose slots are picked from
vectors of a and b.
"""

from __future__ import annotations

from math import lcm
from typing import Any

from llvmlite import ir

from femops_kernels.simd.tensor.access import Access
from femops_kernels.simd.tensor.products import Factor, Product
from femops_kernels.simd.values import WORD, as_word, build

_MOST = 16  # members at once, and lane vectors of an operand
_PICK = 3.2  # time of picking numbers out of a vector, by that of other instructions

Sizes = tuple[int, int, int]
"""Rows, columns and terms."""


def members_together(sizes: Sizes, width: int) -> int:
    """Number of members whose matrices fill whole lane vectors, or 0 if one by one is faster."""
    rows, columns, terms = sizes
    numbers = rows * terms, terms * columns, rows * columns
    count = max(lcm(one, width) // one for one in numbers)
    if count > _MOST or any(count * one % width for one in numbers):
        return 0
    if max(numbers) * count > _MOST * width:
        return 0
    vectors = numbers[2] * count // width
    picks = sum(
        len({at // width for at in places})
        for v in range(vectors)
        for term in range(terms)
        for places in _places(sizes, width, v, term)
    )
    alone = rows * terms + 2 * terms + 3 * rows  # multiply-adds, loads, rows put together
    return count if _PICK * picks < alone * count else 0


def _places(sizes: Sizes, width: int, vector: int, term: int) -> tuple[list[int], list[int]]:
    """Positions in a and b of the factors of one term, for each slot of a lane vector of c."""
    rows, columns, terms = sizes
    left, right = [], []
    for at in range(vector * width, (vector + 1) * width):
        member, entry = divmod(at, rows * columns)
        row, column = divmod(entry, columns)
        left.append((member * rows + row) * terms + term)
        right.append((member * terms + term) * columns + column)
    return left, right


def _picked(access: Access, vectors: list[Any], places: list[int]) -> Any:
    """Lane vector of the numbers at ``places``, which count through all the lane vectors."""
    width = len(places)
    value = None
    sources = list(dict.fromkeys(at // width for at in places))
    for first, second in zip(sources[::2], [*sources[1::2], sources[0]], strict=False):
        both = {first: 0, second: width}
        if value is None:
            slots = [both.get(at // width, 0) + at % width for at in places]
            value = access.picked(vectors[first], vectors[second], slots)
            continue
        for source in dict.fromkeys((first, second)):
            slots = [
                width + at % width if at // width == source else k for k, at in enumerate(places)
            ]
            value = access.picked(value, vectors[source], slots)
    return value


def multiply_together(
    product: Product, members: int, a: Any, b: Any, c: Any, alpha: Factor, beta: Factor
) -> None:
    """``multiply_together(PRODUCT, members, a, b, c, alpha, beta)``, as `multiply`."""
    access, width = Access(product.lane, 1), product.lane.width
    sizes = len(product.c_rows), len(product.c_columns), len(product.a_terms)
    rows, columns, terms = sizes
    at, bt, ct = (build().inttoptr(as_word(x), ir.IntType(8).as_pointer()) for x in (a, b, c))
    left = [access.lanes_at(at, WORD(v)) for v in range(members * rows * terms // width)]
    right = [access.lanes_at(bt, WORD(v)) for v in range(members * terms * columns // width)]
    for v in range(members * rows * columns // width):
        total = None
        for term in range(terms):
            first, second = _places(sizes, width, v, term)
            x, y = _picked(access, left, first), _picked(access, right, second)
            total = access.multiply_add(x, y, total)
        value = access.scaled(alpha, total)
        if product.reads:
            old = access.lanes_at(ct, WORD(v))
            value = build().fadd(value, access.scaled(beta, old))
        access.store_lanes(ct, WORD(v), value)


__all__ = ["multiply_together"]
