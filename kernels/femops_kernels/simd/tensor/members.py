"""Entries of the matrices of a batch in lanes: each slot is a matrix, wherever it lies."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import address_of, scalar_ir, vector_ir
from femops_kernels.simd.tensor.offsets import WORD


def _pointers(builder: Any, lane: Any, places: Any, offset: Any) -> list[Any]:
    """Addresses of one entry of each slot's matrix; ``places`` has those of the matrices."""
    real = scalar_ir(lane)
    pointers = []
    for slot in range(lane.width):
        place = builder.load(address_of(builder, places, WORD(slot), 8, WORD))
        pointers.append(builder.inttoptr(builder.add(place, offset), real.as_pointer()))
    return pointers


@intrinsic
def gather_members(typingctx: Any, lane: Any, places: Any, offset: Any) -> Any:
    """``gather_members(LANE, places, offset)``: the number ``offset`` bytes behind each place."""
    sig = lane.lane(lane, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = sig.return_type
        value = ir.Constant(vector_ir(lane), ir.Undefined)
        for slot, pointer in enumerate(_pointers(builder, lane, args[1], args[2])):
            value = builder.insert_element(value, builder.load(pointer), ir.IntType(32)(slot))
        return value

    return sig, codegen


@intrinsic
def scatter_members(typingctx: Any, lane: Any, places: Any, offset: Any, value: Any) -> Any:
    """``scatter_members(LANE, places, offset, value)``: put a number behind each place."""
    sig = types.void(lane, types.intp, types.intp, lane.lane)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointers = _pointers(builder, sig.args[3], args[1], args[2])
        for slot, pointer in enumerate(pointers):
            builder.store(builder.extract_element(args[3], ir.IntType(32)(slot)), pointer)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def put_word(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``put_word(address, k, number)``: set entry ``k`` of an int64 array."""
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], address_of(builder, args[0], args[1], 8, WORD))
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["gather_members", "put_word", "scatter_members"]
