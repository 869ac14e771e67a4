"""Rows: the numbers of many vectors at one dof, and lines of nodes with a row for each node.

With many vectors, a slot of a lane is a vector, not an element. So a node is one contiguous load.
``gather_rows`` and ``scatter_rows`` replace ``gather_nodes`` and ``scatter_nodes``, and have the
same arguments. So both kinds of kernels share the source of the work on a batch.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from femops_kernels.simd.lanes import LaneType, address_of, call_llvm, splat, vector_ir
from femops_kernels.simd.lines import literal, pack, unpack
from femops_kernels.simd.runs import DofRunsType

ROW_WORD = 8
"""Bytes of an entry of a list of rows: an address."""
_WORD = ir.IntType(64)


def _row_pointers(builder: Any, lane: LaneType, runs: Any, line: Any, lists: Any) -> list[Any]:
    """Emit the pointers to the lane vectors of a line's nodes: for each node a pointer per list.

    ``line`` is (along, j, component), ``lists`` are pairs of a list of rows (component, node) and
    the byte at which the lane vector begins in each row.
    """
    along, j, component = line
    below = runs.p1d**along
    first = builder.mul(j, _WORD(runs.p1d if along == 0 else 1))
    if 0 < along < runs.dim - 1:
        low = builder.urem(j, _WORD(below))
        first = builder.add(builder.mul(builder.sub(j, low), _WORD(runs.p1d)), low)
    first = builder.add(first, builder.mul(component, _WORD(runs.p1d**runs.dim)))
    nodes = []
    for i in range(runs.p1d):
        node, pointers = builder.add(first, _WORD(i * below)), []
        for rows, offset in lists:
            row = builder.load(address_of(builder, rows, node, ROW_WORD, _WORD))
            at = builder.inttoptr(builder.add(row, offset), vector_ir(lane).as_pointer())
            pointers.append(at)
        nodes.append(pointers)
    return nodes


def _slots(builder: Any, lane: LaneType, mask: Any) -> Any:
    """Emit a vector of truth values from the bits of a number."""
    bits = builder.trunc(mask, ir.IntType(lane.width))
    return builder.bitcast(bits, ir.VectorType(ir.IntType(1), lane.width))


def store_masked(builder: Any, lane: LaneType, value: Any, pointer: Any, used: Any) -> None:
    """Emit the store of some slots of a lane vector."""
    suffix = "f64" if lane.scalar.bitwidth == 64 else "f32"
    align = ir.Constant(ir.IntType(32), lane.scalar.bitwidth // 8)
    kinds = [value.type, pointer.type, align.type, used.type]
    name = f"llvm.masked.store.v{lane.width}{suffix}.p0"
    function = ir.FunctionType(ir.VoidType(), kinds)
    called = cgutils.get_or_insert_function(builder.module, function, name)
    builder.call(called, [value, pointer, align, used])


def _known(runs: Any, along: Any) -> bool:
    return isinstance(runs, DofRunsType) and literal(along) is not None


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def gather_rows(
    typingctx: Any, lane: Any, runs: Any, ncomp: Any, rows: Any, along: Any, j: Any, component: Any
) -> Any:
    """``gather_rows(LANE, RUNS, ncomp, (rows, offset, mask), along, j, component)``.

    Line of the nodes of the j-th line in direction ``along`` (a constant).  ``rows`` is the address
    of the rows' addresses, (component, node); ``offset`` the byte in a row at which the lane vector
    begins; slots whose bit in ``mask`` is not set are zero.
    """
    if not _known(runs, along):
        return None
    intp = types.intp
    line = types.UniTuple(lane.lane, runs.runs.p1d)
    sig = line(lane, runs, ncomp, types.UniTuple(intp, 3), along, intp, intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, runs = sig.return_type.dtype, sig.args[1].runs
        table, offset, mask = unpack(builder, args[3], 3)
        used = _slots(builder, lane, mask)
        where = literal(sig.args[4]), args[5], args[6]
        values, zero = [], splat(builder, lane, 0.0)
        for (at,) in _row_pointers(builder, lane, runs, where, [(table, offset)]):
            value = builder.load(at, align=lane.scalar.bitwidth // 8)
            values.append(builder.select(used, value, zero))
        return pack(context, builder, sig.return_type, values)

    return sig, codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def scatter_rows(
    typingctx: Any,
    lane: Any,
    runs: Any,
    ncomp: Any,
    rows: Any,
    along: Any,
    j: Any,
    component: Any,
    line: Any,
) -> Any:
    """``scatter_rows(LANE, RUNS, ncomp, rows, along, j, component, line)``.

    Multiply a line by a factor, add the rows in the list ``reads``, and store the sums to the rows
    in the list ``writes``. ``rows`` are ``(reads, writes, offset, mask, factor)``, where ``factor``
    has the bits of the factor. See ``gather_rows`` for the other arguments.
    """
    if not _known(runs, along):
        return None
    intp = types.intp
    sig = types.void(lane, runs, ncomp, types.UniTuple(intp, 5), along, intp, intp, line)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, runs = sig.args[0].lane, sig.args[1].runs
        reads, writes, offset, mask, factor = unpack(builder, args[3], 5)
        factor = builder.bitcast(factor, ir.DoubleType())
        if lane.scalar.bitwidth == 32:
            factor = builder.fptrunc(factor, ir.FloatType())
        factor, size = splat(builder, lane, factor), lane.scalar.bitwidth // 8
        where = literal(sig.args[4]), args[5], args[6]
        lists = [(reads, offset), (writes, offset)]
        nodes = _row_pointers(builder, lane, runs, where, lists)
        used = _slots(builder, lane, mask)
        values = unpack(builder, args[7], sig.args[7].count)
        for value, (read, write) in zip(values, nodes, strict=True):
            there = builder.load(read, align=size)
            total = call_llvm(builder, "fma", lane, factor, value, there)
            store_masked(builder, lane, total, write, used)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(typingctx: Any, number: Any) -> Any:
    """``bits_of(number)``: the bits of a float64 as an integer."""
    sig = types.intp(types.float64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _WORD)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def byte(typingctx: Any, base: Any, k: Any) -> Any:
    """``byte(address, k)``: entry ``k`` of a uint8 array."""
    sig = types.intp(types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(address_of(builder, args[0], args[1], 1, ir.IntType(8)))
        return builder.zext(value, _WORD)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def set_word(typingctx: Any, base: Any, k: Any, value: Any) -> Any:
    """``set_word(address, k, value)``: set entry ``k`` of an int64 array."""
    sig = types.void(types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], address_of(builder, args[0], args[1], 8, _WORD))
        return context.get_dummy_value()

    return sig, codegen


__all__ = ["ROW_WORD", "bits_of", "byte", "gather_rows", "scatter_rows", "set_word"]
