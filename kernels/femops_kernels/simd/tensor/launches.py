"""Launches of products as compiled code has them: words in memory, and calls by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import address_of
from femops_kernels.simd.tensor.offsets import WORD

# Positions in a launch, in words: six strides in bytes, members, products of each, members of a
# task, memory for copies of b, and the real and imaginary parts of alpha and beta.
STRIDES, MEMBERS, PRODUCTS, SIZE, COPIES, ALPHA, BETA = 0, 6, 7, 8, 9, 10, 12
LAUNCH_WORDS = 14

# Positions in a call: how many launches, lowest and highest byte of a, b and c from their first
# entry, then for each launch the address of its function, three offsets in bytes, and its words.
COUNT, ENDS, FIRST_LAUNCH = 0, 1, 7
FUNCTION, BEGIN, LAUNCH = 0, 1, 4
CALL_WORDS = LAUNCH + LAUNCH_WORDS


@intrinsic
def factor(typingctx: Any, base: Any, k: Any) -> Any:
    """``factor(address, k)``: words k and k + 1, which are real numbers."""
    pair = types.UniTuple(types.float64, 2)
    sig = pair(types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places = args[1], builder.add(args[1], WORD(1))
        real = ir.DoubleType()
        numbers = [builder.load(address_of(builder, args[0], k, 8, real)) for k in places]
        return context.make_tuple(builder, sig.return_type, numbers)

    return sig, codegen


@intrinsic
def call_products(
    typingctx: Any, function: Any, team: Any, a: Any, b: Any, c: Any, launch: Any
) -> Any:
    """``call_products(address, team, a, b, c, launch)``: run compiled products."""
    sig = types.void(*[types.intp] * 6)
    kind = ir.FunctionType(ir.VoidType(), [WORD] * 5)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return sig, codegen


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
