"""Blocks of consecutive nodes of each element of a batch, read and added to as vectors.

``pieces.py`` does the same with the runs of whole elements. Here the elements of a batch may begin
anywhere: ``starts`` are addresses, one for each slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from femops_kernels.simd.lanes import Lane, address_of
from femops_kernels.simd.pieces import to_lanes, to_pieces
from femops_kernels.simd.runs import PIECES
from femops_kernels.simd.values import INTEGER, WORD, Traced, as_word, build


def slot_words(lane: Lane, base: Any, k: Any) -> tuple[Traced, ...]:
    """``slot_words(LANE, address, k)``: integers k, k + 1, ... of an array, one for each slot."""
    first = address_of(base, k, 8, WORD)
    loads = (build().load(build().gep(first, [WORD(slot)])) for slot in range(lane.width))
    return tuple(Traced(INTEGER, each) for each in loads)


def moved(starts: tuple[Any, ...], steps: tuple[Any, ...], factor: int) -> tuple[Traced, ...]:
    """``moved(starts, steps, factor)``: for each slot its start plus its step times a constant."""
    return tuple(
        Traced(INTEGER, build().add(as_word(a), build().mul(as_word(b), WORD(factor))))
        for a, b in zip(starts, steps, strict=True)
    )


def _cut(count: int, width: int) -> Iterator[tuple[int, int]]:
    """First number and length of the pieces of ``count`` numbers, the longest first."""
    first = 0
    for n in PIECES:
        while n <= width and count - first >= n:
            yield first, n
            first += n


def _slots(lane: Lane, starts: tuple[Any, ...], offset: Any, first: int, n: int) -> list[Any]:
    """Emit pointers to n numbers of each slot's block, from its number ``first`` on."""
    builder, real = build(), lane.real.llvm
    kind = (ir.VectorType(real, n) if n > 1 else real).as_pointer()
    at = builder.add(as_word(offset), WORD(first * lane.itemsize))
    return [builder.inttoptr(builder.add(as_word(start), at), kind) for start in starts]


def _lanes(lane: Lane, target: Any, ncomp: int, component: int, first: int, n: int) -> list[Any]:
    """Emit pointers to the lane vectors of numbers ``first`` to ``first + n`` of a block."""
    places = (k // ncomp + k % ncomp * component for k in range(first, first + n))
    return [address_of(target, place, lane.nbytes, lane.llvm) for place in places]


def gather_block(
    lane: Lane,
    size: int,
    ncomp: int,
    component: int,
    starts: tuple[Any, ...],
    offset: Any,
    target: Any,
) -> None:
    """``gather_block(LANE, size, ncomp, component, starts, offset, target)``.

    Read a block of ``size`` nodes of each slot, ``offset`` bytes behind its start, into lane
    vectors at ``target``. In memory the ``ncomp`` components of a node stand together; at
    ``target`` components are ``component`` lane vectors apart. The first four are constants.
    """
    for first, n in _cut(size * ncomp, lane.width):
        slots = _slots(lane, starts, offset, first, n)
        pieces = [build().load(pointer, align=lane.itemsize) for pointer in slots]
        pointers = _lanes(lane, target, ncomp, component, first, n)
        for value, pointer in zip(to_lanes(pieces, n), pointers, strict=True):
            build().store(value, pointer, align=lane.itemsize)


def scatter_block(
    lane: Lane,
    size: int,
    ncomp: int,
    component: int,
    starts: tuple[Any, ...],
    offset: Any,
    source: Any,
) -> None:
    """``scatter_block(LANE, size, ncomp, component, starts, offset, source)``.

    Add lane vectors at ``source`` to the block that ``gather_block`` reads with these arguments.
    """
    for first, n in _cut(size * ncomp, lane.width):
        pointers = _lanes(lane, source, ncomp, component, first, n)
        lanes = [build().load(pointer, align=lane.itemsize) for pointer in pointers]
        parts, slots = to_pieces(lanes, lane.width), _slots(lane, starts, offset, first, n)
        # one slot after the other: slots of one batch that share dofs lose no update
        for part, pointer in zip(parts, slots, strict=True):
            total = build().fadd(build().load(pointer, align=lane.itemsize), part)
            build().store(total, pointer, align=lane.itemsize)


__all__ = ["gather_block", "moved", "scatter_block", "slot_words"]
