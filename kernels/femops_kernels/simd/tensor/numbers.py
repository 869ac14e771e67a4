"""Numbers in lanes, real or complex: entries of matrices of which each slot has one.

A complex one is two lane vectors, of the real and of the imaginary parts. Kernels that are written
with these functions and with ``+ - *`` work on either: the format NUMBER says which.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, final

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_builtin, lower_constant
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, typeof_impl

from femops_kernels.simd.lane_math import MaskType
from femops_kernels.simd.lanes import (
    Lane,
    LaneType,
    call_llvm,
    load_at,
    splat,
    store_at,
    vector_ir,
)
from femops_kernels.simd.tensor.members import gathered

_CONTRACT = ("contract",)  # a product and a sum may be rounded once

Parts = list[Any]
"""Real part of a number, and the imaginary part of a complex one, as vectors of LLVM."""


@final
class ComplexLane:
    """Format of complex numbers in lanes.

    Parameters
    ----------
    lane : Lane
        Format of their parts.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers of all slots."""
        return 2 * self.lane.nbytes

    def __repr__(self) -> str:
        return f"ComplexLane({self.lane!r})"


@final
class ComplexLaneType(types.Type):
    """Numba's type of complex numbers in lanes."""

    def __init__(self, part: LaneType) -> None:
        self.part = part
        super().__init__(name=f"complex {part}")


@final
class ComplexFormatType(types.Dummy):
    """Numba's type of a `ComplexLane`."""

    def __init__(self, part: LaneType) -> None:
        self.lane = ComplexLaneType(part)
        super().__init__(name=f"format of complex {part}")


@typeof_impl.register(ComplexLane)
def _typeof_format(value: ComplexLane, context: Any) -> ComplexFormatType:
    return ComplexFormatType(typeof_impl(value.lane, context).lane)


@register_default(ComplexLaneType)
class _ComplexModel(models.StructModel):
    def __init__(self, dmm: Any, fe_type: ComplexLaneType) -> None:
        super().__init__(dmm, fe_type, [("real", fe_type.part), ("imag", fe_type.part)])


register_default(ComplexFormatType)(models.OpaqueModel)


@lower_constant(ComplexFormatType)
def _lower_format(context: Any, _builder: Any, _type: Any, _value: Any) -> Any:
    return context.get_dummy_value()


def part_of(kind: Any) -> LaneType:
    """Lane type of the parts of numbers."""
    return kind.part if isinstance(kind, ComplexLaneType) else kind


def _parts(builder: Any, kind: Any, value: Any) -> Parts:
    if isinstance(kind, ComplexLaneType):
        return [builder.extract_value(value, k) for k in range(2)]
    return [value]


def _whole(builder: Any, kind: Any, parts: Parts) -> Any:
    if not isinstance(kind, ComplexLaneType):
        return parts[0]
    vector = vector_ir(kind.part)
    value = ir.Constant(ir.LiteralStructType([vector, vector]), ir.Undefined)
    for k, part in enumerate(parts):
        value = builder.insert_value(value, part, k)
    return value


def _is_number(kind: Any) -> bool:
    return isinstance(kind, LaneType | ComplexLaneType)


# --- arithmetic -----------------------------------------------------------------------------------


def emit_product(builder: Any, x: Parts, y: Parts) -> Parts:
    def times(one: Any, other: Any) -> Any:
        return builder.fmul(one, other, flags=_CONTRACT)

    if len(x) == len(y) == 2:
        real = builder.fsub(times(x[0], y[0]), times(x[1], y[1]), flags=_CONTRACT)
        imag = builder.fadd(times(x[0], y[1]), times(x[1], y[0]), flags=_CONTRACT)
        return [real, imag]
    return [times(one, other) for one in x for other in y]


def _sum(builder: Any, x: Parts, y: Parts) -> Parts:
    return [builder.fadd(one, other, flags=_CONTRACT) for one, other in zip(x, y, strict=True)]


def emit_difference(builder: Any, x: Parts, y: Parts) -> Parts:
    return [builder.fsub(one, other, flags=_CONTRACT) for one, other in zip(x, y, strict=True)]


def _divided(builder: Any, x: Parts, y: Parts) -> Parts:
    return [builder.fdiv(one, y[0]) for one in x]


