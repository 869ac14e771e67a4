"""Entries of the matrices of a batch in lanes: each slot is a matrix, wherever it lies."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import LaneType, address_of, scalar_ir, vector_ir
from femops_kernels.simd.tensor.offsets import WORD


def _pointers(builder: Any, lane: LaneType, places: Any, offset: Any) -> list[Any]:
    """Addresses of one entry of each slot's matrix; ``places`` has those of the matrices."""
    real = scalar_ir(lane)
    pointers = []
    for slot in range(lane.width):
        place = builder.load(address_of(builder, places, WORD(slot), 8, WORD))
        pointers.append(builder.inttoptr(builder.add(place, offset), real.as_pointer()))
    return pointers


def gathered(builder: Any, lane: LaneType, places: Any, offset: Any) -> Any:
    """Emit the lane vector of the real numbers ``offset`` bytes behind each place."""
    value = ir.Constant(vector_ir(lane), ir.Undefined)
    for slot, pointer in enumerate(_pointers(builder, lane, places, offset)):
        value = builder.insert_element(value, builder.load(pointer), ir.IntType(32)(slot))
    return value


def scattered(builder: Any, lane: LaneType, places: Any, offset: Any, value: Any) -> None:
    """Emit stores of a lane vector's numbers ``offset`` bytes behind each place."""
    for slot, pointer in enumerate(_pointers(builder, lane, places, offset)):
        builder.store(builder.extract_element(value, ir.IntType(32)(slot)), pointer)


@intrinsic
def put_word(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``put_word(address, k, number)``: set entry ``k`` of an int64 array."""
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], address_of(builder, args[0], args[1], 8, WORD))
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["put_word"]
