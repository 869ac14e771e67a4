"""Pieces of runs: consecutive dofs of each element of a batch, read and added to as vectors.

A lane vector has one number of each element, but in memory the numbers of an element stand side by
side. So several numbers are read at once and transposed in registers. This takes a third of the
instructions that loads of single numbers take.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from llvmlite import ir

from femops_kernels.simd.addresses import PLACE_BYTES
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.runs import DofRuns
from femops_kernels.simd.values import WORD, as_word, build

_INDEX = ir.IntType(32)


def _shuffled(a: Any, b: Any, places: list[int]) -> Any:
    """Vector of numbers of two vectors. The numbers of the second follow those of the first."""
    mask = ir.Constant(ir.VectorType(_INDEX, len(places)), [_INDEX(i) for i in places])
    return build().shuffle_vector(a, b, mask)


def _exchanged(rows: list[Any], width: int) -> list[Any]:
    """Transpose the n by n squares that stand side by side in n rows. It is its own inverse.

    Each step exchanges one bit of the row number with the same bit of the column number.
    """
    bit = 1
    while bit < len(rows):
        for low in (i for i in range(len(rows)) if not i & bit):
            a, b = rows[low], rows[low | bit]
            first = [width + (j ^ bit) if j & bit else j for j in range(width)]
            last = [width + j if j & bit else j ^ bit for j in range(width)]
            rows[low], rows[low | bit] = (_shuffled(a, b, p) for p in (first, last))
        bit *= 2
    return rows


def to_lanes(pieces: list[Any], n: int) -> list[Any]:
    """Lane vectors of the n numbers of each slot."""
    if n == 1:
        lane = ir.Constant(ir.VectorType(pieces[0].type, len(pieces)), ir.Undefined)
        for slot, number in enumerate(pieces):
            lane = build().insert_element(lane, number, _INDEX(slot))
        return [lane]
    rows = []
    for slot in range(n):  # beside it slots slot + n, slot + 2 n, ...
        parts = pieces[slot::n]
        while len(parts) > 1:
            both = list(range(2 * parts[0].type.count))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [_shuffled(a, b, both) for a, b in pairs]
        rows.append(parts[0])
    return _exchanged(rows, len(pieces))


def to_pieces(lanes: list[Any], width: int) -> list[Any]:
    """Vectors of the n numbers of each slot: the inverse of `to_lanes`."""
    if len(lanes) == 1:
        return [build().extract_element(lanes[0], _INDEX(slot)) for slot in range(width)]
    n, rows = len(lanes), _exchanged(list(lanes), width)
    return [
        _shuffled(rows[slot % n], rows[slot % n], [slot // n * n + i for i in range(n)])
        for slot in range(width)
    ]


@final
class _Piece:
    """Emits addresses of the k-th piece of n numbers: in each slot's run, and of lane vectors."""

    def __init__(
        self, lane: Lane, runs: DofRuns, ncomp: int, n: int, spread: tuple[int, int], k: Any
    ) -> None:
        self.lane, self.n = lane, n
        row = _rows_of(runs, lane, ncomp, n, spread)
        self.table = word_table(row.reshape(-1))
        self.row = build().mul(as_word(k), WORD(row.shape[1]))

    def _entry(self, i: int) -> Any:
        at = build().add(self.row, WORD(i))
        return build().load(build().gep(self.table, [at]))

    def slots(self, places: Any) -> list[Any]:
        """Pointers to the piece of each slot."""
        builder, real = build(), self.lane.real.llvm
        kind = ir.VectorType(real, self.n) if self.n > 1 else real
        at = builder.inttoptr(builder.add(as_word(places), self._entry(0)), WORD.as_pointer())
        place = self._entry(1)
        starts = [builder.load(builder.gep(at, [WORD(s)])) for s in range(self.lane.width)]
        return [builder.inttoptr(builder.add(start, place), kind.as_pointer()) for start in starts]

    def lanes(self, target: Any) -> list[Any]:
        """Pointers to the lane vectors of the piece's numbers."""
        builder, kind = build(), self.lane.llvm.as_pointer()
        places = (builder.add(as_word(target), self._entry(2 + i)) for i in range(self.n))
        return [builder.inttoptr(place, kind) for place in places]


