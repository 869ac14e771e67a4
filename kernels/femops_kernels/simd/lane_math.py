"""Functions of lane vectors that q-functions call: ``lane_sqrt`` and the like.

A function that LLVM has for vectors is one instruction. The others call the C library for each
slot.
"""

from __future__ import annotations

from typing import Any, final

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.extending import intrinsic

from femops_kernels.simd.lanes import LaneType, call_llvm, scalar_ir, splat, vector_ir


@final
class MaskType(types.Type):
    """Numba's type of a comparison of lane vectors."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"mask<{width}>")


@register_default(MaskType)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: MaskType) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(ir.IntType(1), fe_type.width))


def _lane_of(*args: Any) -> Any:
    return next((a for a in args if isinstance(a, LaneType)), None)


def _vector(builder: Any, lane: Any, kind: Any, value: Any) -> Any:
    """Emit an operand as a vector: numbers become lanes with every slot equal."""
    if isinstance(kind, LaneType):
        return value
    if isinstance(value.type, ir.IntType):
        value = builder.sitofp(value, scalar_ir(lane))
    elif value.type != scalar_ir(lane):
        value = builder.fptrunc(value, scalar_ir(lane))
    return splat(builder, lane, value)


@intrinsic
def as_lane(typingctx: Any, lane: Any, value: Any) -> Any:
    """``as_lane(LANE, number)``: every slot equal to the number."""
    sig = lane.lane(lane, value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _vector(builder, sig.return_type, sig.args[1], args[1])

    return sig, codegen


def _named(name: str, count: int, codegen: Any) -> Any:
    """Intrinsic of one lane vector, or of two operands with at least one lane vector."""
    if count == 1:

        def typer(typingctx: Any, a: Any) -> Any:
            return (a(a), codegen) if isinstance(a, LaneType) else None

    else:

        def typer(typingctx: Any, a: Any, b: Any) -> Any:
            lane = _lane_of(a, b)
            return (lane(a, b), codegen) if lane is not None else None

    typer.__name__ = name
    return intrinsic(typer)


def _instruction(name: str, llvm_name: str, count: int) -> Any:
    """Intrinsic that is one LLVM operation on vectors."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = sig.return_type
        values = [_vector(builder, lane, k, v) for k, v in zip(sig.args, args, strict=True)]
        return call_llvm(builder, llvm_name, lane, *values)

    return _named(name, count, codegen)


def _library(name: str, c_name: str, count: int) -> Any:
    """Intrinsic that calls the C library for each slot."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = sig.return_type
        real = scalar_ir(lane)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(real, [real] * count),
            c_name if isinstance(real, ir.DoubleType) else c_name + "f",
        )
        values = [_vector(builder, lane, k, v) for k, v in zip(sig.args, args, strict=True)]
        out = ir.Constant(vector_ir(lane), ir.Undefined)
        for slot in range(lane.width):
            at = ir.IntType(32)(slot)
            called = builder.call(function, [builder.extract_element(v, at) for v in values])
            out = builder.insert_element(out, called, at)
        return out

    return _named(name, count, codegen)


def _comparison(name: str, operator: str) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = _lane_of(*sig.args)
        a, b = (_vector(builder, lane, k, v) for k, v in zip(sig.args, args, strict=True))
        emit = builder.fcmp_unordered if operator == "!=" else builder.fcmp_ordered
        return emit(operator, a, b)

    def typer(typingctx: Any, a: Any, b: Any) -> Any:
        lane = _lane_of(a, b)
        return (MaskType(lane.width)(a, b), codegen) if lane is not None else None

    typer.__name__ = name
    return intrinsic(typer)


def _quotient() -> Any:
    """Intrinsic of a division."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lane = sig.return_type
        a, b = (_vector(builder, lane, k, v) for k, v in zip(sig.args, args, strict=True))
        return builder.fdiv(a, b, flags=("contract",))

    return _named("lane_by_determinant", 2, codegen)


lane_by_determinant = _quotient()
lane_sqrt = _instruction("lane_sqrt", "sqrt", 1)
lane_fabs = _instruction("lane_fabs", "fabs", 1)
lane_minimum = _instruction("lane_minimum", "minimum", 2)
lane_maximum = _instruction("lane_maximum", "maximum", 2)
lane_exp = _library("lane_exp", "exp", 1)
lane_log = _library("lane_log", "log", 1)
lane_sin = _library("lane_sin", "sin", 1)
lane_cos = _library("lane_cos", "cos", 1)
lane_tan = _library("lane_tan", "tan", 1)
lane_tanh = _library("lane_tanh", "tanh", 1)
lane_sinh = _library("lane_sinh", "sinh", 1)
lane_cosh = _library("lane_cosh", "cosh", 1)
lane_arctan = _library("lane_arctan", "atan", 1)
lane_arctan2 = _library("lane_arctan2", "atan2", 2)
lane_pow = _library("lane_pow", "pow", 2)
lane_lt = _comparison("lane_lt", "<")
lane_le = _comparison("lane_le", "<=")
lane_gt = _comparison("lane_gt", ">")
lane_ge = _comparison("lane_ge", ">=")
lane_eq = _comparison("lane_eq", "==")
lane_ne = _comparison("lane_ne", "!=")


@intrinsic
def lane_where(typingctx: Any, condition: Any, a: Any, b: Any) -> Any:
    """``lane_where(mask, a, b)``: slot by slot ``a`` where the mask is set, else ``b``."""
    lane = _lane_of(a, b)
    if lane is None or not isinstance(condition, MaskType):
        return None
    sig = lane(condition, a, b)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (_vector(builder, sig.return_type, sig.args[k], args[k]) for k in (1, 2))
        return builder.select(args[0], a, b)

    return sig, codegen


__all__ = [
    "as_lane",
    "lane_arctan",
    "lane_arctan2",
    "lane_by_determinant",
    "lane_cos",
    "lane_cosh",
    "lane_eq",
    "lane_exp",
    "lane_fabs",
    "lane_ge",
    "lane_gt",
    "lane_le",
    "lane_log",
    "lane_lt",
    "lane_maximum",
    "lane_minimum",
    "lane_ne",
    "lane_pow",
    "lane_sin",
    "lane_sinh",
    "lane_sqrt",
    "lane_tan",
    "lane_tanh",
    "lane_where",
]
