"""Rows: the numbers of many vectors at one dof, and lines of nodes with a row for each node.

With many vectors, a slot of a lane is a vector, not an element. So a node is one contiguous load.
``gather_rows`` and ``scatter_rows`` replace ``gather_nodes`` and ``scatter_nodes``, and have the
same arguments. So both kinds of kernels share the source of the work on a batch.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from femops_kernels.simd.lanes import Lane, address_of, call_llvm, splat
from femops_kernels.simd.lines import Line, pack, unpack
from femops_kernels.simd.runs import DofRuns
from femops_kernels.simd.values import (
    FLOAT64,
    INTEGER,
    WORD,
    Traced,
    as_real,
    as_word,
    build,
    declared,
)

ROW_WORD = 8
"""Bytes of an entry of a list of rows: an address."""


def _row_pointers(
    lane: Lane, runs: DofRuns, line: tuple[int, Any, Any], lists: list[tuple[Any, Any]]
) -> list[list[Any]]:
    """Emit the pointers to the lane vectors of a line's nodes: for each node a pointer per list.

    ``line`` is (along, j, component), ``lists`` are pairs of a list of rows (component, node) and
    the byte at which the lane vector begins in each row.
    """
    builder = build()
    along, j, component = line[0], as_word(line[1]), as_word(line[2])
    below, count = math.prod(runs.shape[:along]), runs.shape[along]
    first = builder.mul(j, WORD(count if along == 0 else 1))
    if 0 < along < runs.dim - 1:
        low = builder.urem(j, WORD(below))
        first = builder.add(builder.mul(builder.sub(j, low), WORD(count)), low)
    first = builder.add(first, builder.mul(component, WORD(runs.num_nodes)))
    nodes = []
    for i in range((runs.layers or count) if along == runs.dim - 1 else count):
        node, pointers = Traced(INTEGER, builder.add(first, WORD(i * below))), []
        for rows, offset in lists:
            row = builder.load(address_of(rows, node, ROW_WORD, WORD))
            at = builder.inttoptr(builder.add(row, as_word(offset)), lane.llvm.as_pointer())
            pointers.append(at)
        nodes.append(pointers)
    return nodes


def _slots(lane: Lane, mask: Any) -> Any:
    """Emit a vector of truth values from the bits of a number."""
    bits = build().trunc(as_word(mask), ir.IntType(lane.width))
    return build().bitcast(bits, ir.VectorType(ir.IntType(1), lane.width))


def store_masked(lane: Lane, value: Any, pointer: Any, used: Any) -> None:
    """Emit the store of some slots of a lane vector."""
    align = ir.Constant(ir.IntType(32), lane.itemsize)
    kinds = [value.type, pointer.type, align.type, used.type]
    name = f"llvm.masked.store.{lane.suffix}.p0"
    function = declared(ir.FunctionType(ir.VoidType(), kinds), name)
    build().call(function, [value, pointer, align, used])


def gather_rows(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    rows: tuple[Any, Any, Any],
    along: int,
    j: Any,
    component: Any,
) -> Line:
    """``gather_rows(LANE, RUNS, ncomp, (rows, offset, mask), along, j, component)``.

    Line of the nodes of the j-th line in direction ``along`` (a constant).  ``rows`` is the address
    of the rows' addresses, (component, node); ``offset`` the byte in a row at which the lane vector
    begins; slots whose bit in ``mask`` is not set are zero.
    """
    table, offset, mask = rows
    used = _slots(lane, mask)
    values, zero = [], splat(lane, 0.0)
    for (at,) in _row_pointers(lane, runs, (along, j, component), [(table, offset)]):
        value = build().load(at, align=lane.itemsize)
        values.append(build().select(used, value, zero))
    return pack(lane, values)


def scatter_rows(
    lane: Lane,
    runs: DofRuns,
    ncomp: int,
    rows: tuple[Any, Any, Any, Any, Any],
    along: int,
    j: Any,
    component: Any,
    line: Line,
) -> None:
    """``scatter_rows(LANE, RUNS, ncomp, rows, along, j, component, line)``.

    Multiply a line by a factor, add the rows in the list ``reads``, and store the sums to the rows
    in the list ``writes``. ``rows`` are ``(reads, writes, offset, mask, factor)``, where ``factor``
    has the bits of the factor. See ``gather_rows`` for the other arguments.
    """
    reads, writes, offset, mask, bits = rows
    number = Traced(FLOAT64, build().bitcast(as_word(bits), FLOAT64.llvm))
    factor = splat(lane, as_real(lane.real, number))
    lists = [(reads, offset), (writes, offset)]
    nodes = _row_pointers(lane, runs, (along, j, component), lists)
    used = _slots(lane, mask)
    for value, (read, write) in zip(unpack(line), nodes, strict=True):
        there = build().load(read, align=lane.itemsize)
        store_masked(lane, call_llvm("fma", lane, factor, value, there), write, used)


def load_row(lane: Lane, row: Any, offset: Any) -> Traced:
    """``load_row(LANE, row, offset)``: lane vector at a byte of a row."""
    at = build().add(as_word(row), as_word(offset))
    pointer = build().inttoptr(at, lane.llvm.as_pointer())
    return Traced(lane, build().load(pointer, align=lane.itemsize))


def store_row(lane: Lane, row: Any, offset: Any, mask: Any, value: Traced) -> None:
    """``store_row(LANE, row, offset, mask, value)``: store those slots whose bits are set."""
    at = build().add(as_word(row), as_word(offset))
    pointer = build().inttoptr(at, lane.llvm.as_pointer())
    store_masked(lane, value.value, pointer, _slots(lane, mask))


def bits_of(number: Any) -> Traced:
    """``bits_of(number)``: the bits of a float64 as an integer."""
    return Traced(INTEGER, build().bitcast(as_real(FLOAT64, number), WORD))


def byte(base: Any, k: Any) -> Traced:
    """``byte(address, k)``: entry ``k`` of a uint8 array."""
    value = build().load(address_of(base, k, 1, ir.IntType(8)))
    return Traced(INTEGER, build().zext(value, WORD))


def set_word(base: Any, k: Any, value: Any) -> None:
    """``set_word(address, k, value)``: set entry ``k`` of an int64 array."""
    build().store(as_word(value), address_of(base, k, 8, WORD))


__all__ = [
    "ROW_WORD",
    "bits_of",
    "byte",
    "gather_rows",
    "load_row",
    "scatter_rows",
    "set_word",
    "store_row",
]