class _Product(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if not all(map(_is_number, args)) or part_of(args[0]) != part_of(args[1]):
            return None
        complex_ones = [one for one in args if isinstance(one, ComplexLaneType)]
        return signature(complex_ones[0], *args) if complex_ones else None


class _Quotient(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        fits = isinstance(args[0], ComplexLaneType) and args[0].part == args[1]
        return signature(args[0], *args) if fits else None


class _Sum(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        alike = len(args) == 2 and args[0] == args[1] and isinstance(args[0], ComplexLaneType)
        return signature(args[0], *args) if alike else None


def _register(
    op: Any, template: Any, emit: Callable[[Any, Parts, Parts], Parts], *kinds: tuple[Any, Any]
) -> None:
    infer_global(op)(type(f"{template.__name__}_{op.__name__}", (template,), {"key": op}))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = (_parts(builder, k, v) for k, v in zip(sig.args, args, strict=True))
        return _whole(builder, sig.return_type, emit(builder, x, y))

    for pair in kinds:
        lower_builtin(op, *pair)(lower)


_BOTH = (ComplexLaneType, ComplexLaneType)
_MIXED = (ComplexLaneType, LaneType), (LaneType, ComplexLaneType)
_register(operator.mul, _Product, emit_product, _BOTH, *_MIXED)
_register(operator.truediv, _Quotient, _divided, _MIXED[0])
_register(operator.add, _Sum, _sum, _BOTH)
_register(operator.sub, _Sum, emit_difference, _BOTH)


def _function(name: str, real: bool, emit: Callable[[Any, LaneType, Parts], Parts]) -> Any:
    """Intrinsic of one number; its result is real, or of the same kind."""

    def typer(typingctx: Any, x: Any) -> Any:
        return (part_of(x) if real else x)(x), codegen

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (kind,) = sig.args
        parts = emit(builder, part_of(kind), _parts(builder, kind, args[0]))
        return _whole(builder, sig.return_type, parts)

    typer.__name__ = name
    return intrinsic(typer)


def emit_square(builder: Any, lane: LaneType, x: Parts) -> Parts:
    total = builder.fmul(x[0], x[0], flags=_CONTRACT)
    for part in x[1:]:
        total = builder.fadd(builder.fmul(part, part, flags=_CONTRACT), total, flags=_CONTRACT)
    return [total]


def _size(builder: Any, lane: LaneType, x: Parts) -> Parts:
    total, *rest = (call_llvm(builder, "fabs", lane, part) for part in x)
    for part in rest:
        total = builder.fadd(total, part)
    return [total]


def _length(builder: Any, lane: LaneType, x: Parts) -> Parts:
    if len(x) == 1:
        return _size(builder, lane, x)
    return [call_llvm(builder, "sqrt", lane, *emit_square(builder, lane, x))]


def _inverse(builder: Any, lane: LaneType, x: Parts) -> Parts:
    one = splat(builder, lane, 1.0)
    if len(x) == 1:
        return [builder.fdiv(one, x[0])]
    # divided by its size first: the square is then from 1/2 to 1
    (size,) = _size(builder, lane, x)
    small = [builder.fdiv(part, size) for part in x]
    (square,) = emit_square(builder, lane, small)
    real, imag = (builder.fdiv(builder.fdiv(part, square), size) for part in small)
    return [real, builder.fneg(imag)]


conjugate = _function("conjugate", False, lambda b, lane, x: [x[0], *map(b.fneg, x[1:])])
real_part = _function("real_part", True, lambda b, lane, x: [x[0]])
square = _function("square", True, emit_square)
size_of = _function("size_of", True, _size)
length_of = _function("length_of", True, _length)
inverse = _function("inverse", False, _inverse)
"""One divided by a number.  `size_of` is the sum of absolute values of the parts."""


@intrinsic
def number(typingctx: Any, form: Any, value: Any) -> Any:
    """``number(NUMBER, lane)``: real lane as numbers of the format, with zero imaginary parts."""
    sig = form.lane(form, part_of(form.lane))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        return _whole(builder, kind, [args[1], splat(builder, part_of(kind), 0.0)])

    return sig, codegen


@intrinsic
def choose(typingctx: Any, mask: Any, x: Any, y: Any) -> Any:
    """``choose(mask, x, y)``: in each slot x if the mask is set, else y. Both have one type."""
    if not isinstance(mask, MaskType) or x != y:
        return None
    sig = x(mask, x, y)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        pairs = zip(*(_parts(builder, kind, one) for one in args[1:]), strict=True)
        return _whole(builder, kind, [builder.select(args[0], *pair) for pair in pairs])

    return sig, codegen


# --- memory ---------------------------------------------------------------------------------------


def _place(builder: Any, kind: Any, k: Any, part: int) -> Any:
    """Emit the number of the lane vector that is a part of number ``k``."""
    if not isinstance(kind, ComplexLaneType):
        return k
    return builder.add(builder.mul(k, k.type(2)), k.type(part))


def _each(kind: Any) -> range:
    return range(2 if isinstance(kind, ComplexLaneType) else 1)


def _bytes(kind: Any, offset: Any, part: int) -> Any:
    """Offset of a part of a number in memory."""
    return offset.type(part * part_of(kind).scalar.bitwidth // 8)


def load_number(builder: Any, kind: Any, base: Any, k: Any) -> Parts:
    """Emit the load of number ``k`` of those in lanes behind an address."""
    lane = part_of(kind)
    places = (_place(builder, kind, k, part) for part in _each(kind))
    return [load_at(builder, lane, base, place) for place in places]


def store_number(builder: Any, kind: Any, base: Any, k: Any, parts: Parts) -> None:
    """Emit the store of a number, see `load_number`."""
    for part, value in enumerate(parts):
        store_at(builder, part_of(kind), base, _place(builder, kind, k, part), value)


@intrinsic
def fetch(typingctx: Any, form: Any, base: Any, k: Any) -> Any:
    """``fetch(NUMBER, address, k)``: number ``k`` of those in lanes behind an address."""
    sig = form.lane(form, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        return _whole(builder, kind, load_number(builder, kind, args[1], args[2]))

    return sig, codegen


@intrinsic
def keep(typingctx: Any, form: Any, base: Any, k: Any, value: Any) -> Any:
    """``keep(NUMBER, address, k, value)``: set number ``k`` of those in lanes."""
    sig = types.void(form, types.intp, types.intp, form.lane)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.args[3]
        store_number(builder, kind, args[1], args[2], _parts(builder, kind, args[3]))
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def gather_members(typingctx: Any, form: Any, places: Any, offset: Any) -> Any:
    """``gather_members(NUMBER, places, offset)``: the number ``offset`` bytes behind each place."""
    sig = form.lane(form, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.return_type
        parts = [
            gathered(
                builder, part_of(kind), args[1], builder.add(args[2], _bytes(kind, args[2], p))
            )
            for p in _each(kind)
        ]
        return _whole(builder, kind, parts)

    return sig, codegen


__all__ = [
    "ComplexLane",
    "choose",
    "conjugate",
    "fetch",
    "gather_members",
    "inverse",
    "keep",
    "length_of",
    "number",
    "real_part",
    "size_of",
    "square",
]
