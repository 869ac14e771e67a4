"""Functions of lane vectors that q-functions call: ``lane_sqrt`` and the like.

A function that LLVM has for vectors is one instruction. Some others are written from such
instructions (`femops_kernels.simd.lane_math`), and the rest call the C library for each slot.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from llvmlite import ir

from femops_kernels.simd.lanes import Lane, as_vector, call_llvm, fma
from femops_kernels.simd.values import Traced, build, declared, on_stack

_WORD = ir.IntType(64)
_MAGIC = 1.5 * 2.0**52  # added to a small number, it rounds to an integer, in the lowest bits
_MOST = 1e5  # largest argument of sines and cosines that is reduced here
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)  # the first has few digits
_HALF_PI = (1.57079632679489655800e00, 6.12323399573676603587e-17, -1.49738490485916983e-33)
_LOGARITHM = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01),
    *(2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01),
    1.479819860511658591e-01,
)
_TWO_THIRDS_LOW = 3.700743415417188e-17  # 2/3 without its float64
_SINE = (
    *(-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04),
    *(2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10),
)
_COSINE = (
    *(4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05),
    *(-2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11),
)


def _bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _real(like: Any, number: float) -> Any:
    return ir.Constant(like.type, [ir.Constant(ir.DoubleType(), number)] * like.type.count)


def _whole(like: Any, number: int) -> Any:
    return ir.Constant(ir.VectorType(_WORD, like.type.count), [number] * like.type.count)


def _as_whole(x: Any) -> Any:
    return build().bitcast(x, ir.VectorType(_WORD, x.type.count))


def _as_real(x: Any) -> Any:
    return build().bitcast(x, ir.VectorType(ir.DoubleType(), x.type.count))


def _fma(a: Any, b: Any, c: Any) -> Any:
    sort = ir.FunctionType(a.type, [a.type] * 3)
    return build().call(declared(sort, f"llvm.fma.v{a.type.count}f64"), [a, b, c])


def _fabs(x: Any) -> Any:
    return build().call(
        declared(ir.FunctionType(x.type, [x.type]), f"llvm.fabs.v{x.type.count}f64"), [x]
    )


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    total = _real(x, coefficients[-1])
    for one in coefficients[-2::-1]:
        total = _fma(total, x, _real(x, one))
    return total


def _rounded(x: Any, factor: float) -> tuple[Any, Any]:
    """The integer next to x times a factor, as a real number and as a whole one."""
    shifted = _fma(x, _real(x, factor), _real(x, _MAGIC))
    whole = build().sub(_as_whole(shifted), _whole(x, _bits(_MAGIC)))
    return build().fsub(shifted, _real(x, _MAGIC)), whole


def _power_of_two(k: Any) -> Any:
    """2 to the power of whole numbers from -1022 to 1023."""
    return _as_real(build().shl(build().add(k, _whole(k, 1023)), _whole(k, 52)))


def exponential(x: Any) -> Any:
    """Emit exp of a vector."""
    make = build()
    # beyond these bounds the result is infinite or zero; NaN stays
    x = make.select(make.fcmp_ordered("<", x, _real(x, -750.0)), _real(x, -750.0), x)
    x = make.select(make.fcmp_ordered(">", x, _real(x, 750.0)), _real(x, 750.0), x)
    return _exponential(x, None)


def _exponential(x: Any, low: Any) -> Any:
    """Emit exp of a vector, to which another one below its last places is added."""
    make = build()
    n, k = _rounded(x, 1.0 / math.log(2.0))
    rest = _fma(n, _real(x, -_LN2[0]), x)
    low = _real(x, 0.0) if low is None else low
    rest = make.fadd(rest, _fma(n, _real(x, -_LN2[1]), low))
    tail = _polynomial(rest, [1.0 / math.factorial(j) for j in range(2, 14)])
    value = make.fadd(_real(x, 1.0), _fma(make.fmul(rest, rest), tail, rest))
    half = make.ashr(k, _whole(k, 1))
    value = make.fmul(value, _power_of_two(half))
    return make.fmul(value, _power_of_two(make.sub(k, half)))


def _split(x: Any) -> tuple[Any, Any]:
    """Emit n and f with x = 2**n (1 + f), where 1 + f lies between the roots of 1/2 and 2."""
    make = build()
    small = make.fcmp_ordered("<", x, _real(x, 2.0**-1022))
    scaled = make.select(small, make.fmul(x, _real(x, 2.0**54)), x)
    bits, root = _as_whole(scaled), _whole(x, _bits(math.sqrt(0.5)))
    k = make.ashr(make.sub(bits, root), _whole(x, 52))
    f = make.fsub(_as_real(make.sub(bits, make.shl(k, _whole(x, 52)))), _real(x, 1.0))
    k = make.sub(k, make.select(small, _whole(x, 54), _whole(x, 0)))
    n = make.fsub(_as_real(make.add(k, _whole(x, _bits(_MAGIC)))), _real(x, _MAGIC))
    return n, f


def logarithm(x: Any) -> Any:
    """Emit the natural logarithm of a vector."""
    make = build()
    n, f = _split(x)
    s = make.fdiv(f, make.fadd(_real(x, 2.0), f))
    z = make.fmul(s, s)
    rest = make.fmul(z, _polynomial(z, _LOGARITHM))
    half = make.fmul(_real(x, 0.5), make.fmul(f, f))
    low = _fma(s, make.fadd(half, rest), make.fmul(n, _real(x, _LN2[1])))
    value = _fma(n, _real(x, _LN2[0]), make.fsub(f, make.fsub(half, low)))
    value = make.select(make.fcmp_ordered("<", x, _real(x, math.inf)), value, x)  # inf and NaN
    value = make.select(make.fcmp_ordered("<", x, _real(x, 0.0)), _real(x, math.nan), value)
    zero = make.fcmp_ordered("==", x, _real(x, 0.0))
    return make.select(zero, _real(x, -math.inf), value)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """Emit a product, and the error of its rounding."""
    high = build().fmul(a, b)
    return high, _fma(a, b, build().fneg(high))


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Emit a sum, and the error of its rounding; a is zero, or the larger number."""
    high = build().fadd(a, b)
    return high, build().fsub(b, build().fsub(high, a))


