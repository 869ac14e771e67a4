"""Numbers that know how wrong float64 may have made them: a running error analysis.

`Num` has a value in long double, at all points of an integral at once, and a bound of what rounding
every operation to float64 may do to it.  The bound of a sum or difference goes with the sizes of
the summands, so cancellation shows in it.  Nothing here knows of femops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

LONG = np.longdouble
EPS = 2.0**-53
LARGEST, SMALLEST = 1e140, 1e-140


@contextmanager
def single_precision() -> Iterator[None]:
    """Bounds are those of float32 meanwhile."""
    names = ("EPS", "LARGEST", "SMALLEST")
    before = {name: globals()[name] for name in names}
    globals().update(zip(names, (2.0**-24, 1e25, 1e-25), strict=True))
    try:
        yield
    finally:
        globals().update(before)


def stored(values: Any) -> Any:
    """What numbers that are given lose when they are stored."""
    values = np.asarray(values, float)
    with np.errstate(over="ignore"):  # the error of a number beyond float32 is infinite
        single = values.astype(np.float32).astype(float)
    return np.abs(values - single) if EPS > 2.0**-53 else np.zeros_like(values)


class Unsure(Exception):
    """What float64 cannot decide or hold: a comparison within round-off, overflow, a pole."""


def nums(values: Any, errors: Any = 0.0) -> Any:
    """An object array of `Num` of an array whose last axis goes through the points."""
    values = np.asarray(values, LONG)
    errors = np.broadcast_to(np.asarray(errors, LONG), values.shape)
    out = np.empty(values.shape[:-1], dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = Num(values[index], errors[index])
    return out if out.ndim else out[()]


def _both(operation: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Two methods, of an operation with a number on the right, or on the left."""

    def method(swap: bool) -> Callable[[Any, Any], Any]:
        def function(self: Any, other: Any) -> Any:
            if isinstance(other, np.ndarray) and other.ndim:
                return NotImplemented
            if not isinstance(other, type(self) | Num | float | int | np.generic | np.ndarray):
                return NotImplemented
            other = dual(other) if isinstance(self, Dual) else num(other)
            with np.errstate(all="ignore"):
                return operation(other, self) if swap else operation(self, other)

        return function

    return method(False), method(True)


def _compared(decide: Callable[[Any, Any], Any]) -> Any:
    """A comparison, where round-off leaves it no doubt."""

    def compare(a: Num, b: Num) -> Num:
        gap, doubt = np.abs(a.v - b.v), a.e + b.e
        if np.any((gap <= 1000 * doubt) & (doubt > 0)):
            raise Unsure("a comparison within round-off")
        return Num(decide(a.v, b.v), 0.0, truth=True)

    return _both(compare)[0]


def _logic(decide: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """An operation of booleans alone."""

    def operation(a: Num, b: Num) -> Num:
        if not (a.truth and b.truth):
            raise TypeError("NumPy refuses &, | and ^ of real numbers")
        return Num(decide(a.v != 0, b.v != 0), 0.0, truth=True)

    return _both(operation)


# --- operations -----------------------------------------------------------------------------------


def add(a: Num, b: Num) -> Num:
    """A sum; of booleans NumPy's, which is `or`."""
    if a.truth and b.truth:
        return Num((a.v != 0) | (b.v != 0), 0.0, truth=True)
    return Num(a.v + b.v, a.e + b.e + EPS * (np.abs(a.v) + np.abs(b.v)))


def subtract(a: Num, b: Num) -> Num:
    """A difference."""
    if a.truth and b.truth:
        raise TypeError("NumPy refuses the difference of booleans")
    return Num(a.v - b.v, a.e + b.e + EPS * (np.abs(a.v) + np.abs(b.v)))


def multiply(a: Num, b: Num) -> Num:
    """A product; of booleans a boolean."""
    v = a.v * b.v
    if a.truth and b.truth:
        return Num(v, 0.0, truth=True)
    return Num(v, np.abs(a.v) * b.e + np.abs(b.v) * a.e + a.e * b.e + EPS * np.abs(v))


def divide(a: Num, b: Num) -> Num:
    """A quotient."""
    v = a.v / b.v
    least = np.abs(b.v) - b.e
    if np.any((np.abs(b.v) <= 10 * b.e) & (b.e > 0)):
        raise Unsure("a divisor within round-off of zero")
    return Num(v, (a.e + np.abs(v) * b.e) / least + 2 * EPS * np.abs(v))


def power(a: Num, b: Num) -> Num:
    """A power."""
    if b.v.ndim == 0 and b.v == int(b.v) and b.e == 0 and not b.truth:
        return _whole_power(a, int(b.v))
    if np.any(a.v - 10 * a.e <= 0):
        raise Unsure("a real power of what may be negative")
    v, log = a.v**b.v, np.log(a.v)
    _small(a.e / a.v * np.abs(b.v) + b.e * np.abs(log))
    return Num(v, 2 * np.abs(v) * (np.abs(b.v) * a.e / a.v + np.abs(log) * b.e + 4 * EPS))


def _whole_power(a: Num, n: int) -> Num:
    if n < 0:
        return divide(Num(1.0), _whole_power(a, -n))
    v = a.v**n
    slope = n * (np.abs(a.v) + a.e) ** max(n - 1, 0)
    return Num(v, slope * a.e + (n + 2) * EPS * np.abs(v))


def _small(change: Any) -> None:
    """Refuse errors for which a derivative at the value says too little."""
    if np.any(change > 1e-3):
        raise Unsure("an argument with too large an error")


def _smooth(value: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Num], Num]:
    def function(a: Num) -> Num:
        with np.errstate(all="ignore"):
            _small(np.nan_to_num(a.e))
            v = value(a.v)
            return Num(v, 2 * np.abs(slope(a.v)) * a.e + a.e**2 + 4 * EPS * np.abs(v))

    return function


