"""Launches of products as compiled code has them: words in memory, and calls by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from femops_kernels.simd.lanes import address_of
from femops_kernels.simd.values import FLOAT64, WORD, Traced, as_word, build, call_address

# Positions in a launch, in words: six strides in bytes, members, products of each, members of a
# task, memory for copies of b, and the real and imaginary parts of alpha and beta.
STRIDES, MEMBERS, PRODUCTS, SIZE, COPIES, ALPHA, BETA = 0, 6, 7, 8, 9, 10, 12
LAUNCH_WORDS = 14

# Positions in a call: number of launches, lowest and highest byte of a, b and c from their first
# entry, then for each launch the address of its function, three offsets in bytes, and its words.
COUNT, ENDS, FIRST_LAUNCH = 0, 1, 7
FUNCTION, BEGIN, LAUNCH = 0, 1, 4
CALL_WORDS = LAUNCH + LAUNCH_WORDS


_PRODUCTS = ir.FunctionType(ir.VoidType(), [WORD] * 5)


def factor(base: Any, k: Any) -> tuple[Traced, Traced]:
    """``factor(address, k)``: words k and k + 1, which are real numbers."""
    places = (address_of(base, at, 8, FLOAT64.llvm) for at in (k, k + 1))
    first, second = (Traced(FLOAT64, build().load(place)) for place in places)
    return first, second


def call_products(function: Any, team: Any, a: Any, b: Any, c: Any, launch: Any) -> None:
    """``call_products(address, team, a, b, c, launch)``: run compiled products."""
    call_address(function, _PRODUCTS, [as_word(one) for one in (team, a, b, c, launch)])


__all__ = [
    "ALPHA",
    "BEGIN",
    "BETA",
    "CALL_WORDS",
    "COPIES",
    "COUNT",
    "ENDS",
    "FIRST_LAUNCH",
    "FUNCTION",
    "LAUNCH",
    "LAUNCH_WORDS",
    "MEMBERS",
    "PRODUCTS",
    "SIZE",
    "STRIDES",
    "call_products",
    "factor",
]