def _long_logarithm(x: Any) -> tuple[Any, Any]:
    """Emit the logarithm of a vector as a sum, whose second part is below places of the first."""
    make = build()
    n, f = _split(x)
    two = make.fadd(_real(x, 2.0), f)
    two_low = make.fsub(f, make.fsub(two, _real(x, 2.0)))
    s = make.fdiv(f, two)
    left = _fma(make.fneg(s), two_low, _fma(make.fneg(s), two, f))
    s_low = make.fdiv(left, two)
    z, z_low = _product(s, s)
    z_low = _fma(make.fadd(s, s), s_low, z_low)
    cube, cube_low = _product(s, z)
    cube_low = make.fadd(cube_low, _fma(s, z_low, make.fmul(s_low, z)))
    third, third_low = _product(cube, _real(x, 2.0 / 3.0))
    third_low = make.fadd(
        third_low, _fma(cube_low, _real(x, 2.0 / 3.0), make.fmul(cube, _real(x, _TWO_THIRDS_LOW)))
    )
    rest = make.fmul(make.fmul(cube, z), _polynomial(z, [2.0 / j for j in range(5, 29, 2)]))
    high, low = _sum(make.fadd(s, s), third)
    low = make.fadd(low, make.fadd(make.fadd(s_low, s_low), make.fadd(third_low, rest)))
    total, total_low = _sum(make.fmul(n, _real(x, _LN2[0])), high)
    return total, make.fadd(total_low, _fma(n, _real(x, _LN2[1]), low))


def power(x: Any, y: Any, library: Callable[[Any, Any], Any]) -> Any:
    """Emit x to the power of y; ``library`` emits it where a result is not ordinary."""
    make = build()
    place = on_stack(x.type)
    high, low = _long_logarithm(x)
    exponent, lost = _product(y, high)
    lost = _fma(y, low, lost)
    ordinary = make.and_(
        make.and_(
            make.fcmp_ordered(">", x, _real(x, 0.0)), make.fcmp_ordered("<", x, _real(x, math.inf))
        ),
        make.fcmp_ordered("<", _fabs(exponent), _real(x, 700.0)),
    )
    make.store(_exponential(exponent, lost), place)
    bits = ir.IntType(x.type.count)
    odd = make.icmp_unsigned("!=", make.bitcast(make.not_(ordinary), bits), bits(0))
    with make.if_then(odd, likely=False):
        make.store(library(x, y), place)
    return make.load(place)


def sine(x: Any, library: Callable[[Any], Any]) -> Any:
    """Emit sin of a vector; ``library`` emits it for large arguments."""
    return _with_large(x, lambda: _wave(x, 0), library)


def cosine(x: Any, library: Callable[[Any], Any]) -> Any:
    """Emit cos of a vector; ``library`` emits it for large arguments."""
    return _with_large(x, lambda: _wave(x, 1), library)


def _wave(x: Any, quarters: int) -> Any:
    """Emit the sine of x plus some quarters of its period."""
    make = build()
    n, k = _rounded(x, 2.0 / math.pi)
    r = x
    for part in _HALF_PI:
        r = _fma(n, _real(x, -part), r)
    z = make.fmul(r, r)
    odd = _fma(make.fmul(z, r), _polynomial(z, _SINE), r)
    half = make.fmul(_real(x, 0.5), z)
    one = make.fsub(_real(x, 1.0), half)
    lost = make.fsub(make.fsub(_real(x, 1.0), one), half)
    even = make.fadd(one, _fma(make.fmul(z, z), _polynomial(z, _COSINE), lost))
    k = make.add(k, _whole(k, quarters))
    swapped = make.icmp_signed("!=", make.and_(k, _whole(k, 1)), _whole(k, 0))
    negative = make.shl(make.and_(k, _whole(k, 2)), _whole(k, 62))
    return _as_real(make.xor(_as_whole(make.select(swapped, even, odd)), negative))


def _with_large(x: Any, emit: Callable[[], Any], library: Callable[[Any], Any]) -> Any:
    """Emit a function that the library computes where an argument is large."""
    place = on_stack(x.type)
    large = build().fcmp_ordered(">", _fabs(x), _real(x, _MOST))
    bits = ir.IntType(x.type.count)
    found = build().icmp_unsigned("!=", build().bitcast(large, bits), bits(0))
    with build().if_else(found, likely=False) as (then, otherwise):
        with then:
            build().store(library(x), place)
        with otherwise:
            build().store(emit(), place)
    return build().load(place)


Line = tuple[Traced, ...]


def add_lines(a: Line, b: Line) -> Line:
    """Sum of two lines of one length."""
    pairs = zip(a, b, strict=True)
    return tuple(Traced(x.kind, build().fadd(x.value, y.value)) for x, y in pairs)


def scale_line(a: Traced, x: Line) -> Line:
    """``scale_line(a, x)``: a lane vector times a line."""
    return tuple(Traced(a.kind, build().fmul(a.value, each.value)) for each in x)


def scale_and_add(a: Traced, x: Line, y: Line) -> Line:
    """``scale_and_add(a, x, y)``: a lane vector times a line, plus another line."""
    return tuple(fma(a, each, other) for each, other in zip(x, y, strict=True))


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
    "add_lines",
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
    "scale_and_add",
    "scale_line",
]
