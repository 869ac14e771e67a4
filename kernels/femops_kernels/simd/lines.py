"""Lines: tuples of lane vectors along one direction, and their contraction by a small matrix.

Five operations make every tensor-product kernel: ``load_line``, ``contract`` and ``store_line``
here, ``gather_nodes`` and ``scatter_nodes`` in ``addresses.py``.  All are unrolled when compiled:
line lengths and matrices are part of the types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from femops_kernels.errors import KernelValueError
from femops_kernels.simd.lanes import (
    LaneType,
    address_of,
    load_at,
    multiply_add,
    scalar_ir,
    splat,
    store_at,
    vector_ir,
)
from femops_kernels.simd.matrix import Matrix1D, Matrix1DType
from femops_kernels.simd.number_tables import constant_table, variable_table


def literal(n: Any) -> Any:
    """A constant argument of an intrinsic; None if it is not constant."""
    return n.literal_value if isinstance(n, types.IntegerLiteral) else None


def unpack(builder: Any, line: Any, n: int) -> list[Any]:
    return [builder.extract_value(line, i) for i in range(n)]


def pack(context: Any, builder: Any, line_type: Any, values: list[Any]) -> Any:
    return context.make_tuple(builder, line_type, values)


def _line_offsets(builder: Any, start: Any, stride: Any, n: int) -> list[Any]:
    return [builder.add(start, builder.mul(stride, ir.Constant(stride.type, i))) for i in range(n)]


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def load_line(typingctx: Any, lane: Any, base: Any, start: Any, stride: Any, n: Any) -> Any:
    """``load_line(LANE, address, start, stride, n)``.

    Lane vectors ``start + i stride`` for i < n (a constant).
    """
    if literal(n) is None:
        return None
    sig = types.UniTuple(lane.lane, literal(n))(lane, types.intp, types.intp, types.intp, n)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line = sig.return_type
        offsets = _line_offsets(builder, args[2], args[3], line.count)
        return pack(
            context, builder, line, [load_at(builder, line.dtype, args[1], k) for k in offsets]
        )

    return sig, codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def store_line(typingctx: Any, lane: Any, base: Any, start: Any, stride: Any, line: Any) -> Any:
    """``store_line(LANE, address, start, stride, line)``."""
    sig = types.void(lane, types.intp, types.intp, types.intp, line)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line = sig.args[4]
        values = unpack(builder, args[4], line.count)
        for k, value in zip(
            _line_offsets(builder, args[2], args[3], line.count), values, strict=True
        ):
            store_at(builder, line.dtype, args[1], k, value)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def gather(typingctx: Any, lane: Any, base: Any, indices: Any, k: Any) -> Any:
    """``gather(LANE, address, index_address, k)``: the numbers that a group of indices names.

    Indices are int32, none negative.  Each is loaded by itself: taking addresses out of a vector
    costs more than the loads.
    """
    sig = lane.lane(lane, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, narrow, wide = sig.return_type, ir.IntType(32), ir.IntType(64)
        group = address_of(builder, args[2], args[3], 4 * lane.width, narrow)
        numbers = builder.inttoptr(args[1], scalar_ir(lane).as_pointer())
        value = ir.Constant(vector_ir(lane), ir.Undefined)
        for slot in range(lane.width):
            index = builder.zext(builder.load(builder.gep(group, [wide(slot)]), align=4), wide)
            number = builder.load(builder.gep(numbers, [index]))
            value = builder.insert_element(value, number, narrow(slot))
        return value

    return sig, codegen


# The coefficients of lines of more operations than these are read from memory by the operations
# themselves: kept in registers over a loop they would be moved to the stack and back.
_SHORT = 20


class _Emitter:
    """Emits one contraction: products by compile-time coefficients, accumulated by FMA."""

    def __init__(self, builder: Any, lane: LaneType, matrix: Matrix1D) -> None:
        self.builder, self.lane = builder, lane
        halves = np.concatenate([half.ravel() for half in matrix.split()])
        distinct = np.unique(np.concatenate([np.ravel(matrix.rows), halves]))
        self.values = distinct if matrix.operations() > _SHORT else distinct[:0]

    def factor(self, c: float) -> Any:
        """A coefficient in every slot."""
        if not len(self.values):
            return splat(self.builder, self.lane, c)
        place = int(np.searchsorted(self.values, c))
        table = variable_table(self.builder, self.lane, self.values)
        pointer = self.builder.gep(table, [ir.IntType(64)(0), ir.IntType(64)(place)])
        return splat(self.builder, self.lane, self.builder.load(pointer))

    def dot(self, coefficients: Any, values: list[Any]) -> Any:
        """``sum_j coefficients[j] values[j]``, exact zeros left out; None for an empty sum."""
        total = None
        for c, value in zip(coefficients, values, strict=True):
            if c == 0.0:
                continue
            total = multiply_add(self.builder, self.lane, self.factor(float(c)), value, total)
        return total

    def or_zero(self, value: Any) -> Any:
        return splat(self.builder, self.lane, 0.0) if value is None else value

    def full(self, matrix: Matrix1D, line: list[Any]) -> list[Any]:
        return [self.or_zero(self.dot(row, line)) for row in matrix.rows]

    def split(self, matrix: Matrix1D, line: list[Any]) -> list[Any]:
        """Even-odd: two half-size products, then their sum and difference."""
        build, (m, n) = self.builder, matrix.shape
        half = n // 2
        even = [build.fadd(line[j], line[n - 1 - j]) for j in range(half)] + line[half : n - half]
        odd = [build.fsub(line[j], line[n - 1 - j]) for j in range(half)]
        coefficients_even, coefficients_odd = matrix.split()
        out: list[Any] = [None] * m
        for k in range((m + 1) // 2):
            if 2 * k == m - 1:
                part = (
                    self.dot(coefficients_even[k], even)
                    if matrix.symmetry > 0
                    else self.dot(coefficients_odd[k], odd)
                )
                out[k] = self.or_zero(part)
                continue
            a = self.or_zero(self.dot(coefficients_even[k], even))
            b = self.or_zero(self.dot(coefficients_odd[k], odd))
            out[k] = build.fadd(a, b)
            out[m - 1 - k] = build.fsub(a, b) if matrix.symmetry > 0 else build.fsub(b, a)
        return out

    def contract(self, matrix: Matrix1D, line: list[Any]) -> list[Any]:
        if matrix.is_identity:
            return line
        m, n = matrix.shape
        pays = matrix.operations() < m * n and not matrix.is_diagonal
        return self.split(matrix, line) if pays else self.full(matrix, line)


@intrinsic  # type: ignore[untyped-decorator]
def contract(typingctx: Any, matrix: Any, line: Any) -> Any:
    """``contract(B, line)``: ``u[k] = sum_j B[k, j] line[j]``, unrolled.

    (3a)-(4f) of the tensor report.
    """
    if not isinstance(matrix, Matrix1DType):
        return None
    m, n = matrix.matrix.shape
    if line.count != n:
        raise KernelValueError(f"a line of {line.count} meets a matrix of {m} x {n}")
    sig = types.UniTuple(line.dtype, m)(matrix, line)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        matrix = sig.args[0].matrix
        emitter = _Emitter(builder, sig.args[1].dtype, matrix)
        values = emitter.contract(matrix, unpack(builder, args[1], sig.args[1].count))
        return pack(context, builder, sig.return_type, values)

    return sig, codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def dot_row(typingctx: Any, matrix: Any, k: Any, line: Any, part: Any) -> Any:
    """``dot_row(B, k, line, part)``.

    ``sum_j B[k, j] line[part n + j]`` for a row k that is known when it runs; the line has several
    parts (``part`` is a constant) of as many lane vectors as B has columns.  Columns of zeros or
    ones cost no multiplication.
    """
    if not isinstance(matrix, Matrix1DType) or literal(part) is None:
        return None
    m, n = matrix.matrix.shape
    first = literal(part) * n
    if line.count < first + n:
        which = first // n
        raise KernelValueError(f"part {which} of a line of {line.count} meets a {m} x {n} matrix")
    sig = line.dtype(matrix, types.intp, line, part)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, rows = sig.args[2].dtype, np.array(sig.args[0].matrix.rows)
        pointer = constant_table(builder, lane, rows)
        total = None
        values = unpack(builder, args[2], sig.args[2].count)[first : first + n]
        for j, value in enumerate(values):
            if np.all(rows[:, j] == 0.0):
                continue
            if np.all(rows[:, j] == 1.0):
                total = value if total is None else builder.fadd(total, value)
                continue
            at = builder.add(builder.mul(args[1], args[1].type(n)), args[1].type(j))
            factor = splat(builder, lane, builder.load(builder.gep(pointer, [at])))
            total = multiply_add(builder, lane, factor, value, total)
        return splat(builder, lane, 0.0) if total is None else total

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def fill_entry(typingctx: Any, lane: Any, matrix: Any, k: Any) -> Any:
    """``fill_entry(LANE, B, k)``: lane vector whose slots are all the k-th entry of B, by rows."""
    if not isinstance(matrix, Matrix1DType):
        return None
    sig = lane.lane(lane, matrix, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane, rows = sig.return_type, np.array(sig.args[1].matrix.rows)
        pointer = constant_table(builder, lane, rows)
        return splat(builder, lane, builder.load(builder.gep(pointer, [args[2]])))

    return sig, codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def fill_line(typingctx: Any, lane: Any, base: Any, start: Any, n: Any) -> Any:
    """``fill_line(LANE, address, start, n)``.

    Lane vectors whose slots are all the number ``address[start + i]``, for i < n (a constant).
    """
    if literal(n) is None:
        return None
    sig = types.UniTuple(lane.lane, literal(n))(lane, types.intp, types.intp, n)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        line = sig.return_type
        numbers = builder.inttoptr(args[1], scalar_ir(line.dtype).as_pointer())
        values = []
        for i in range(line.count):
            at = builder.add(args[2], args[2].type(i))
            values.append(splat(builder, line.dtype, builder.load(builder.gep(numbers, [at]))))
        return pack(context, builder, line, values)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def call_chunk(
    typingctx: Any,
    kernel: Any,
    table: Any,
    x: Any,
    y: Any,
    chunk: Any,
    work: Any,
    alpha: Any,
    beta: Any,
) -> Any:
    """Call a chunk kernel by its address; see ``skeletons/chunk/chunk.py`` for the arguments."""
    six = [types.intp] * 6
    sig = types.void(*six, types.float64, types.float64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, real = ir.IntType(64), ir.DoubleType()
        fnty = ir.FunctionType(ir.VoidType(), [i64] * 5 + [real, real])
        builder.call(builder.inttoptr(args[0], fnty.as_pointer()), args[1:])
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def call_driver(
    typingctx: Any,
    driver: Any,
    rows: Any,
    alphas: Any,
    count: Any,
    x: Any,
    y: Any,
    work: Any,
    work_bytes: Any,
    team: Any,
) -> Any:
    """Call a driver by its address; see ``skeletons/chunk/driver.py`` for the arguments."""
    sig = types.void(*[types.intp] * 9)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fnty = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 8)
        builder.call(builder.inttoptr(args[0], fnty.as_pointer()), args[1:])
        return context.get_dummy_value()

    return sig, codegen


__all__ = [
    "Matrix1D",
    "call_chunk",
    "call_driver",
    "contract",
    "dot_row",
    "fill_entry",
    "fill_line",
    "gather",
    "load_line",
    "store_line",
]