def sqrt(a: Num) -> Num:
    """A square root."""
    with np.errstate(all="ignore"):
        if np.any((np.abs(a.v) <= 10 * a.e) & (a.e > 0)):
            raise Unsure("a root of what is within round-off of zero")
        v = np.sqrt(a.v)
        return Num(v, np.where(a.e > 0, a.e / v, 0.0) + 2 * EPS * v)


def log(a: Num) -> Num:
    """A natural logarithm."""
    with np.errstate(all="ignore"):
        if np.any((np.abs(a.v) <= 1000 * a.e) & (a.e > 0)):
            raise Unsure("a logarithm of what is within round-off of zero")
        v = np.log(a.v)
        return Num(v, 2 * a.e / np.abs(a.v) + 4 * EPS * np.abs(v))


def arctan2(y: Num, x: Num) -> Num:
    """The angle of a point."""
    square = x.v * x.v + y.v * y.v
    if np.any((square <= 1e6 * (x.e + y.e) ** 2) | ((x.v < 0) & (np.abs(y.v) <= 1000 * y.e))):
        raise Unsure("an angle at its jump")
    v = np.arctan2(y.v, x.v)
    moved = 2 * (np.abs(y.v) * x.e + np.abs(x.v) * y.e) / square
    return Num(v, moved + 4 * EPS * np.abs(v))


def minimum(a: Num, b: Num) -> Num:
    """The smaller."""
    return Num(np.minimum(a.v, b.v), np.maximum(a.e, b.e))


def maximum(a: Num, b: Num) -> Num:
    """The larger."""
    return Num(np.maximum(a.v, b.v), np.maximum(a.e, b.e))


def choose(c: Num, a: Num, b: Num) -> Num:
    """One of two, by what is no zero."""
    if np.any((np.abs(c.v) <= 1000 * c.e) & (c.e > 0)):
        raise Unsure("a condition within round-off of zero")
    return Num(np.where(c.v != 0, a.v, b.v), np.where(c.v != 0, a.e, b.e))


class Num:
    """A number at each point: value ``v``, error bound ``e``; ``truth`` if it is a boolean."""

    __slots__ = ("e", "truth", "v")

    def __init__(self, v: Any, e: Any = 0.0, truth: bool = False) -> None:
        self.v, self.e, self.truth = np.asarray(v, LONG), np.asarray(e, LONG), truth
        size = np.abs(self.v)
        if np.any((size > LARGEST) & (size < np.inf)) or np.any((size < SMALLEST) & (size > 0)):
            raise Unsure("out of range")

    def __repr__(self) -> str:
        return f"Num({np.asarray(self.v, float)!r})"

    __add__, __radd__ = _both(add)
    __sub__, __rsub__ = _both(subtract)
    __mul__, __rmul__ = _both(multiply)
    __truediv__, __rtruediv__ = _both(divide)
    __pow__, __rpow__ = _both(power)
    __and__, __rand__ = _logic(np.logical_and)
    __or__, __ror__ = _logic(np.logical_or)
    __xor__, __rxor__ = _logic(np.not_equal)
    __lt__, __gt__ = _compared(np.less), _compared(np.greater)
    __le__, __ge__ = _compared(np.less_equal), _compared(np.greater_equal)
    __eq__, __ne__ = _compared(np.equal), _compared(np.not_equal)
    __hash__ = None

    def __neg__(self) -> Num:
        if self.truth:
            raise TypeError("NumPy refuses the negative of a boolean")
        return Num(-self.v, self.e)

    def __abs__(self) -> Num:
        return Num(np.abs(self.v), self.e)

    def __invert__(self) -> Num:
        if not self.truth:
            raise TypeError("NumPy refuses ~ of a real number")
        return Num(self.v == 0, 0.0, truth=True)

    def __bool__(self) -> bool:
        raise TypeError("a form asked whether a number is true")

    def conjugate(self) -> Any:
        return self

    __pos__ = conjugate


