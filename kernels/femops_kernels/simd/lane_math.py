"""Functions of lane vectors that q-functions call: ``lane_sqrt`` and the like.

A function that LLVM has for vectors is one instruction. Some others are written from such
instructions (`femops_kernels.simd.elementary`), and the rest call the C library for each slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from llvmlite import ir

from femops_kernels.simd.elementary import cosine, exponential, logarithm, power, sine
from femops_kernels.simd.lanes import Lane, as_vector, call_llvm
from femops_kernels.simd.values import Traced, build, declared


@final
@dataclass(frozen=True)
class Mask:
    """Kind of comparisons of lane vectors."""

    width: int

    @property
    def llvm(self) -> Any:
        """LLVM's type."""
        return ir.VectorType(ir.IntType(1), self.width)


def lane_of(*operands: Any) -> Lane:
    """Format of the lane vectors among some operands."""
    return next(
        one.kind for one in operands if isinstance(one, Traced) and isinstance(one.kind, Lane)
    )


def as_lane(lane: Lane, value: Any) -> Traced:
    """``as_lane(LANE, number)``: every slot equal to the number."""
    return Traced(lane, as_vector(lane, value))


def _instruction(llvm_name: str) -> Any:
    """Function that is one LLVM operation on vectors."""

    def emit(*operands: Any) -> Traced:
        lane = lane_of(*operands)
        return Traced(lane, call_llvm(llvm_name, lane, *(as_vector(lane, o) for o in operands)))

    return emit


def of_library(c_name: str, *values: Any) -> Any:
    """Emit a function of the C library for vectors of LLVM, slot by slot."""
    vector = values[0].type
    real = vector.element
    name = c_name + "f" * isinstance(real, ir.FloatType)
    function = declared(ir.FunctionType(real, [real] * len(values)), name)
    out = ir.Constant(vector, ir.Undefined)
    for at in map(ir.IntType(32), range(vector.count)):
        called = build().call(function, [build().extract_element(v, at) for v in values])
        out = build().insert_element(out, called, at)
    return out


ELEMENTARY: dict[str, Callable[..., Any]] = {
    "exp": exponential,
    "log": logarithm,
    "sin": lambda x: sine(x, partial(of_library, "sin")),
    "cos": lambda x: cosine(x, partial(of_library, "cos")),
    "pow": lambda x, y: power(x, y, partial(of_library, "pow")),
}
"""Functions of vectors of float64, as LLVM's values."""


def _elementary(name: str) -> Any:
    """Function that is computed in float64."""

    def emit(*operands: Any) -> Traced:
        lane = lane_of(*operands)
        values = [as_vector(lane, operand) for operand in operands]
        if lane.itemsize == 8:
            return Traced(lane, ELEMENTARY[name](*values))
        wide = ir.VectorType(ir.DoubleType(), lane.width)
        found = ELEMENTARY[name](*(build().fpext(value, wide) for value in values))
        return Traced(lane, build().fptrunc(found, lane.llvm))

    return emit


def _library(c_name: str) -> Any:
    """Function that calls the C library for each slot."""

    def emit(*operands: Any) -> Traced:
        lane = lane_of(*operands)
        values = (as_vector(lane, operand) for operand in operands)
        return Traced(lane, of_library(c_name, *values))

    return emit


def _comparison(operator: str) -> Any:
    """Function that compares slot by slot."""

    def emit(a: Any, b: Any) -> Traced:
        lane = lane_of(a, b)
        compare = build().fcmp_unordered if operator == "!=" else build().fcmp_ordered
        return Traced(Mask(lane.width), compare(operator, as_vector(lane, a), as_vector(lane, b)))

    return emit


def lane_by_determinant(a: Any, b: Any) -> Traced:
    """``a / b``, where b is a determinant that has been checked."""
    lane = lane_of(a, b)
    return Traced(lane, build().fdiv(as_vector(lane, a), as_vector(lane, b), flags=("contract",)))


lane_sqrt = _instruction("sqrt")
lane_fabs = _instruction("fabs")
lane_minimum = _instruction("minimum")
lane_maximum = _instruction("maximum")
lane_exp = _elementary("exp")
lane_exp2 = _library("exp2")
lane_expm1 = _library("expm1")
lane_log = _elementary("log")
lane_log2 = _library("log2")
lane_log10 = _library("log10")
lane_log1p = _library("log1p")
lane_sin = _elementary("sin")
lane_cos = _elementary("cos")
lane_tan = _library("tan")
lane_tanh = _library("tanh")
lane_sinh = _library("sinh")
lane_cosh = _library("cosh")
lane_arcsin = _library("asin")
lane_arccos = _library("acos")
lane_arctan = _library("atan")
lane_arctan2 = _library("atan2")
lane_hypot = _library("hypot")
lane_pow = _elementary("pow")
lane_lt = _comparison("<")
lane_le = _comparison("<=")
lane_gt = _comparison(">")
lane_ge = _comparison(">=")
lane_eq = _comparison("==")
lane_ne = _comparison("!=")


def lane_where(mask: Traced, a: Any, b: Any) -> Traced:
    """``lane_where(mask, a, b)``: slot by slot ``a`` where the mask is set, else ``b``."""
    lane = lane_of(a, b)
    return Traced(lane, build().select(mask.value, as_vector(lane, a), as_vector(lane, b)))


__all__ = [
    "as_lane",
    "lane_arccos",
    "lane_arcsin",
    "lane_arctan",
    "lane_arctan2",
    "lane_by_determinant",
    "lane_cos",
    "lane_cosh",
    "lane_eq",
    "lane_exp",
    "lane_exp2",
    "lane_expm1",
    "lane_fabs",
    "lane_ge",
    "lane_gt",
    "lane_hypot",
    "lane_le",
    "lane_log",
    "lane_log1p",
    "lane_log2",
    "lane_log10",
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
