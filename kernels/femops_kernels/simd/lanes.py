"""Lanes: SIMD vectors as numbers of a kernel.

A lane vector is an LLVM vector ``<width x double>`` (or ``float``) that kernels pass around like a
number.  The caller decides what a slot stands for: an element of a batch, or one of many vectors.

Memory is addressed by plain integers: kernels are called from compiled code with a table of
addresses, and no array descriptor travels with them.  Every offset counts whole lanes.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from llvmlite import ir

from femops_kernels.errors import KernelError
from femops_kernels.simd.values import (
    FLOAT32,
    FLOAT64,
    INTEGER,
    WORD,
    Numbers,
    Real,
    Traced,
    as_real,
    as_word,
    build,
    declared,
)

WIDTHS = (2, 4, 8, 16)
WIDEST = max(WIDTHS)
"""Slots of the sums whose bits must not depend on the width of lanes."""

_EMITTED = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}


@final
class Lane:
    """A lane format: the number of slots, and their float type. It is the kind of lane vectors."""

    rank = 0  # complex numbers in lanes decide on operations with lane vectors

    def __init__(self, width: int, dtype: Any = "float64", *, strict: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self.width, self.strict = width, strict
        if width not in WIDTHS:
            raise KernelError(f"lanes are {width} wide: choose one of {WIDTHS}")
        if self.dtype not in (np.dtype("float64"), np.dtype("float32")):
            raise KernelError(f"lanes of {self.dtype}: choose float64 or float32")

    @property
    def itemsize(self) -> int:
        """Bytes of one slot."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of one lane vector."""
        return self.width * self.itemsize

    @property
    def real(self) -> Real:
        """Kind of one slot."""
        return FLOAT64 if self.itemsize == 8 else FLOAT32

    @property
    def suffix(self) -> str:
        """End of the names of LLVM's functions for vectors of this type."""
        return f"v{self.width}f{8 * self.itemsize}"

    @property
    def llvm(self) -> Any:
        """LLVM's type of a lane vector."""
        return ir.VectorType(self.real.llvm, self.width)

    def operation(self, name: str, a: Any, b: Any) -> Any:
        """Emit an operation of two lane vectors, or of one and a number."""
        if name not in _EMITTED:
            raise KernelError(f"kernels have no {name} of lane vectors")
        first, second = as_vector(self, a), as_vector(self, b)
        if self.strict:
            return Traced(self, _strict(_EMITTED[name], self, first, second))
        # a product and a sum may become one fused operation, which rounds once instead of twice
        emit = getattr(build(), _EMITTED[name])
        return Traced(self, emit(first, second, flags=("contract",)))

    def negative(self, value: Any) -> Any:
        """Emit the negative of a lane vector of LLVM."""
        return build().fneg(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lane) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        strict = ", strict=True" if self.strict else ""
        return f"Lane({self.width}, {self.dtype.name!r}{strict})"


def splat(lane: Lane, scalar: Any) -> Any:
    """Emit a vector with every slot equal to a number: a float, or LLVM's value."""
    vector, narrow = lane.llvm, ir.IntType(32)
    if isinstance(scalar, float):
        return ir.Constant(vector, [ir.Constant(lane.real.llvm, scalar)] * lane.width)
    undefined = ir.Constant(vector, ir.Undefined)
    one = build().insert_element(undefined, scalar, narrow(0))
    mask = ir.Constant(ir.VectorType(narrow, lane.width), [narrow(0)] * lane.width)
    return build().shuffle_vector(one, undefined, mask)


def as_vector(lane: Lane, number: Any) -> Any:
    """Emit a lane vector as LLVM's value; numbers become lanes with every slot equal."""
    if isinstance(number, Traced) and isinstance(number.kind, Lane):
        if number.kind != lane:
            raise KernelError(f"{number.kind} meets {lane}")
        return number.value
    if isinstance(number, int | float):
        return splat(lane, float(number))
    return splat(lane, as_real(lane.real, number))


def call_llvm(name: str, lane: Lane, *values: Any) -> Any:
    """Emit the call of a function that LLVM has for vectors, on values of LLVM."""
    function = ir.FunctionType(lane.llvm, [lane.llvm] * len(values))
    return build().call(declared(function, f"llvm.{name}.{lane.suffix}"), values)


def multiply_add(lane: Lane, factor: Any, value: Any, total: Any) -> Any:
    """Emit ``factor * value + total``, rounded once; the product alone where total is None.

    Every contraction is sums of these: lines by known matrices, and matrices of a batch.
    """
    if total is None:
        return build().fmul(factor, value)
    return call_llvm("fma", lane, factor, value, total)


def _strict(emit: str, lane: Lane, a: Any, b: Any) -> Any:
    """Emit an operation of strict lanes. In a sum, an operand that is a product is fused.

    If both operands are products, the first is fused.
    """
    first, second = (isinstance(v, ir.Instruction) and v.opname == "fmul" for v in (a, b))
    if emit == "fadd" and (first or second):
        (left, right), rest = ((a if first else b).operands, b if first else a)
        return call_llvm("fma", lane, left, right, rest)
    if emit == "fsub" and first:
        return call_llvm("fma", lane, *a.operands, build().fneg(b))
    if emit == "fsub" and second:
        left, right = b.operands
        return call_llvm("fma", lane, build().fneg(left), right, a)
    return getattr(build(), emit)(a, b)