def num(value: Any) -> Num:
    """A `Num` of a plain number, which is exact."""
    if isinstance(value, Num):
        return value
    value = value.item() if isinstance(value, np.ndarray | np.generic) else value
    return value if isinstance(value, Num) else Num(float(value), 0.0, isinstance(value, bool))


SMOOTH = {
    "exp": _smooth(np.exp, np.exp),
    "sin": _smooth(np.sin, np.cos),
    "cos": _smooth(np.cos, np.sin),
    "tan": _smooth(np.tan, lambda x: 1 + np.tan(x) ** 2),
    "tanh": _smooth(np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "sinh": _smooth(np.sinh, np.cosh),
    "cosh": _smooth(np.cosh, np.sinh),
    "arctan": _smooth(np.arctan, lambda x: 1 / (1 + x * x)),
    "sqrt": sqrt,
    "log": log,
}


# --- derivatives ----------------------------------------------------------------------------------


ZERO, ONE = Num(0.0), Num(1.0)


def dual(value: Any) -> Dual:
    """A constant as a `Dual`."""
    return value if isinstance(value, Dual) else Dual(num(value), ZERO)


def _divide(a: Dual, b: Dual) -> Dual:
    n = a.n / b.n
    return Dual(n, (a.d - n * b.d) / b.n)


def _power(a: Dual, b: Dual) -> Dual:
    n = a.n**b.n
    whole = b.n.v.ndim == 0 and b.n.e == 0 and b.n.v == int(b.n.v)
    if whole and b.n.v == 0:
        return dual(1.0)
    less = Num(b.n.v - 1) if whole else b.n - 1.0
    total = a.d * (b.n * a.n**less)
    return Dual(n, total if np.all(b.d.v == 0) else total + b.d * (n * log(a.n)))


class Dual:
    """A number ``n`` and its derivative ``d`` along one direction, both `Num`."""

    __slots__ = ("d", "n")

    def __init__(self, n: Num, d: Num) -> None:
        self.n, self.d = n, d

    __add__, __radd__ = _both(lambda a, b: Dual(a.n + b.n, a.d + b.d))
    __sub__, __rsub__ = _both(lambda a, b: Dual(a.n - b.n, a.d - b.d))
    __mul__, __rmul__ = _both(lambda a, b: Dual(a.n * b.n, a.d * b.n + a.n * b.d))
    __truediv__, __rtruediv__ = _both(_divide)
    __pow__, __rpow__ = _both(_power)
    __lt__ = _both(lambda a, b: a.n < b.n)[0]
    __le__ = _both(lambda a, b: a.n <= b.n)[0]
    __gt__ = _both(lambda a, b: a.n > b.n)[0]
    __ge__ = _both(lambda a, b: a.n >= b.n)[0]
    __eq__ = _both(lambda a, b: a.n == b.n)[0]
    __ne__ = _both(lambda a, b: a.n != b.n)[0]
    __hash__ = None
    __bool__, __pos__, conjugate = Num.__bool__, Num.conjugate, Num.conjugate

    def __neg__(self) -> Dual:
        return Dual(-self.n, -self.d)

    def __abs__(self) -> Dual:
        return Dual(abs(self.n), choose(self.n < 0.0, -self.d, self.d))


SLOPES: dict[str, Callable[[Num, Num], Any]] = {
    "exp": lambda a, f: f,
    "sin": lambda a, f: SMOOTH["cos"](a),
    "cos": lambda a, f: -SMOOTH["sin"](a),
    "tan": lambda a, f: 1.0 + f * f,
    "tanh": lambda a, f: 1.0 - f * f,
    "sinh": lambda a, f: SMOOTH["cosh"](a),
    "cosh": lambda a, f: SMOOTH["sinh"](a),
    "arctan": lambda a, f: 1.0 / (1.0 + a * a),
    "sqrt": lambda a, f: 0.5 / f,
    "log": lambda a, f: 1.0 / a,
}
