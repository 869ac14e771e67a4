"""Pieces of runs: consecutive dofs of each element of a batch, read and added to as vectors.

A lane vector has one number of each element, but in memory the numbers of an element stand side by
side. So several numbers are read at once and transposed in registers. This takes a third of the
instructions that loads of single numbers take.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.simd.addresses import PLACE_BYTES
from femops_kernels.simd.lanes import scalar_ir, vector_ir
from femops_kernels.simd.lines import literal
from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.runs import DofRuns

_WORD, _INDEX = ir.IntType(64), ir.IntType(32)


def _shuffled(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    """Vector of numbers of two vectors. The numbers of the second follow those of the first."""
    mask = ir.Constant(ir.VectorType(_INDEX, len(places)), [_INDEX(i) for i in places])
    return builder.shuffle_vector(a, b, mask)


def _exchanged(builder: Any, rows: list[Any], width: int) -> list[Any]:
    """Transpose the n by n squares that stand side by side in n rows. It is its own inverse.

    Each step exchanges one bit of the row number with the same bit of the column number.
    """
    bit = 1
    while bit < len(rows):
        for low in (i for i in range(len(rows)) if not i & bit):
            a, b = rows[low], rows[low | bit]
            first = [width + (j ^ bit) if j & bit else j for j in range(width)]
            last = [width + j if j & bit else j ^ bit for j in range(width)]
            rows[low], rows[low | bit] = (_shuffled(builder, a, b, p) for p in (first, last))
        bit *= 2
    return rows


def to_lanes(builder: Any, pieces: list[Any], n: int) -> list[Any]:
    """Lane vectors of the n numbers of each slot."""
    if n == 1:
        lane = ir.Constant(ir.VectorType(pieces[0].type, len(pieces)), ir.Undefined)
        for slot, number in enumerate(pieces):
            lane = builder.insert_element(lane, number, _INDEX(slot))
        return [lane]
    rows = []
    for slot in range(n):  # beside it slots slot + n, slot + 2 n, ...
        parts = pieces[slot::n]
        while len(parts) > 1:
            both = list(range(2 * parts[0].type.count))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [_shuffled(builder, a, b, both) for a, b in pairs]
        rows.append(parts[0])
    return _exchanged(builder, rows, len(pieces))


def to_pieces(builder: Any, lanes: list[Any], width: int) -> list[Any]:
    """Vectors of the n numbers of each slot: the inverse of `to_lanes`."""
    if len(lanes) == 1:
        return [builder.extract_element(lanes[0], _INDEX(slot)) for slot in range(width)]
    n, rows = len(lanes), _exchanged(builder, list(lanes), width)
    return [
        _shuffled(builder, rows[slot % n], rows[slot % n], [slot // n * n + i for i in range(n)])
        for slot in range(width)
    ]


@final
class _Piece:
    """Emits addresses of the k-th piece of n numbers: in each slot's run, and of lane vectors."""

    def __init__(self, builder: Any, kinds: Any, args: Any) -> None:
        lane, runs, ncomp, n, spread = (kinds[i] for i in range(5))
        self.builder, self.lane, self.n = builder, lane.lane, literal(n)
        self.places, self.target, k = args[5:8]
        row = _rows_of(runs.runs, lane, literal(ncomp), self.n, [literal(s) for s in spread])
        self.table = word_table(builder, row.reshape(-1))
        self.row = builder.mul(k, _WORD(row.shape[1]))

    def _entry(self, i: int) -> Any:
        at = self.builder.add(self.row, _WORD(i))
        return self.builder.load(self.builder.gep(self.table, [at]))

    def slots(self) -> list[Any]:
        """Pointers to the piece of each slot."""
        build, real = self.builder, scalar_ir(self.lane)
        kind = ir.VectorType(real, self.n) if self.n > 1 else real
        at = build.inttoptr(build.add(self.places, self._entry(0)), _WORD.as_pointer())
        place = self._entry(1)
        starts = [build.load(build.gep(at, [_WORD(s)])) for s in range(self.lane.width)]
        return [build.inttoptr(build.add(start, place), kind.as_pointer()) for start in starts]

    def lanes(self) -> list[Any]:
        """Pointers to the lane vectors of the piece's numbers."""
        build, kind = self.builder, vector_ir(self.lane).as_pointer()
        places = (build.add(self.target, self._entry(2 + i)) for i in range(self.n))
        return [build.inttoptr(place, kind) for place in places]


