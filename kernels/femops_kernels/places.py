"""Places: the addresses at which the runs of a batch's elements begin, and lines of nodes there.

``locate`` makes them of the numbers of a plan; ``gather_nodes`` and ``scatter_nodes`` read a line
of nodes and add to it.  A batch has one address a run and slot, (run, slot) int64.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.lanes import LaneType, address_of, scalar_ir, vector_ir
from femops_kernels.lines import literal, pack, unpack
from femops_kernels.number_tables import word_table
from femops_kernels.runs import Runs, RunsType

PLACE_BYTES = 8
_WORD = ir.IntType(64)


def _words(builder: Any, width: int, number: Any) -> Any:
    """A vector of integers, all equal."""
    zero, vector = ir.IntType(32)(0), ir.VectorType(_WORD, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), number, zero)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [zero] * width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


@final
class _Numbers:
    """Emits the addresses of a group of runs, of the first dofs that a plan numbers."""

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

    ``sides`` are tuples ``(owned, here, elsewhere, places)``.  Of each the k-th group of ``places``
    is set: for each slot the address of dof ``s = starts[k, slot]``, which is ``here + s
    dof_bytes`` if ``s < owned``, else ``elsewhere + s dof_bytes``.  ``index_bytes`` (of the
    unsigned starts) and ``dof_bytes``, one number for each side, are constants.
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


@final
class _Line:
    """Emits the addresses of the nodes of a line: for each node a list, one for each slot.

    The addresses of the runs are loaded as numbers: taking them out of a vector costs more.
    """

    def __init__(self, builder: Any, lane: LaneType, runs: Runs, along: int, ncomp: int) -> None:
        self.builder, self.lane = builder, lane
        size = lane.scalar.bitwidth // 8
        lines = range(runs.p1d ** (runs.dim - 1))
        pieces = np.array([runs.line(along, j) for j in lines])  # (line, piece, what)
        self.counts = pieces[0, :, 3]
        self.columns = 3 * len(self.counts)
        bytes_of = np.array([lane.width * PLACE_BYTES, ncomp * size, ncomp * size])
        self.table = (pieces[:, :, :3] * bytes_of).reshape(-1)
        self.size = size

    def pointers(self, places: Any, j: Any, component: Any) -> list[list[Any]]:
        build, byte = self.builder, ir.IntType(8).as_pointer()
        table = word_table(build, self.table)
        row = build.mul(j, _WORD(self.columns))
        inside = build.mul(component, _WORD(self.size))
        nodes = []
        for piece, count in enumerate(self.counts):
            run, place, stride = (
                build.load(build.gep(table, [build.add(row, _WORD(3 * piece + what))]))
                for what in range(3)
            )
            at = build.inttoptr(build.add(places, run), _WORD.as_pointer())
            slots = range(self.lane.width)
            bases = [build.inttoptr(build.load(build.gep(at, [_WORD(s)])), byte) for s in slots]
            place = build.add(place, inside)
            for i in range(count):
                moved = build.add(place, build.mul(stride, _WORD(i))) if i else place
                nodes.append([self._pointer(base, moved) for base in bases])
        return nodes

    def _pointer(self, base: Any, moved: Any) -> Any:
        pointer = self.builder.gep(base, [moved])
        return self.builder.bitcast(pointer, scalar_ir(self.lane).as_pointer())


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
    if not isinstance(runs, RunsType) or literal(ncomp) is None or literal(along) is None:
        return None
    intp = types.intp
    line = types.UniTuple(lane.lane, runs.runs.p1d)
    sig = line(lane, runs, ncomp, intp, along, intp, intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        of = sig.args[1].runs, literal(sig.args[4]), literal(sig.args[2])
        emitter = _Line(builder, sig.return_type.dtype, *of)
        values = []
        for slots in emitter.pointers(args[3], args[5], args[6]):
            value = ir.Constant(vector_ir(emitter.lane), ir.Undefined)
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
    if not isinstance(runs, RunsType) or literal(ncomp) is None or literal(along) is None:
        return None
    sig = types.void(lane, runs, ncomp, types.intp, along, types.intp, types.intp, line)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        of = sig.args[1].runs, literal(sig.args[4]), literal(sig.args[2])
        emitter = _Line(builder, sig.args[0].lane, *of)
        values = unpack(builder, args[7], sig.args[7].count)
        for value, slots in zip(values, emitter.pointers(args[3], args[5], args[6]), strict=True):
            # one slot after the other: slots of one batch that share a dof lose no update
            for slot, pointer in enumerate(slots):
                part = builder.extract_element(value, ir.IntType(32)(slot))
                builder.store(builder.fadd(builder.load(pointer), part), pointer)
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["gather_nodes", "locate", "scatter_nodes"]
