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
from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.pieces import to_lanes, to_pieces
from femops_kernels.simd.tensor.offsets import WORD

_WIDEST = 64  # bytes of a vector


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
        for i, value in enumerate(to_lanes(self.builder, numbers, n)):
            at = self.builder.add(k, WORD(i))
            store_at(self.builder, self.lane, self.work, at, value)

    def write(self, k: Any, n: int) -> list[Any]:
        """Copy n numbers from lanes."""
        at = [self.builder.add(k, WORD(i)) for i in range(n)]
        lanes = [load_at(self.builder, self.lane, self.work, one) for one in at]
        numbers = to_pieces(self.builder, lanes, self.lane.width)
        pairs = zip(numbers, self.slots(k, n), strict=True)
        return [self.builder.store(number, at, align=self.size) for number, at in pairs]

    def write_zeros(self, k: Any, n: int) -> list[Any]:
        """Set n numbers to zero."""
        pointers = self.slots(k, n)
        zero = ir.Constant(pointers[0].type.pointee, None)
        return [self.builder.store(zero, at, align=self.size) for at in pointers]

    def stream(self, k: Any, n: int) -> None:
        """Copy n numbers from lanes past the caches, to where so many are aligned.

        No fence is needed: a thread leaves a shared loop by an atomic operation.
        """
        self._past_caches(self.write(k, n), n)

    def stream_zeros(self, k: Any, n: int) -> None:
        """Set n numbers to zero past the caches."""
        self._past_caches(self.write_zeros(k, n), n)

    def _past_caches(self, stores: list[Any], n: int) -> None:
        once = self.builder.module.add_metadata([ir.IntType(32)(1)])
        for stored in stores:
            stored.align = self.size * n
            stored.set_metadata("nontemporal", once)

    def each(self, pieces: list[tuple[int, int]], emit: Callable[[Any, int], object]) -> None:
        """Emit pieces (first number, how many), the longest ones in a loop."""
        longest = max((n for _, n in pieces), default=0)
        whole = [first for first, n in pieces if n == longest]
        if whole:
            table = word_table(self.builder, whole)
            with cgutils.for_range(self.builder, WORD(len(whole))) as loop:
                emit(self.builder.load(self.builder.gep(table, [loop.index])), longest)
        for first, n in pieces:
            if n < longest:
                emit(WORD(first), n)

    def longest(self, way: str) -> int:
        """Numbers of the longest pieces.

        Halves of the widest vectors are joined by loads, so that fewer are moved in registers.
        """
        width = self.lane.width
        return width // 2 if way == "read" and width * self.size == _WIDEST else width


def _pieces(count: int, longest: int) -> list[tuple[int, int]]:
    """Split a run into pieces whose lengths are powers of two, longest first."""
    first = count // longest * longest
    pieces = [(k, longest) for k in range(0, first, longest)]
    while first < count:
        pieces.append((first, 1 << ((count - first).bit_length() - 1)))
        first += pieces[-1][1]
    return pieces


def _above(piece: tuple[int, int], count: int, rows: int) -> bool:
    """True if a piece of square matrices is above the diagonal."""
    first, n = piece
    parts = count // rows**2
    entries = (k // parts for k in range(first, first + n))
    return all(entry % rows > entry // rows for entry in entries)


def _copier(name: str, way: str) -> Any:
    def typer(typingctx: Any, lane: Any, places: Any, count: Any, lower: Any, work: Any) -> Any:
        sig = types.void(lane, types.intp, count, lower, types.intp)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            run, numbers, rows = (
                _Run(builder, lane.lane, args[1], args[4]),
                literal(count),
                literal(lower),
            )
            pieces = _pieces(numbers, run.longest(way))
            above = [one for one in pieces if rows and _above(one, numbers, rows)]
            run.each([one for one in pieces if one not in above], getattr(run, way))
            if way != "read":
                run.each(above, getattr(run, f"{way}_zeros"))
            return context.get_dummy_value()

        return sig, codegen

    typer.__name__ = name
    return intrinsic(prefer_literal=True)(typer)


gather_run = _copier("gather_run", "read")
scatter_run = _copier("scatter_run", "write")
stream_run = _copier("stream_run", "stream")
"""``gather_run(LANE, places, count, rows, work)``: copy so many real numbers, a constant, from
behind each place to lanes, and back, with ``stream_run`` past the caches to cache lines.

Of square matrices with so many rows, if they are not zero, what is above the diagonal may not be
read, and becomes zero where it is written.
"""


@intrinsic
def put_word(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``put_word(address, k, number)``: set entry ``k`` of an int64 array."""
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], address_of(builder, args[0], args[1], 8, WORD))
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["gather_run", "put_word", "scatter_run", "stream_run"]
