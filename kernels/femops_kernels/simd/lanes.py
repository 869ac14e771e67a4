"""Lanes: SIMD vectors as numba values.

A lane vector is an LLVM vector ``<width x double>`` (or ``float``) that numba code passes around
like a number.  The caller decides what a slot stands for: an element of a batch, or one of
many vectors.

Memory is addressed by plain integers (``intp`` byte addresses): kernels are called from compiled
code with a table of addresses, and no array descriptor travels with them.  Every offset counts
whole lanes.
"""

from __future__ import annotations

import operator
from typing import Any, final

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_builtin, lower_cast, lower_constant
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, typeof_impl

from femops_kernels.errors import KernelError

WIDTHS = (2, 4, 8, 16)
WIDEST = max(WIDTHS)
"""Slots of the sums whose bits must not depend on the width of lanes."""


@final
class Lane:
    """A lane format: how many slots, of which float type.

    Parameters
    ----------
    width : int
        Slots: 2, 4, 8 or 16.
    dtype : str or numpy.dtype
        ``float64`` or ``float32``.
    strict : bool
        Whether results have the same bits for every width and processor. The program then decides
        which products and sums become fused operations, not the compiler.

    Raises
    ------
    KernelError
        For another width or type.
    """

    def __init__(self, width: int, dtype: Any = "float64", *, strict: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self.width, self.strict = width, strict
        if width not in WIDTHS:
            raise KernelError(f"lanes are {width} wide: choose one of {WIDTHS}")
        if self.dtype not in (np.dtype("float64"), np.dtype("float32")):
            raise KernelError(f"lanes of {self.dtype}: choose float64 or float32")

    @property
    def nbytes(self) -> int:
        """Bytes of one lane vector."""
        return self.width * self.dtype.itemsize

    def __repr__(self) -> str:
        strict = ", strict=True" if self.strict else ""
        return f"Lane({self.width}, {self.dtype.name!r}{strict})"


@final
class LaneType(types.Type):  # type: ignore[misc]  # numba has no types
    """Numba's type of a lane vector."""

    def __init__(self, width: int, scalar: types.Float, strict: bool = False) -> None:
        self.width = width
        self.scalar = scalar
        self.strict = strict
        super().__init__(name=f"{'strict ' * strict}lane<{width} x {scalar}>")

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        """Numbers become lanes with every slot equal."""
        return Conversion.safe if isinstance(other, types.Number) else None


@final
class LaneFormatType(types.Dummy):  # type: ignore[misc]
    """Numba's type of a :class:`Lane` object: all of it is known when compiling."""

    def __init__(self, width: int, scalar: types.Float, strict: bool = False) -> None:
        self.lane = LaneType(width, scalar, strict)
        super().__init__(name=f"{'strict ' * strict}lane_format<{width} x {scalar}>")

    @property
    def itemsize(self) -> int:
        """Bytes of one slot."""
        return int(self.lane.scalar.bitwidth // 8)

    @property
    def nbytes(self) -> int:
        """Bytes of one lane vector."""
        return int(self.lane.width) * self.itemsize


@typeof_impl.register(Lane)  # type: ignore[untyped-decorator]
def _typeof_lane(value: Lane, context: Any) -> LaneFormatType:
    scalar = types.float64 if value.dtype.itemsize == 8 else types.float32
    return LaneFormatType(value.width, scalar, value.strict)


def scalar_ir(lane: LaneType) -> ir.Type:
    """LLVM type of one slot."""
    return ir.DoubleType() if lane.scalar == types.float64 else ir.FloatType()


def vector_ir(lane: LaneType) -> ir.VectorType:
    """LLVM type of the lane vector."""
    return ir.VectorType(scalar_ir(lane), lane.width)


@register_default(LaneType)
class _LaneModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: LaneType) -> None:
        super().__init__(dmm, fe_type, vector_ir(fe_type))


register_default(LaneFormatType)(models.OpaqueModel)


@lower_constant(LaneFormatType)  # type: ignore[untyped-decorator]
def _lower_lane_format(context: Any, builder: Any, ty: Any, pyval: Any) -> Any:
    return context.get_dummy_value()


def splat(builder: Any, lane: LaneType, scalar: Any) -> Any:
    """Emit a vector with every slot equal to ``scalar``."""
    vector = vector_ir(lane)
    if isinstance(scalar, float):
        return ir.Constant(vector, [ir.Constant(scalar_ir(lane), scalar)] * lane.width)
    zero = ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, zero)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lane.width), [zero] * lane.width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


