"""Places: the addresses at which the runs of a batch's elements begin, and lines of nodes there.

``locate`` computes the places from the dof numbers of a plan. ``gather_nodes`` reads a line of
nodes, and ``scatter_nodes`` adds to it. The places of a batch are (run, slot) int64.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from llvmlite import ir

from femops_kernels.simd.lanes import Lane, address_of
from femops_kernels.simd.lines import Line, pack, unpack
from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.runs import DofRuns
from femops_kernels.simd.values import WORD, as_word, build

PLACE_BYTES = 8


def _words(width: int, number: Any) -> Any:
    """Emit a vector of ``width`` integers that all equal ``number``."""
    zero, vector = ir.IntType(32)(0), ir.VectorType(WORD, width)
    one = build().insert_element(ir.Constant(vector, ir.Undefined), number, zero)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [zero] * width)
    return build().shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


@final
class _Numbers:
    """Emits the addresses of the first dofs of a group of runs, from the plan's dof numbers."""

    def __init__(self, width: int, starts: Any, itemsize: int, k: Any) -> None:
        self.width, self.k = width, k
        narrow = ir.VectorType(ir.IntType(8 * itemsize), width)
        self.wide = ir.VectorType(WORD, width)
        source = address_of(starts, k, width * itemsize, narrow)
        self.numbers = build().zext(build().load(source, align=itemsize), self.wide)

    def write(self, side: tuple[Any, Any, Any, Any], dof_bytes: int) -> None:
        width, builder = self.width, build()
        owned, here, elsewhere = (as_word(part) for part in side[:3])
        inside = builder.icmp_unsigned("<", self.numbers, _words(width, owned))
        bases = (_words(width, base) for base in (here, elsewhere))
        moved = builder.mul(self.numbers, ir.Constant(self.wide, [WORD(dof_bytes)] * width))
        target = address_of(side[3], self.k, width * PLACE_BYTES, self.wide)
        builder.store(builder.add(builder.select(inside, *bases), moved), target, align=PLACE_BYTES)


def locate(
    lane: Lane,
    starts: Any,
    index_bytes: int,
    k: Any,
    sides: tuple[tuple[Any, Any, Any, Any], ...],
    dof_bytes: tuple[int, ...],
) -> None:
    """``locate(LANE, starts, index_bytes, k, sides, dof_bytes)``.

    Set the k-th group of ``places`` of each side. ``sides`` are tuples ``(owned, here, elsewhere,
    places)``. A slot's place is the address of dof ``s = starts[k, slot]``: ``here + s dof_bytes``
    if ``s < owned``, else ``elsewhere + s dof_bytes``. ``index_bytes`` is the size of an unsigned
    start. It is a constant, and so is ``dof_bytes``, a tuple with one number for each side.
    """
    numbers = _Numbers(lane.width, starts, index_bytes, k)
    for side, nbytes in zip(sides, dof_bytes, strict=True):
        numbers.write(side, nbytes)


def _line_pointers(
    lane: Lane, runs: DofRuns, ncomp: int, places: Any, along: int, j: Any, component: Any
) -> list[list[Any]]:
    """Emit the addresses of the nodes of a line: for each node a list, one for each slot.

    The arguments are those of ``gather_nodes``.  The addresses of the runs are loaded as numbers:
    taking them out of a vector costs more.
    """
    builder = build()
    size, width, real = lane.itemsize, lane.width, lane.real.llvm.as_pointer()
    lines = range(math.prod(runs.shape) // runs.shape[along])
    pieces = np.array([runs.line(along, k) for k in lines])  # (line, piece, 4), see `DofRuns.line`
    bytes_of = np.array([width * PLACE_BYTES, ncomp * size, ncomp * size])
    table = word_table((pieces[:, :, :3] * bytes_of).reshape(-1))
    row = builder.mul(as_word(j), WORD(3 * pieces.shape[1]))
    inside = builder.mul(as_word(component), WORD(size))
    nodes = []
    for piece, count in enumerate(pieces[0, :, 3]):
        run, place, stride = (
            builder.load(builder.gep(table, [builder.add(row, WORD(3 * piece + what))]))
            for what in range(3)
        )
        at = builder.inttoptr(builder.add(as_word(places), run), WORD.as_pointer())
        starts = [builder.load(builder.gep(at, [WORD(slot)])) for slot in range(width)]
        place = builder.add(place, inside)
        for i in range(count):
            moved = builder.add(place, builder.mul(stride, WORD(i))) if i else place
            nodes.append([builder.inttoptr(builder.add(start, moved), real) for start in starts])
    return nodes


def gather_nodes(
    lane: Lane, runs: DofRuns, ncomp: int, places: Any, along: int, j: Any, component: Any
) -> Line:
    """``gather_nodes(LANE, RUNS, ncomp, places, along, j, component)``.

    Line of the nodes of the j-th line in direction ``along``, of one of ``ncomp`` components that
    stand together; ``ncomp`` and ``along`` are constants.
    """
    values = []
    for slots in _line_pointers(lane, runs, ncomp, places, along, j, component):
        value = ir.Constant(lane.llvm, ir.Undefined)
        for slot, pointer in enumerate(slots):
            value = build().insert_element(value, build().load(pointer), ir.IntType(32)(slot))
        values.append(value)
    return pack(lane, values)


def scatter_nodes(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    places: Any,
    along: int,
    j: Any,
    component: Any,
    line: Line,
) -> None:
    """``scatter_nodes(LANE, RUNS, ncomp, places, along, j, component, line)``.

    Adds a line to where ``gather_nodes`` takes it from.
    """
    nodes = _line_pointers(lane, runs, ncomp, places, along, j, component)
    for value, slots in zip(unpack(line), nodes, strict=True):
        # one slot after the other: slots of one batch that share a dof lose no update
        for slot, pointer in enumerate(slots):
            part = build().extract_element(value, ir.IntType(32)(slot))
            build().store(build().fadd(build().load(pointer), part), pointer)


__all__ = ["PLACE_BYTES", "gather_nodes", "locate", "scatter_nodes"]