def _rows_of(runs: DofRuns, lane: Lane, ncomp: int, n: int, spread: tuple[int, int]) -> Any:
    """Offsets in bytes for each piece of n numbers, (pieces, 2 + n).

    The first is the offset of the places of the piece's run. The second is the offset of the piece
    in the run. The others are the offsets of the piece's lane vectors.
    """
    area, rows = math.prod(runs.shape[:2]), []
    for run, first in runs.pieces(n, ncomp, lane.width):
        numbers = first + np.arange(n)
        node, component = runs.nodes[run][numbers // ncomp], numbers % ncomp
        plane = node // area
        at = node % area + plane * spread[0] + component * spread[1]
        rows.append([run * lane.width * PLACE_BYTES, first * lane.itemsize, *(at * lane.nbytes)])
    return np.array(rows, dtype=np.int64)


def gather_piece(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    n: int,
    spread: tuple[int, int],
    places: Any,
    target: Any,
    k: Any,
) -> None:
    """``gather_piece(LANE, RUNS, ncomp, n, (plane, component), places, target, k)``.

    Read the k-th piece of n numbers, all ``ncomp`` components together, into the lane vectors
    of nodes at ``target``. There x is fastest, then y. Planes are ``plane`` lane vectors apart,
    and components ``component``. All but the last three arguments are constants.
    """
    piece, size = _Piece(lane, runs, ncomp, n, spread, k), lane.itemsize
    pieces = [build().load(pointer, align=size) for pointer in piece.slots(places)]
    for value, pointer in zip(to_lanes(pieces, n), piece.lanes(target), strict=True):
        build().store(value, pointer, align=size)


def scatter_piece(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    n: int,
    spread: tuple[int, int],
    places: Any,
    source: Any,
    k: Any,
) -> None:
    """``scatter_piece(LANE, RUNS, ncomp, n, (plane, component), places, source, k)``.

    Add the lane vectors of nodes at ``source`` to the k-th piece of n numbers. The arguments are
    those of ``gather_piece``, which reads the piece.
    """
    piece, size = _Piece(lane, runs, ncomp, n, spread, k), lane.itemsize
    lanes = [build().load(pointer, align=size) for pointer in piece.lanes(source)]
    pieces = to_pieces(lanes, lane.width)
    # one slot after the other: slots of one batch that share dofs lose no update
    for part, pointer in zip(pieces, piece.slots(places), strict=True):
        total = build().fadd(build().load(pointer, align=size), part)
        build().store(total, pointer, align=size)


def _element_rows(runs: DofRuns, lane: Lane, ncomp: int, n: int) -> Any:
    """Offsets in bytes for each piece of n numbers, (pieces, 3).

    The first is the offset of the piece among the element's numbers, run by run. The second is the
    offset of the places of the piece's run. The third is the offset of the piece in the run.
    """
    size, lengths = lane.itemsize, [len(nodes) * ncomp for nodes in runs.nodes]
    begin = np.cumsum([0, *lengths])
    rows = [
        [(begin[run] + first) * size, run * lane.width * PLACE_BYTES, first * size]
        for run, first in runs.pieces(n, ncomp, lane.width)
    ]
    return np.array(rows, dtype=np.int64)


def _element_bytes(runs: DofRuns, lane: Lane, ncomp: int) -> int:
    return math.prod(runs.shape) * ncomp * lane.itemsize


def turn_piece(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    n: int,
    spread: tuple[int, int],
    source: Any,
    target: Any,
    k: Any,
) -> None:
    """``turn_piece(LANE, RUNS, ncomp, n, (plane, component), source, target, k)``.

    Copies the k-th piece of n numbers from lane vectors of nodes at ``source`` (see
    ``gather_piece``) to ``target``, which has all numbers of the first slot, then of the second.
    """
    piece, size = _Piece(lane, runs, ncomp, n, spread, k), lane.itemsize
    numbers = [build().load(pointer, align=size) for pointer in piece.lanes(source)]
    pieces = to_pieces(numbers, lane.width)
    table = word_table(_element_rows(runs, lane, ncomp, n)[:, 0])
    first = build().add(as_word(target), build().load(build().gep(table, [as_word(k)])))
    for slot, value in enumerate(pieces):
        at = build().add(first, WORD(slot * _element_bytes(runs, lane, ncomp)))
        build().store(value, build().inttoptr(at, value.type.as_pointer()), align=size)


def add_piece(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    n: int,
    places: Any,
    source: Any,
    slot: Any,
    k: Any,
) -> None:
    """``add_piece(LANE, RUNS, ncomp, n, places, source, slot, k)``.

    Adds the k-th piece of n numbers of a slot, which ``turn_piece`` has put to ``source``, to where
    ``gather_piece`` takes it from.
    """
    builder, real, size = build(), lane.real.llvm, lane.itemsize
    kind = (ir.VectorType(real, n) if n > 1 else real).as_pointer()
    table = word_table(_element_rows(runs, lane, ncomp, n).reshape(-1))
    row, number = builder.mul(as_word(k), WORD(3)), as_word(slot)
    here, run, first = (
        builder.load(builder.gep(table, [builder.add(row, WORD(i))])) for i in range(3)
    )
    element = builder.mul(number, WORD(_element_bytes(runs, lane, ncomp)))
    part = builder.inttoptr(builder.add(builder.add(as_word(source), element), here), kind)
    at = builder.add(builder.add(as_word(places), run), builder.mul(number, WORD(PLACE_BYTES)))
    start = builder.load(builder.inttoptr(at, WORD.as_pointer()))
    target = builder.inttoptr(builder.add(start, first), kind)
    values = (builder.load(pointer, align=size) for pointer in (target, part))
    builder.store(builder.fadd(*values), target, align=size)


__all__ = ["add_piece", "gather_piece", "scatter_piece", "turn_piece"]