def call_llvm(builder: Any, name: str, lane: LaneType, *args: Any) -> Any:
    """Call an overloaded LLVM intrinsic on lane vectors.

    llvmlite's ``declare_intrinsic`` does not know vector types, so the full name is spelt here.
    """
    suffix = "f64" if lane.scalar == types.float64 else "f32"
    vector = vector_ir(lane)
    fnty = ir.FunctionType(vector, [vector] * len(args))
    full = f"llvm.{name}.v{lane.width}{suffix}"
    return builder.call(cgutils.get_or_insert_function(builder.module, fnty, full), args)


def multiply_add(builder: Any, lane: LaneType, factor: Any, value: Any, total: Any) -> Any:
    """Emit ``factor * value + total``, rounded once; the product alone where total is None.

    Every contraction is sums of these: lines by known matrices, and matrices of a batch.
    """
    if total is None:
        return builder.fmul(factor, value)
    return call_llvm(builder, "fma", lane, factor, value, total)


def address_of(builder: Any, base: Any, offset: Any, nbytes: int, pointee: ir.Type) -> Any:
    """Emit the pointer ``base + offset * nbytes``."""
    byte = ir.IntType(8)
    pointer = builder.inttoptr(base, byte.as_pointer())
    moved = builder.gep(pointer, [builder.mul(offset, ir.Constant(offset.type, nbytes))])
    return builder.bitcast(moved, pointee.as_pointer())


def load_at(builder: Any, lane: LaneType, base: Any, offset: Any) -> Any:
    """Emit the load of lane vector number ``offset``; alignment is that of one slot."""
    size = lane.scalar.bitwidth // 8
    pointer = address_of(builder, base, offset, lane.width * size, vector_ir(lane))
    return builder.load(pointer, align=size)


def store_at(builder: Any, lane: LaneType, base: Any, offset: Any, value: Any) -> None:
    """Emit the store of lane vector number ``offset``."""
    size = lane.scalar.bitwidth // 8
    pointer = address_of(builder, base, offset, lane.width * size, vector_ir(lane))
    builder.store(value, pointer, align=size)


