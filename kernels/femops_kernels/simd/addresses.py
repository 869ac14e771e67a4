"""Places: the addresses at which the runs of a batch's elements begin, and lines of nodes there.

``locate`` computes the places from the dof numbers of a plan. ``gather_nodes`` reads a line of
nodes, and ``scatter_nodes`` adds to it. The places of a batch are (run, slot) int64.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import LaneType, address_of, scalar_ir, vector_ir
from femops_kernels.simd.lines import literal, pack, unpack
from femops_kernels.simd.number_tables import word_table
from femops_kernels.simd.runs import DofRunsType

PLACE_BYTES = 8
_WORD = ir.IntType(64)


def _words(builder: Any, width: int, number: Any) -> Any:
    """Emit a vector of ``width`` integers that all equal ``number``."""
    zero, vector = ir.IntType(32)(0), ir.VectorType(_WORD, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, zero)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [zero] * width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


@final
class _Numbers:
    """Emits the addresses of the first dofs of a group of runs, from the plan's dof numbers."""

    def __init__(self, builder: Any, width: int, starts: Any, itemsize: int, k: Any) -> None:
        self.builder, self.width, self.k = builder, width, k
        narrow = ir.VectorType(ir.IntType(8 * itemsize), width)
        self.wide = ir.VectorType(_WORD, width)
        source = address_of(builder, starts, k, width * itemsize, narrow)
        self.numbers = builder.zext(builder.load(source, align=itemsize), self.wide)

    def write(self, side: Any, dof_bytes: int) -> None:
        build, width = self.builder, self.width
        owned, here, elsewhere, places = (build.extract_value(side, i) for i in range(4))
        inside = build.icmp_unsigned("<", self.numbers, _words(build, width, owned))
        bases = (_words(build, width, base) for base in (here, elsewhere))
        moved = build.mul(self.numbers, ir.Constant(self.wide, [_WORD(dof_bytes)] * width))
        target = address_of(build, places, self.k, width * PLACE_BYTES, self.wide)
        build.store(build.add(build.select(inside, *bases), moved), target, align=PLACE_BYTES)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def locate(
    typingctx: Any, lane: Any, starts: Any, index_bytes: Any, k: Any, sides: Any, dof_bytes: Any
) -> Any:
    """``locate(LANE, starts, index_bytes, k, sides, dof_bytes)``.

    Set the k-th group of ``places`` of each side. ``sides`` are tuples ``(owned, here, elsewhere,
    places)``. A slot's place is the address of dof ``s = starts[k, slot]``: ``here + s dof_bytes``
    if ``s < owned``, else ``elsewhere + s dof_bytes``. ``index_bytes`` is the size of an unsigned
    start. It is a constant, and so is ``dof_bytes``, a tuple with one number for each side.
    """
    if literal(index_bytes) is None or any(literal(n) is None for n in dof_bytes):
        return None
    sig = types.void(lane, types.intp, index_bytes, types.intp, sides, dof_bytes)
    width = lane.lane.width

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        numbers = _Numbers(builder, width, args[1], literal(index_bytes), args[3])
        for i, nbytes in enumerate(dof_bytes):
            numbers.write(builder.extract_value(args[4], i), literal(nbytes))
        return context.get_dummy_value()

    return sig, codegen


def _known(runs: Any, ncomp: Any, along: Any) -> bool:
    """True if a line's arguments are constants. Intrinsics of lines require constants."""
    return isinstance(runs, DofRunsType) and None not in (literal(ncomp), literal(along))


def _line_pointers(builder: Any, lane: LaneType, kinds: Any, args: Any) -> list[list[Any]]:
    """Emit the addresses of the nodes of a line: for each node a list, one for each slot.

    The line is named by the arguments of ``gather_nodes``.  The addresses of the runs are loaded as
    numbers: taking them out of a vector costs more.
    """
    runs, ncomp, along = kinds[1].runs, literal(kinds[2]), literal(kinds[4])
    _, _, _, places, _, j, component = args[:7]
    size, width, real = lane.scalar.bitwidth // 8, lane.width, scalar_ir(lane).as_pointer()
    lines = range(runs.p1d ** (runs.dim - 1))
    pieces = np.array([runs.line(along, k) for k in lines])  # (line, piece, what)
    bytes_of = np.array([width * PLACE_BYTES, ncomp * size, ncomp * size])
    table = word_table(builder, (pieces[:, :, :3] * bytes_of).reshape(-1))
    row = builder.mul(j, _WORD(3 * pieces.shape[1]))
    inside = builder.mul(component, _WORD(size))
    nodes = []
    for piece, count in enumerate(pieces[0, :, 3]):
        run, place, stride = (
            builder.load(builder.gep(table, [builder.add(row, _WORD(3 * piece + what))]))
            for what in range(3)
        )
        at = builder.inttoptr(builder.add(places, run), _WORD.as_pointer())
        starts = [builder.load(builder.gep(at, [_WORD(slot)])) for slot in range(width)]
        place = builder.add(place, inside)
        for i in range(count):
            moved = builder.add(place, builder.mul(stride, _WORD(i))) if i else place
            nodes.append([builder.inttoptr(builder.add(start, moved), real) for start in starts])
    return nodes


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def gather_nodes(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    places: Any,
    along: Any,
    j: Any,
    component: Any,
) -> Any:
    """``gather_nodes(LANE, RUNS, ncomp, places, along, j, component)``.

    Line of the nodes of the j-th line in direction ``along``, of one of ``ncomp`` components that
    stand together; ``ncomp`` and ``along`` are constants.
    """
    if not _known(runs, ncomp, along):
        return None
    intp = types.intp
    line = types.UniTuple(lane.lane, runs.runs.p1d)
    sig = line(lane, runs, ncomp, intp, along, intp, intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, values = sig.return_type.dtype, []
        for slots in _line_pointers(builder, lane, sig.args, args):
            value = ir.Constant(vector_ir(lane), ir.Undefined)
            for slot, pointer in enumerate(slots):
                value = builder.insert_element(value, builder.load(pointer), ir.IntType(32)(slot))
            values.append(value)
        return pack(context, builder, sig.return_type, values)

    return sig, codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def scatter_nodes(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    places: Any,
    along: Any,
    j: Any,
    component: Any,
    line: Any,
) -> Any:
    """``scatter_nodes(LANE, RUNS, ncomp, places, along, j, component, line)``.

    Adds a line to where ``gather_nodes`` takes it from.
    """
    if not _known(runs, ncomp, along):
        return None
    sig = types.void(lane, runs, ncomp, types.intp, along, types.intp, types.intp, line)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        nodes = _line_pointers(builder, sig.args[0].lane, sig.args, args)
        values = unpack(builder, args[7], sig.args[7].count)
        for value, slots in zip(values, nodes, strict=True):
            # one slot after the other: slots of one batch that share a dof lose no update
            for slot, pointer in enumerate(slots):
                part = builder.extract_element(value, ir.IntType(32)(slot))
                builder.store(builder.fadd(builder.load(pointer), part), pointer)
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["PLACE_BYTES", "gather_nodes", "locate", "scatter_nodes"]
