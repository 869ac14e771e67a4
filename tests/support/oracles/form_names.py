"""The names that a form's text uses, for numbers that know how wrong float64 may have made them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from support.oracles.running_error import (
    SLOPES,
    SMOOTH,
    Dual,
    Num,
    Unsure,
    arctan2,
    choose,
    dual,
    maximum,
    minimum,
    num,
)


def _is_plain(*values: Any) -> bool:
    return not any(
        isinstance(entry, Num | Dual)
        for value in values
        for entry in (value.flat if isinstance(value, np.ndarray) else (value,))
    )


def _plain_argument(value: Any) -> Any:
    """A field as its value, a sequence as an array."""
    value = getattr(value, "value", value)
    return np.array(value, dtype=object) if isinstance(value, list | tuple) else value


def each(plain: Any, exact: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers and arrays, entry by entry; NumPy's own for plain numbers."""

    def function(*values: Any) -> Any:
        values = tuple(_plain_argument(value) for value in values)
        if _is_plain(*values):
            return plain(*values)
        return np.frompyfunc(exact, len(values), 1)(*values)

    return function


def _unary(name: str) -> Callable[..., Any]:
    def exact(a: Any) -> Any:
        if isinstance(a, Dual):
            f = SMOOTH[name](a.n)
            return Dual(f, a.d * SLOPES[name](a.n, f))
        return SMOOTH[name](num(a))

    return each(getattr(np, name), exact)


def _arctan2(y: Any, x: Any) -> Any:
    if not isinstance(y, Dual) and not isinstance(x, Dual):
        return arctan2(num(y), num(x))
    y, x = dual(y), dual(x)
    turned = (y.d * x.n - x.d * y.n) / (x.n * x.n + y.n * y.n)
    return Dual(arctan2(y.n, x.n), turned)


def _where(condition: Any, a: Any, b: Any) -> Any:
    c = condition.n if isinstance(condition, Dual) else num(condition)
    if not isinstance(a, Dual) and not isinstance(b, Dual):
        return choose(c, num(a), num(b))
    a, b = dual(a), dual(b)
    return Dual(choose(c, a.n, b.n), choose(c, a.d, b.d))


def _smaller(a: Any, b: Any) -> Any:
    if isinstance(a, Dual) or isinstance(b, Dual):
        return _where(dual(a) < dual(b), a, b)
    return minimum(num(a), num(b))


def _larger(a: Any, b: Any) -> Any:
    if isinstance(a, Dual) or isinstance(b, Dual):
        return _where(dual(a) > dual(b), a, b)
    return maximum(num(a), num(b))


def _matrix(a: Any) -> Any:
    return np.asarray(getattr(a, "value", a), dtype=object)


def det(a: Any) -> Any:
    """Determinant by the first row."""
    a = _matrix(a)
    if len(a) == 1:
        return a[0, 0]
    total = 0.0
    for j in range(len(a)):
        minor = np.delete(np.delete(a, 0, axis=0), j, axis=1)
        total = total + (-1.0) ** j * a[0, j] * det(minor)
    return total


def adjugate(a: Any) -> Any:
    """Transposed cofactors."""
    a = _matrix(a)
    out = np.empty(a.shape, dtype=object)
    for i, j in np.ndindex(a.shape):
        minor = np.delete(np.delete(a, i, axis=0), j, axis=1)
        out[j, i] = (-1.0) ** (i + j) * (det(minor) if len(a) > 1 else 1.0)
    return out


def inverse(a: Any) -> Any:
    """Inverse by cofactors."""
    return adjugate(a) / det(a)


def symmetric(a: Any) -> Any:
    """Symmetric part."""
    a = _matrix(a)
    return (a + a.T) / 2.0


def inner(a: Any, b: Any) -> Any:
    """Sum of products of entries."""
    return (_matrix(a) * _matrix(b)).sum()


def _sign(a: Any) -> Any:
    """-1, 0 or 1; its derivative is zero."""
    a = a.n if isinstance(a, Dual) else num(a)
    if np.any((np.abs(a.v) <= 1000 * a.e) & (a.e > 0)):
        raise Unsure("a sign within round-off")
    return Num(np.sign(a.v))


def _truth(a: Any) -> Num:
    """Whether a number is not zero."""
    a = a.n if isinstance(a, Dual) else num(a)
    return a if a.truth else a != 0.0


_STRUCTURE = (
    "array",
    "eye",
    "outer",
    "trace",
    "stack",
    "diag",
    "transpose",
    "dot",
    "zeros",
    "ones",
)
_CHOICES = {"minimum": each(np.minimum, _smaller), "maximum": each(np.maximum, _larger)}

NUMPY = SimpleNamespace(
    **{name: getattr(np, name) for name in _STRUCTURE},
    **{name: _unary(name) for name in SMOOTH},
    **_CHOICES,
    float64=np.float64,
    abs=each(np.abs, abs),
    arctan2=each(np.arctan2, _arctan2),
    sign=each(np.sign, _sign),
    square=each(np.square, lambda a: a * a),
    logical_and=each(np.logical_and, lambda a, b: _truth(a) & _truth(b)),
    logical_or=each(np.logical_or, lambda a, b: _truth(a) | _truth(b)),
    logical_not=each(np.logical_not, lambda a: ~_truth(a)),
    equal=each(np.equal, lambda a, b: a == b),
    not_equal=each(np.not_equal, lambda a, b: a != b),
    asarray=lambda a: np.asarray(getattr(a, "value", a), dtype=object),
)
FEMOPS = SimpleNamespace(
    det=det,
    inv=inverse,
    adjugate=adjugate,
    sym=symmetric,
    inner=inner,
    where=each(np.where, _where),
    **_CHOICES,
)
