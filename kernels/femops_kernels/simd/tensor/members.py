"""Entries of the matrices of a batch in lanes: each slot is a matrix, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import (
    LaneType,
    address_of,
    load_at,
    scalar_ir,
    store_at,
    vector_ir,
)
from femops_kernels.simd.lines import literal
from femops_kernels.simd.pieces import to_lanes, to_pieces
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


@final
class _Run:
    """Emits pieces of the runs of numbers behind each place, and of the same in lanes."""

    def __init__(self, builder: Any, lane: LaneType, places: Any, work: Any) -> None:
        self.builder, self.lane, self.work = builder, lane, work
        self.size = lane.scalar.bitwidth // 8
        self.first = [
            builder.load(address_of(builder, places, WORD(slot), 8, WORD))
            for slot in range(lane.width)
        ]

    def slots(self, k: Any, n: int) -> list[Any]:
        """Pointers to n numbers from number k on, of each slot."""
        build = self.builder
        kind = ir.VectorType(scalar_ir(self.lane), n) if n > 1 else scalar_ir(self.lane)
        at = build.mul(k, WORD(self.size))
        return [build.inttoptr(build.add(one, at), kind.as_pointer()) for one in self.first]

    def read(self, k: Any, n: int) -> None:
        """Copy n numbers to lanes."""
        numbers = [self.builder.load(one, align=self.size) for one in self.slots(k, n)]
        if n > 1:
            lanes = to_lanes(self.builder, numbers, n)
        else:
            lanes = [ir.Constant(vector_ir(self.lane), ir.Undefined)]
            for slot, number in enumerate(numbers):
                lanes = [self.builder.insert_element(lanes[0], number, ir.IntType(32)(slot))]
        for i, value in enumerate(lanes):
            at = self.builder.add(k, WORD(i))
            store_at(self.builder, self.lane, self.work, at, value)

    def write(self, k: Any, n: int) -> None:
        """Copy n numbers from lanes."""
        at = [self.builder.add(k, WORD(i)) for i in range(n)]
        lanes = [load_at(self.builder, self.lane, self.work, one) for one in at]
        if n > 1:
            numbers = to_pieces(self.builder, lanes, self.lane.width)
        else:
            slots = range(self.lane.width)
            numbers = [self.builder.extract_element(lanes[0], ir.IntType(32)(s)) for s in slots]
        for number, pointer in zip(numbers, self.slots(k, n), strict=True):
            self.builder.store(number, pointer, align=self.size)

    def each(self, count: int, emit: Callable[[Any, int], None]) -> None:
        """Emit all pieces of a run: as many of them as can be are as long as a lane vector."""
        width = self.lane.width
        with cgutils.for_range(self.builder, WORD(count // width)) as loop:
            emit(self.builder.mul(loop.index, WORD(width)), width)
        first = count // width * width
        while first < count:
            n = 1 << ((count - first).bit_length() - 1)
            emit(WORD(first), n)
            first += n


def _copier(name: str, way: str) -> Any:
    def typer(typingctx: Any, lane: Any, places: Any, count: Any, work: Any) -> Any:
        sig = types.void(lane, types.intp, count, types.intp)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            run = _Run(builder, lane.lane, args[1], args[3])
            run.each(literal(count), getattr(run, way))
            return context.get_dummy_value()

        return sig, codegen

    typer.__name__ = name
    return intrinsic(prefer_literal=True)(typer)


gather_run = _copier("gather_run", "read")
scatter_run = _copier("scatter_run", "write")
"""``gather_run(LANE, places, count, work)``: copy so many real numbers, a constant, from behind
each place to lanes, and back."""


@intrinsic
def put_word(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``put_word(address, k, number)``: set entry ``k`` of an int64 array."""
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], address_of(builder, args[0], args[1], 8, WORD))
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["gather_run", "put_word", "scatter_run"]