def _rows_of(runs: DofRuns, lane: Any, ncomp: int, n: int, spread: list[int]) -> Any:
    """Offsets in bytes for each piece of n numbers, (pieces, 2 + n).

    The first is the offset of the places of the piece's run. The second is the offset of the piece
    in the run. The others are the offsets of the piece's lane vectors.
    """
    size, side = lane.itemsize, runs.p1d
    rows = []
    for run, first in runs.pieces(n, ncomp, lane.lane.width):
        numbers = first + np.arange(n)
        node, component = runs.nodes[run][numbers // ncomp], numbers % ncomp
        plane = node // side**2
        at = node % side**2 + plane * spread[0] + component * spread[1]
        rows.append([run * lane.lane.width * PLACE_BYTES, first * size, *(at * lane.nbytes)])
    return np.array(rows, dtype=np.int64)


@intrinsic(prefer_literal=True)
def gather_piece(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    n: Any,
    spread: Any,
    places: Any,
    target: Any,
    k: Any,
) -> Any:
    """``gather_piece(LANE, RUNS, ncomp, n, (plane, component), places, target, k)``.

    Read the k-th piece of n numbers, all ``ncomp`` components together, into the lane vectors
    of nodes at ``target``. There x is fastest, then y. Planes are ``plane`` lane vectors apart,
    and components ``component``. All but the last three arguments are constants.
    """
    sig = types.void(lane, runs, ncomp, n, spread, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        piece = _Piece(builder, sig.args, args)
        size = piece.lane.scalar.bitwidth // 8
        pieces = [builder.load(pointer, align=size) for pointer in piece.slots()]
        lanes = to_lanes(builder, pieces, piece.n)
        for lane, pointer in zip(lanes, piece.lanes(), strict=True):
            builder.store(lane, pointer, align=size)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic(prefer_literal=True)
def scatter_piece(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    n: Any,
    spread: Any,
    places: Any,
    source: Any,
    k: Any,
) -> Any:
    """``scatter_piece(LANE, RUNS, ncomp, n, (plane, component), places, source, k)``.

    Add the lane vectors of nodes at ``source`` to the k-th piece of n numbers. The arguments are
    those of ``gather_piece``, which reads the piece.
    """
    sig = types.void(lane, runs, ncomp, n, spread, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        piece = _Piece(builder, sig.args, args)
        width, size = piece.lane.width, piece.lane.scalar.bitwidth // 8
        lanes = [builder.load(pointer, align=size) for pointer in piece.lanes()]
        pieces = to_pieces(builder, lanes, width)
        # one slot after the other: slots of one batch that share dofs lose no update
        for part, pointer in zip(pieces, piece.slots(), strict=True):
            total = builder.fadd(builder.load(pointer, align=size), part)
            builder.store(total, pointer, align=size)
        return context.get_dummy_value()

    return sig, codegen


def _element_rows(runs: DofRuns, lane: Any, ncomp: int, n: int) -> Any:
    """Offsets in bytes for each piece of n numbers, (pieces, 3).

    The first is the offset of the piece among the element's numbers, run by run. The second is the
    offset of the places of the piece's run. The third is the offset of the piece in the run.
    """
    size, lengths = lane.itemsize, [len(nodes) * ncomp for nodes in runs.nodes]
    begin = np.cumsum([0, *lengths])
    rows = [
        [(begin[run] + first) * size, run * lane.lane.width * PLACE_BYTES, first * size]
        for run, first in runs.pieces(n, ncomp, lane.lane.width)
    ]
    return np.array(rows, dtype=np.int64)


def _element_bytes(runs: DofRuns, lane: Any, ncomp: int) -> int:
    return int(runs.p1d**runs.dim * ncomp * lane.itemsize)


@intrinsic(prefer_literal=True)
def turn_piece(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    n: Any,
    spread: Any,
    source: Any,
    target: Any,
    k: Any,
) -> Any:
    """``turn_piece(LANE, RUNS, ncomp, n, (plane, component), source, target, k)``.

    Copies the k-th piece of n numbers from lane vectors of nodes at ``source`` (see
    ``gather_piece``) to ``target``, which has all numbers of the first slot, then of the second.
    """
    sig = types.void(lane, runs, ncomp, n, spread, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, runs = sig.args[0], sig.args[1].runs
        ncomp, n, width = literal(sig.args[2]), literal(sig.args[3]), lane.lane.width
        piece = _Piece(builder, sig.args, (*args[:5], args[5], args[5], args[7]))
        numbers = [builder.load(pointer, align=lane.itemsize) for pointer in piece.lanes()]
        pieces = to_pieces(builder, numbers, width)
        table = word_table(builder, _element_rows(runs, lane, ncomp, n)[:, 0])
        first = builder.add(args[6], builder.load(builder.gep(table, [args[7]])))
        for slot, value in enumerate(pieces):
            at = builder.add(first, _WORD(slot * _element_bytes(runs, lane, ncomp)))
            builder.store(value, builder.inttoptr(at, value.type.as_pointer()), align=lane.itemsize)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic(prefer_literal=True)
def add_piece(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    n: Any,
    places: Any,
    source: Any,
    slot: Any,
    k: Any,
) -> Any:
    """``add_piece(LANE, RUNS, ncomp, n, places, source, slot, k)``.

    Adds the k-th piece of n numbers of a slot, which ``turn_piece`` has put to ``source``, to where
    ``gather_piece`` takes it from.
    """
    sig = types.void(lane, runs, ncomp, n, types.intp, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, runs = sig.args[0], sig.args[1].runs
        ncomp, n, (places, source, slot, k) = literal(sig.args[2]), literal(sig.args[3]), args[4:]
        real = scalar_ir(lane.lane)
        kind = (ir.VectorType(real, n) if n > 1 else real).as_pointer()
        table = word_table(builder, _element_rows(runs, lane, ncomp, n).reshape(-1))
        row = builder.mul(k, _WORD(3))
        here, run, first = (
            builder.load(builder.gep(table, [builder.add(row, _WORD(i))])) for i in range(3)
        )
        element = builder.mul(slot, _WORD(_element_bytes(runs, lane, ncomp)))
        part = builder.inttoptr(builder.add(builder.add(source, element), here), kind)
        at = builder.add(builder.add(places, run), builder.mul(slot, _WORD(PLACE_BYTES)))
        start = builder.load(builder.inttoptr(at, _WORD.as_pointer()))
        target = builder.inttoptr(builder.add(start, first), kind)
        values = (builder.load(pointer, align=lane.itemsize) for pointer in (target, part))
        builder.store(builder.fadd(*values), target, align=lane.itemsize)
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["add_piece", "gather_piece", "scatter_piece", "turn_piece"]