@intrinsic  # type: ignore[untyped-decorator]
def load(typingctx: Any, lane: Any, base: Any, offset: Any) -> Any:
    """``load(LANE, address, k)``: lane vector number ``k`` behind ``address``."""
    sig = lane.lane(lane, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return load_at(builder, sig.return_type, args[1], args[2])

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def store(typingctx: Any, lane: Any, base: Any, offset: Any, value: Any) -> Any:
    """``store(LANE, address, k, value)``."""
    sig = types.void(lane, types.intp, types.intp, lane.lane)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        store_at(builder, sig.args[3], args[1], args[2], args[3])
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def fill(typingctx: Any, lane: Any, value: Any) -> Any:
    """``fill(LANE, number)``: every slot equal to ``number``."""
    sig = lane.lane(lane, lane.lane.scalar)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return splat(builder, sig.return_type, args[1])

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def widen(typingctx: Any, lane: Any, line: Any) -> Any:
    """``widen(LANE, line)``: a line of lane vectors of LANE's type or a narrower one, as LANE's."""
    sig = types.UniTuple(lane.lane, line.count)(lane, line)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wide, line = sig.return_type, sig.args[1]
        values = [builder.extract_value(args[1], i) for i in range(line.count)]
        if line.count and line.dtype != wide.dtype:
            values = [builder.fpext(value, vector_ir(wide.dtype)) for value in values]
        return context.make_tuple(builder, wide, values)

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` on lane vectors, rounded once."""
    sig = a(a, a, a)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return call_llvm(builder, "fma", sig.return_type, *args)

    return sig, codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def prefetch(typingctx: Any, base: Any, offset: Any, level: Any) -> Any:
    """``prefetch(address, k, level)``: ask for the cache line at byte ``address + k``.

    It goes to the first- or second-level cache (``level`` 1 or 2, a constant); harmless at any
    address.
    """
    if not isinstance(level, types.IntegerLiteral):
        return None
    sig = types.void(types.intp, types.intp, level)
    locality = 4 - level.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        pointer = address_of(builder, args[0], args[1], 1, ir.IntType(8))
        fnty = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        # llvmlite >= 0.44 prints opaque pointers: the overload's suffix is p0
        function = cgutils.get_or_insert_function(builder.module, fnty, "llvm.prefetch.p0")
        builder.call(function, [pointer, i32(0), i32(locality), i32(1)])
        return context.get_dummy_value()

    return sig, codegen


class _Arithmetic(AbstractTemplate):  # type: ignore[misc]
    """Lane op lane, lane op number, number op lane."""

    def generic(self, args: Any, kws: Any) -> Any:
        lanes = [a for a in args if isinstance(a, LaneType)]
        if (
            not lanes
            or len(args) != 2
            or not all(isinstance(a, LaneType | types.Number) for a in args)
        ):
            return None
        lane = lanes[0]
        if any(other != lane for other in lanes):
            return None
        return signature(lane, lane, lane)


def _binary(op: Any, emit: str) -> None:
    infer_global(op)(type(f"_Lane_{op.__name__}", (_Arithmetic,), {"key": op}))

    @lower_builtin(op, LaneType, LaneType)  # type: ignore[untyped-decorator]
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if sig.return_type.strict:
            return _strict(builder, emit, sig.return_type, *args)
        # a product and a sum may become one fused operation, which rounds once instead of twice
        return getattr(builder, emit)(*args, flags=("contract",))


def _strict(builder: Any, emit: str, lane: LaneType, a: Any, b: Any) -> Any:
    """Emit an operation of strict lanes. In a sum, an operand that is a product is fused.

    If both operands are products, the first is fused.
    """
    first, second = (isinstance(v, ir.Instruction) and v.opname == "fmul" for v in (a, b))
    if emit == "fadd" and (first or second):
        (left, right), rest = ((a if first else b).operands, b if first else a)
        return call_llvm(builder, "fma", lane, left, right, rest)
    if emit == "fsub" and first:
        return call_llvm(builder, "fma", lane, *a.operands, builder.fneg(b))
    if emit == "fsub" and second:
        left, right = b.operands
        return call_llvm(builder, "fma", lane, builder.fneg(left), right, a)
    return getattr(builder, emit)(a, b)


for _op, _emit in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _binary(_op, _emit)


@infer_global(operator.neg)
class _Neg(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(args[0], args[0]) if isinstance(args[0], LaneType) else None


@lower_builtin(operator.neg, LaneType)  # type: ignore[untyped-decorator]
def _lower_neg(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.fneg(args[0])


@lower_cast(types.Number, LaneType)  # type: ignore[untyped-decorator]
def _number_to_lane(context: Any, builder: Any, fromty: Any, toty: Any, value: Any) -> Any:
    return splat(builder, toty, context.cast(builder, value, fromty, toty.scalar))


@intrinsic  # type: ignore[untyped-decorator]
def get(typingctx: Any, lane: Any, base: Any, k: Any) -> Any:
    """``get(LANE, address, k)``: number ``k`` of an array of the lane's scalar type."""
    sig = lane.lane.scalar(lane, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = sig.args[0]
        return builder.load(
            address_of(builder, args[1], args[2], lane.itemsize, scalar_ir(lane.lane))
        )

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def put(typingctx: Any, lane: Any, base: Any, k: Any, value: Any) -> Any:
    """``put(LANE, address, k, number)``."""
    sig = types.void(lane, types.intp, types.intp, lane.lane.scalar)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = sig.args[0]
        builder.store(
            args[3], address_of(builder, args[1], args[2], lane.itemsize, scalar_ir(lane.lane))
        )
        return context.get_dummy_value()

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def word(typingctx: Any, base: Any, k: Any) -> Any:
    """``word(address, k)``: entry ``k`` of an int64 array."""
    sig = types.intp(types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(address_of(builder, args[0], args[1], 8, ir.IntType(64)))

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def half_word(typingctx: Any, base: Any, k: Any) -> Any:
    """``half_word(address, k)``: entry ``k`` of an int32 array, as an intp."""
    sig = types.intp(types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(address_of(builder, args[0], args[1], 4, ir.IntType(32)))
        return builder.sext(value, ir.IntType(64))

    return sig, codegen


@intrinsic  # type: ignore[untyped-decorator]
def numbers(typingctx: Any, lane: Any, base: Any) -> Any:
    """``numbers(LANE, address)``: numbers of the lane's scalar type, to be indexed."""
    sig = types.CPointer(lane.lane.scalar)(lane, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], context.get_value_type(sig.return_type))

    return sig, codegen


__all__ = [
    "WIDTHS",
    "Lane",
    "fill",
    "fma",
    "get",
    "half_word",
    "load",
    "numbers",
    "prefetch",
    "put",
    "store",
    "widen",
    "word",
]
