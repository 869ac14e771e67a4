"""Entries of the matrices of a batch in lanes: each slot is a matrix, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from llvmlite import ir

from femops_kernels.simd.control import For
from femops_kernels.simd.lanes import Lane, address_of, load_at, store_at
from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.pieces import to_lanes, to_pieces
from femops_kernels.simd.values import INTEGER, WORD, Traced, as_word, build

_WIDEST = 64  # bytes of a vector

_Row = tuple[int, int]
"""Numbers of a row of a member, and numbers from a row to the next in lanes."""


def _places(lane: Lane, places: Any) -> list[Any]:
    """Emit the address of each slot's matrix, loaded from the table ``places``."""
    return [build().load(address_of(places, slot, 8, WORD)) for slot in range(lane.width)]


def gathered(lane: Lane, places: Any, offset: Any) -> Any:
    """Emit the lane vector of the real numbers ``offset`` bytes after each place."""
    value, kind = ir.Constant(lane.llvm, ir.Undefined), lane.real.llvm.as_pointer()
    for slot, place in enumerate(_places(lane, places)):
        pointer = build().inttoptr(build().add(place, as_word(offset)), kind)
        value = build().insert_element(value, build().load(pointer), ir.IntType(32)(slot))
    return value


@final
class _Run:
    """Emits pieces of the runs of numbers after each place, and of the same in lanes."""

    def __init__(self, lane: Lane, places: Any, row: _Row, work: Any) -> None:
        self.lane, self.size, self.row, self.work = lane, lane.itemsize, row, work
        self.first = [] if places is None else _places(lane, places)

    def slots(self, k: Any, n: int) -> list[Any]:
        """Pointers to n numbers from number k on, of each slot."""
        real = self.lane.real.llvm
        kind = ir.VectorType(real, n) if n > 1 else real
        at = as_word(k * self.size)
        return [build().inttoptr(build().add(one, at), kind.as_pointer()) for one in self.first]

    def in_lanes(self, k: Any, i: int) -> Any:
        """Number of the lane vector of number k + i, where k begins a piece."""
        length, step = self.row
        return k + i if length == step else k + k // length * (step - length) + i

    def read(self, k: Any, n: int) -> None:
        """Copy n numbers to lanes."""
        numbers = [build().load(one, align=self.size) for one in self.slots(k, n)]
        for i, value in enumerate(to_lanes(numbers, n)):
            store_at(self.lane, self.work, self.in_lanes(k, i), value)

    def write(self, k: Any, n: int) -> list[Any]:
        """Copy n numbers from lanes."""
        lanes = [load_at(self.lane, self.work, self.in_lanes(k, i)) for i in range(n)]
        numbers = to_pieces(lanes, self.lane.width)
        pairs = zip(numbers, self.slots(k, n), strict=True)
        return [build().store(number, at, align=self.size) for number, at in pairs]

    def write_zeros(self, k: Any, n: int) -> list[Any]:
        """Set n numbers to zero."""
        pointers = self.slots(k, n)
        zero = ir.Constant(pointers[0].type.pointee, None)
        return [build().store(zero, at, align=self.size) for at in pointers]

    def stream(self, k: Any, n: int) -> None:
        """Copy n numbers from lanes past the caches, to a place aligned to n numbers.

        No fence is needed: a thread leaves a shared loop by an atomic operation.
        """
        self._past_caches(self.write(k, n), n)

    def stream_zeros(self, k: Any, n: int) -> None:
        """Set n numbers to zero past the caches."""
        self._past_caches(self.write_zeros(k, n), n)

    def _past_caches(self, stores: list[Any], n: int) -> None:
        once = build().module.add_metadata([ir.IntType(32)(1)])
        for stored in stores:
            stored.align = self.size * n
            stored.set_metadata("nontemporal", once)

    def each(self, pieces: list[tuple[int, int]], emit: Callable[[Any, int], object]) -> None:
        """Emit pieces (first number, count of numbers), the longest ones in a loop."""
        longest = max((n for _, n in pieces), default=0)
        whole = [first for first, n in pieces if n == longest]
        if whole:
            table, loop = word_table(whole), For((len(whole),), ())
            for index in loop:
                first = build().load(build().gep(table, [as_word(index)]))
                emit(Traced(INTEGER, first), longest)
                loop.leave(())
            loop.after()
        for first, n in pieces:
            if n < longest:
                emit(first, n)

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


def _copy(way: str, lane: Lane, places: Any, count: int, rows: int, row: _Row, work: Any) -> None:
    """Emit the copies of all pieces; ``way`` is the name of a method of `_Run`."""
    run = _Run(lane, places, row, work)
    pieces = _pieces(count, run.longest(way))
    above = [one for one in pieces if rows and _above(one, count, rows)]
    run.each([one for one in pieces if one not in above], getattr(run, way))
    if way != "read":
        run.each(above, getattr(run, f"{way}_zeros"))


def gather_run(lane: Lane, places: Any, count: int, rows: int, row: _Row, work: Any) -> None:
    """``gather_run(LANE, places, count, rows, row, work)``: copy numbers from each place to lanes.

    There are ``count`` real numbers, a constant. If ``rows`` is not zero, the members are square
    matrices with this number of rows. Numbers above their diagonals may not be read. ``row`` has
    the numbers of a row, and the numbers from a row to the next in lanes.
    """
    _copy("read", lane, places, count, rows, row, work)


def scatter_run(lane: Lane, places: Any, count: int, rows: int, row: _Row, work: Any) -> None:
    """``scatter_run(LANE, places, count, rows, row, work)``: the inverse of `gather_run`.

    If ``rows`` is not zero, the members are square matrices with this number of rows. Zeros are
    written above their diagonals.
    """
    _copy("write", lane, places, count, rows, row, work)


def stream_run(lane: Lane, places: Any, count: int, rows: int, row: _Row, work: Any) -> None:
    """``stream_run(LANE, places, count, rows, row, work)``: `scatter_run` past the caches."""
    _copy("stream", lane, places, count, rows, row, work)


def clear_above(lane: Lane, count: int, rows: int, row: _Row, work: Any) -> None:
    """``clear_above(LANE, count, rows, row, work)``: zeros in lanes above diagonals.

    Only numbers that `scatter_run` writes together with others are set.
    """
    run, zero, parts = _Run(lane, None, row, work), lane.llvm(None), count // rows**2
    pieces = [one for one in _pieces(count, run.longest("write")) if not _above(one, count, rows)]
    numbers = [k for first, n in pieces for k in range(first, first + n)]
    entries = [k for k in numbers if k // parts % rows > k // parts // rows]
    run.each([(k, 1) for k in entries], lambda k, _: store_at(lane, work, run.in_lanes(k, 0), zero))


def locate_rows(lane: Lane, places: Any, rows: Traced, row_bytes: int, target: Any) -> None:
    """``locate_rows(LANE, places, rows, row_bytes, target)``: addresses of a row of each matrix.

    ``rows`` are the numbers of the rows, a lane vector. ``places`` and ``target`` are tables of
    addresses, one for each slot.
    """
    words = ir.VectorType(WORD, lane.width)
    factor = ir.Constant(words, [WORD(row_bytes)] * lane.width)
    steps = build().mul(build().fptosi(rows.value, words), factor)
    first = build().load(address_of(places, 0, 1, words), align=8)
    build().store(build().add(first, steps), address_of(target, 0, 1, words), align=8)


__all__ = ["clear_above", "gather_run", "locate_rows", "scatter_run", "stream_run"]
