"""Exponentials, logarithms, powers, sines and cosines of lanes, in LLVM's operations.

They are within one unit in the last place, or two of sines and cosines, of the exact values, and
have the same bits on all machines. Arguments are reduced as Cody and Waite (1980) do; the
polynomials of logarithms, sines and cosines are those of fdlibm (Sun Microsystems, 1993).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from femops_kernels.simd.values import build, declared, on_stack

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