def address_of(base: Any, offset: Any, nbytes: int, pointee: Any) -> Any:
    """Emit the pointer ``base + offset * nbytes``; base and offset are integers."""
    if isinstance(offset, int):
        return build().inttoptr(as_word(base + offset * nbytes), pointee.as_pointer())
    if nbytes == _size(pointee):
        pointer = build().inttoptr(as_word(base), pointee.as_pointer())
        return build().gep(pointer, [as_word(offset)])
    pointer = build().inttoptr(as_word(base), ir.IntType(8).as_pointer())
    moved = build().gep(pointer, [build().mul(as_word(offset), WORD(nbytes))])
    return build().bitcast(moved, pointee.as_pointer())


def _size(kind: Any) -> int:
    """Bytes of a number or of a vector of LLVM."""
    if isinstance(kind, ir.VectorType):
        return int(kind.count) * _size(kind.element)
    if isinstance(kind, ir.IntType):
        return int(kind.width) // 8
    return 8 if isinstance(kind, ir.DoubleType) else 4


def load_at(lane: Lane, base: Any, offset: Any) -> Any:
    """Emit the load of lane vector number ``offset``; alignment is that of one slot."""
    pointer = address_of(base, offset, lane.nbytes, lane.llvm)
    return build().load(pointer, align=lane.itemsize)


def store_at(lane: Lane, base: Any, offset: Any, value: Any) -> None:
    """Emit the store of lane vector number ``offset``, a value of LLVM."""
    pointer = address_of(base, offset, lane.nbytes, lane.llvm)
    build().store(value, pointer, align=lane.itemsize)


def load(lane: Lane, base: Any, offset: Any) -> Traced:
    """``load(LANE, address, k)``: lane vector number ``k`` from ``address`` on."""
    return Traced(lane, load_at(lane, base, offset))


def store(lane: Lane, base: Any, offset: Any, value: Any) -> None:
    """``store(LANE, address, k, value)``."""
    store_at(lane, base, offset, as_vector(lane, value))


def fill(lane: Lane, value: Any) -> Traced:
    """``fill(LANE, number)``: every slot equal to ``number``."""
    return Traced(lane, as_vector(lane, value))


def widen(lane: Lane, line: Any) -> tuple[Traced, ...]:
    """``widen(LANE, line)``: a line of lane vectors of LANE's type or a narrower one, as LANE's."""
    return tuple(
        each if each.kind == lane else Traced(lane, build().fpext(each.value, lane.llvm))
        for each in line
    )


def fma(a: Any, b: Any, c: Any) -> Traced:
    """``a * b + c`` on lane vectors, rounded once."""
    lane = next(each.kind for each in (a, b, c) if isinstance(each, Traced))
    return Traced(lane, call_llvm("fma", lane, *(as_vector(lane, each) for each in (a, b, c))))


def prefetch(base: Any, offset: Any, level: int) -> None:
    """``prefetch(address, k, level)``: ask for the cache line at byte ``address + k``.

    It goes to the first- or second-level cache (``level`` 1 or 2, a constant); harmless at any
    address.
    """
    narrow = ir.IntType(32)
    pointer = address_of(base, offset, 1, ir.IntType(8))
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, narrow, narrow, narrow])
    # llvmlite >= 0.44 prints opaque pointers: the overload's suffix is p0
    function = declared(kind, "llvm.prefetch.p0")
    build().call(function, [pointer, narrow(0), narrow(4 - level), narrow(1)])


def get(lane: Lane, base: Any, k: Any) -> Traced:
    """``get(LANE, address, k)``: number ``k`` of an array of the lane's scalar type."""
    pointer = address_of(base, k, lane.itemsize, lane.real.llvm)
    return Traced(lane.real, build().load(pointer))


def put(lane: Lane, base: Any, k: Any, value: Any) -> None:
    """``put(LANE, address, k, number)``."""
    pointer = address_of(base, k, lane.itemsize, lane.real.llvm)
    build().store(as_real(lane.real, value), pointer)


def slot_sum(value: Traced) -> Traced:
    """``slot_sum(lane)``: sum of a lane vector's slots, from the first to the last, in float64."""
    total = None
    for slot in range(value.kind.width):
        number = build().extract_element(value.value, ir.IntType(32)(slot))
        number = as_real(FLOAT64, Traced(value.kind.real, number))
        total = number if total is None else build().fadd(total, number)
    return Traced(FLOAT64, total)


def narrow(lane: Lane, line: Any) -> tuple[Traced, ...]:
    """``narrow(LANE, line)``: a line of lane vectors of LANE's type or a wider one, as LANE's."""
    return tuple(
        each if each.kind == lane else Traced(lane, build().fptrunc(each.value, lane.llvm))
        for each in line
    )


def word(base: Any, k: Any) -> Traced:
    """``word(address, k)``: entry ``k`` of an int64 array."""
    return Traced(INTEGER, build().load(address_of(base, k, 8, WORD)))


def put_word(base: Any, k: Any, number: Any) -> None:
    """``put_word(address, k, number)``: write entry ``k`` of an int64 array."""
    build().store(as_word(number), address_of(base, k, 8, WORD))


def half_word(base: Any, k: Any) -> Traced:
    """``half_word(address, k)``: entry ``k`` of an int32 array, as an integer."""
    value = build().load(address_of(base, k, 4, ir.IntType(32)))
    return Traced(INTEGER, build().sext(value, WORD))


def numbers(lane: Lane, base: Any) -> Traced:
    """``numbers(LANE, address)``: numbers of the lane's scalar type, to be indexed."""
    kind = Numbers(lane.real)
    return Traced(kind, build().inttoptr(as_word(base), kind.llvm))


__all__ = [
    "WIDTHS",
    "Lane",
    "fill",
    "fma",
    "get",
    "half_word",
    "load",
    "narrow",
    "numbers",
    "prefetch",
    "put",
    "put_word",
    "slot_sum",
    "store",
    "widen",
    "word",
]
