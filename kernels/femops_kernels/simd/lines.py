"""Lines: tuples of lane vectors along one direction, and their contraction by a small matrix.

Five operations make every tensor-product kernel: ``load_line``, ``contract`` and ``store_line``
here, ``gather_nodes`` and ``scatter_nodes`` in ``addresses.py``.  All are unrolled: line lengths
and matrices are constants of a kernel.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from llvmlite import ir

from femops_kernels.errors import KernelValueError
from femops_kernels.simd.lanes import Lane, address_of, load_at, multiply_add, splat, store_at
from femops_kernels.simd.matrix import Matrix1D, Tiles
from femops_kernels.simd.number_tables import constant_table, variable_table
from femops_kernels.simd.values import (
    FLOAT64,
    WORD,
    Traced,
    as_real,
    as_word,
    build,
    call_address,
)

Line = tuple[Traced, ...]


def unpack(line: Line) -> list[Any]:
    """Vectors of LLVM of a line."""
    return [each.value for each in line]


def pack(lane: Lane, values: list[Any]) -> Line:
    """Line of vectors of LLVM."""
    return tuple(Traced(lane, value) for value in values)


def _line_offsets(start: Any, stride: Any, n: int) -> list[Any]:
    return [start + stride * i for i in range(n)]


def load_line(lane: Lane, base: Any, start: Any, stride: Any, n: int) -> Line:
    """``load_line(LANE, address, start, stride, n)``.

    Lane vectors ``start + i stride`` for i < n (a constant).
    """
    return pack(lane, [load_at(lane, base, k) for k in _line_offsets(start, stride, n)])


def store_line(lane: Lane, base: Any, start: Any, stride: Any, line: Line) -> None:
    """``store_line(LANE, address, start, stride, line)``."""
    for k, each in zip(_line_offsets(start, stride, len(line)), line, strict=True):
        store_at(each.kind, base, k, each.value)


def gather(lane: Lane, base: Any, indices: Any, k: Any) -> Traced:
    """``gather(LANE, address, index_address, k)``: the numbers that a group of indices names.

    Indices are int32, none negative.  Each is loaded by itself: taking addresses out of a vector
    costs more than the loads.
    """
    narrow = ir.IntType(32)
    group = address_of(indices, k, 4 * lane.width, narrow)
    numbers = build().inttoptr(as_word(base), lane.real.llvm.as_pointer())
    value = ir.Constant(lane.llvm, ir.Undefined)
    for slot in range(lane.width):
        index = build().zext(build().load(build().gep(group, [WORD(slot)]), align=4), WORD)
        number = build().load(build().gep(numbers, [index]))
        value = build().insert_element(value, number, narrow(slot))
    return Traced(lane, value)


# The coefficients of lines of more operations than these are read from memory by the operations
# themselves: kept in registers over a loop they would be moved to the stack and back.
_SHORT = 20


@final
class _Emitter:
    """Emits one contraction: products by compile-time coefficients, accumulated by FMA."""

    def __init__(self, lane: Lane, matrix: Matrix1D) -> None:
        self.lane = lane
        halves = np.concatenate([half.ravel() for half in matrix.split()])
        distinct = np.unique(np.concatenate([np.ravel(matrix.rows), halves]))
        self.values = distinct if matrix.operations() > _SHORT else distinct[:0]

    def factor(self, c: float) -> Any:
        """A coefficient in every slot."""
        if not len(self.values):
            return splat(self.lane, c)
        place = int(np.searchsorted(self.values, c))
        table = variable_table(self.lane, self.values)
        pointer = build().gep(table, [WORD(0), WORD(place)])
        return splat(self.lane, build().load(pointer))

    def dot(self, coefficients: Any, values: list[Any]) -> Any:
        """``sum_j coefficients[j] values[j]``, exact zeros left out; None for an empty sum."""
        total = None
        for c, value in zip(coefficients, values, strict=True):
            if c == 0.0:
                continue
            total = multiply_add(self.lane, self.factor(float(c)), value, total)
        return total

    def or_zero(self, value: Any) -> Any:
        return splat(self.lane, 0.0) if value is None else value

    def full(self, matrix: Matrix1D, line: list[Any]) -> list[Any]:
        return [self.or_zero(self.dot(row, line)) for row in matrix.rows]

    def split(self, matrix: Matrix1D, line: list[Any]) -> list[Any]:
        """Even-odd: two half-size products, then their sum and difference."""
        builder, (m, n) = build(), matrix.shape
        half = n // 2
        even = [builder.fadd(line[j], line[n - 1 - j]) for j in range(half)] + line[half : n - half]
        odd = [builder.fsub(line[j], line[n - 1 - j]) for j in range(half)]
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
            out[k] = builder.fadd(a, b)
            out[m - 1 - k] = builder.fsub(a, b) if matrix.symmetry > 0 else builder.fsub(b, a)
        return out

    def contract(self, matrix: Matrix1D, line: list[Any]) -> list[Any]:
        if matrix.is_identity:
            return line
        return self.split(matrix, line) if matrix.splits else self.full(matrix, line)


def contract(matrix: Matrix1D, line: Line) -> Line:
    """``contract(B, line)``: ``u[k] = sum_j B[k, j] line[j]``, unrolled.

    (3a)-(4f) of the tensor report.
    """
    m, n = matrix.shape
    if len(line) != n:
        raise KernelValueError(f"a line of {len(line)} meets a matrix of {m} x {n}")
    lane = line[0].kind
    return pack(lane, _Emitter(lane, matrix).contract(matrix, unpack(line)))


def dot_row(matrix: Matrix1D, k: Any, line: Line, part: int) -> Traced:
    """``dot_row(B, k, line, part)``.

    ``sum_j B[k, j] line[part n + j]`` for a row k that is known when it runs; the line has several
    parts (``part`` is a constant) of as many lane vectors as B has columns.  Columns of zeros or
    ones cost no multiplication.
    """
    m, n = matrix.shape
    if len(line) < (part + 1) * n:
        raise KernelValueError(f"part {part} of a line of {len(line)} meets a {m} x {n} matrix")
    lane, rows = line[0].kind, np.array(matrix.rows)
    pointer, row = constant_table(lane, rows), as_word(k)
    total = None
    for j, value in enumerate(unpack(line[part * n : (part + 1) * n])):
        if np.all(rows[:, j] == 0.0):
            continue
        if np.all(rows[:, j] == 1.0):
            total = value if total is None else build().fadd(total, value)
            continue
        at = build().add(build().mul(row, WORD(n)), WORD(j))
        factor = splat(lane, build().load(build().gep(pointer, [at])))
        total = multiply_add(lane, factor, value, total)
    return Traced(lane, splat(lane, 0.0) if total is None else total)


def fill_entry(lane: Lane, matrix: Matrix1D | Tiles, k: Any) -> Traced:
    """``fill_entry(LANE, B, k)``: lane vector whose slots are all the k-th entry of B, by rows."""
    pointer = constant_table(lane, np.array(matrix.rows))
    return Traced(lane, splat(lane, build().load(build().gep(pointer, [as_word(k)]))))


def fill_line(lane: Lane, base: Any, start: Any, n: int) -> Line:
    """``fill_line(LANE, address, start, n)``.

    Lane vectors whose slots are all the number ``address[start + i]``, for i < n (a constant).
    """
    numbers = build().inttoptr(as_word(base), lane.real.llvm.as_pointer())
    values, first = [], as_word(start)
    for i in range(n):
        at = build().add(first, WORD(i))
        values.append(splat(lane, build().load(build().gep(numbers, [at]))))
    return pack(lane, values)


_CHUNK = ir.FunctionType(ir.VoidType(), [WORD] * 5 + [ir.DoubleType()] * 2)
_DRIVER = ir.FunctionType(ir.VoidType(), [WORD] * 8)


def call_chunk(kernel: Any, *arguments: Any) -> None:
    """Call a chunk kernel by its address; see ``skeletons/chunk/chunk.py`` for the arguments."""
    words = [as_word(one) for one in arguments[:5]]
    call_address(kernel, _CHUNK, words + [as_real(FLOAT64, one) for one in arguments[5:]])


def call_driver(driver: Any, *arguments: Any) -> None:
    """Call a driver by its address; see ``skeletons/chunk/driver.py`` for the arguments."""
    call_address(driver, _DRIVER, [as_word(one) for one in arguments])


__all__ = [
    "Matrix1D",
    "Tiles",
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
