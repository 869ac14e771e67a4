"""Symbols of complex numbers, for the functions of complex forms: pairs of real symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from femops.errors import TraceError
from femops.pointwise.expressions.graph import REAL, Graph, Node, Symbolic, Symbols
from femops.pointwise.expressions.operations import BITWISE, FUNCTIONS, LOGICAL, UFUNCS

_BY_PARTS = ("add", "sub", "pos", "neg")
_ALLOWED = (
    "complex numbers have + - * /, whole powers, conj, abs, exp, square; real ones have more, "
    "as in real forms"
)


@final
class ComplexArray(Symbols):
    """Array of complex symbols."""

    @property  # type: ignore[misc]  # NumPy's can be set
    def real(self) -> Any:
        """Real parts, in an array of the same shape."""
        return each(lambda entry: _part(entry, "real"), self)

    @property  # type: ignore[misc]
    def imag(self) -> Any:
        """Imaginary parts, in an array of the same shape."""
        return each(lambda entry: _part(entry, "imag"), self)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(function, args, kwargs)


@final
class ComplexSymbol(Symbolic):
    """Complex number whose value is known when a kernel runs."""

    __slots__ = ("im", "re")

    def __init__(self, re: Node, im: Node) -> None:
        self.re, self.im = re, im

    @staticmethod
    def of(graph: Graph, value: Any) -> ComplexSymbol:
        """Convert a number or a symbol."""
        if isinstance(value, ComplexSymbol):
            return value
        if isinstance(value, complex | np.complexfloating):
            return ComplexSymbol(graph.node(float(value.real)), graph.node(float(value.imag)))
        return ComplexSymbol(graph.node(value), graph.constant(0.0))

    @property
    def graph(self) -> Graph:
        """Graph of both parts."""
        return self.re.graph

    @property
    def is_real(self) -> bool:
        """True if the imaginary part is the constant zero."""
        return self.im.is_constant(0.0)

    @property
    def real(self) -> ComplexSymbol:
        """Real part."""
        return ComplexSymbol.of(self.graph, self.re)

    @property
    def imag(self) -> ComplexSymbol:
        """Imaginary part."""
        return ComplexSymbol.of(self.graph, self.im)

    def conjugate(self) -> ComplexSymbol:
        """Complex conjugate. NumPy calls it for the entries of arrays."""
        return ComplexSymbol(self.re, -self.im)

    def exp(self) -> ComplexSymbol:
        """Exponential function. NumPy calls it for the entries of arrays."""
        size = np.exp(self.re)
        if self.is_real:
            return ComplexSymbol.of(self.graph, size)
        return ComplexSymbol(size * np.cos(self.im), size * np.sin(self.im))

    def _function(self, ufunc: Any) -> Any:
        """Apply a function of NumPy that is for real numbers only."""
        if not self.is_real:
            raise TraceError(f"numpy.{ufunc.__name__} of a complex number: {_ALLOWED}")
        return ComplexSymbol.of(self.graph, ufunc(self.re))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if not all(isinstance(value, _OPERANDS) for value in inputs):
            return NotImplemented  # a field, whose own method then continues with its value
        name = "conj" if ufunc is np.conjugate else UFUNCS.get(ufunc)
        if name is None or method != "__call__" or options:
            raise TraceError(f"numpy.{ufunc.__name__} has no meaning for symbols here: {_ALLOWED}")
        graph = self.graph

        def one(*values: Any) -> Any:
            if name in LOGICAL or name in BITWISE:
                parts = (_condition(value, ufunc) for value in values)
                return ComplexSymbol.of(graph, ufunc(*parts))
            return _applied(ufunc, name, [ComplexSymbol.of(graph, value) for value in values])

        return each(one, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(function, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        raise TraceError("a scalar is indexed: leave out the index")

    def __bool__(self) -> bool:
        return bool(self.re)

    def __float__(self) -> float:
        return float(self.re)

    __int__ = __index__ = __complex__ = __float__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"({self.re!r} + {self.im!r}j)"


_OPERANDS = (ComplexSymbol, Node, bool, complex, *REAL, np.bool_, np.ndarray)


def each(function: Callable[..., Any], *inputs: Any) -> Any:
    """Apply a function entry by entry to values and arrays that broadcast."""
    arrays = np.broadcast_arrays(*[np.asarray(value, dtype=object) for value in inputs])
    if not arrays[0].ndim:
        return function(*(array[()] for array in arrays))
    out = np.empty(arrays[0].shape, dtype=object).view(ComplexArray)
    for index in np.ndindex(out.shape):
        out[index] = function(*(array[index] for array in arrays))
    return out


def complex_array(value: Any) -> Any:
    """Convert arrays with complex symbols to `ComplexArray`. Other values are returned unchanged.

    A tuple or list, which some functions of NumPy return, is converted entry by entry.
    """
    if isinstance(value, tuple | list):
        return type(value)(map(complex_array, value))
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return value
    found = any(isinstance(entry, ComplexSymbol) for entry in value.flat)
    return value.view(ComplexArray) if found else value


def called(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of NumPy that is not a ufunc, with arguments that have symbols.

    Arrays that it returns know that they are complex, as those that it is given do.
    """
    value = complex_array(np.asarray(args[0], dtype=object)) if function in _BY_TYPE else None
    if isinstance(value, ComplexArray):
        return _BY_TYPE[function](value, *args[1:], **kwargs)
    return complex_array(_PLAIN.__array_function__(function, (), args, kwargs))


_PLAIN = np.empty(0)


def _angle(value: ComplexArray, deg: bool = False) -> Any:
    angle = each(np.arctan2, value.imag, value.real)
    return angle * (180.0 / np.pi) if deg else angle


def _norm(value: ComplexArray, **options: Any) -> Any:
    if options:
        raise TraceError("numpy.linalg.norm of symbols takes no options: it is sqrt(sum(|a|^2))")
    squares = each(lambda entry: _part(entry, "real") ** 2 + _part(entry, "imag") ** 2, value)
    return np.sqrt(np.asarray(squares, dtype=object).sum())


def _type_test(_: ComplexArray) -> Any:
    raise TraceError(
        "a symbol is asked whether it is real: use np.real and np.imag, which take both"
    )


# Functions that ask NumPy for the type of an array, which is that of objects here.
_BY_TYPE: dict[Any, Callable[..., Any]] = {
    np.real: lambda value: value.real,
    np.imag: lambda value: value.imag,
    np.angle: _angle,
    np.linalg.norm: _norm,
    **dict.fromkeys((np.isreal, np.iscomplex, np.isrealobj, np.iscomplexobj), _type_test),
}


def _part(entry: Any, name: str) -> Any:
    """Real or imaginary part of a number or symbol. Nodes are real numbers."""
    if isinstance(entry, Node):
        return entry if name == "real" else 0.0
    return getattr(entry, name)


def where_complex(graph: Graph, condition: Any, a: Any, b: Any) -> ComplexSymbol:
    """``a`` where the condition holds, else ``b``, of complex numbers; see `femops.where`."""
    left, right = ComplexSymbol.of(graph, a), ComplexSymbol.of(graph, b)
    condition = _condition(condition, np.not_equal)
    if not isinstance(condition, Node):
        return left if condition else right
    parts = (left.re, right.re), (left.im, right.im)
    return ComplexSymbol(*(graph.where(condition, *pair) for pair in parts))


def _condition(value: Any, ufunc: Any) -> Any:
    """Node of a condition or real number. Values that are no symbols are returned unchanged."""
    if not isinstance(value, ComplexSymbol):
        return value
    if not value.is_real:
        raise TraceError(f"numpy.{ufunc.__name__} of a complex number: {_ALLOWED}")
    return value.re


def _method(ufunc: Any) -> Callable[[ComplexSymbol], Any]:
    return lambda self: self._function(ufunc)


# NumPy's functions call these on the entries of an array of symbols.
for _name in {"sqrt", *FUNCTIONS} - {"exp"}:
    setattr(ComplexSymbol, _name, _method(getattr(np, _name)))


def _applied(ufunc: Any, name: str, values: list[ComplexSymbol]) -> Any:
    """Apply one of NumPy's functions to complex symbols.

    The real part of a comparison is a condition.
    """
    a, b = values[0], values[-1]
    if name in ("conj", "exp"):
        return a.conjugate() if name == "conj" else a.exp()
    if name in _BY_PARTS:
        parts = [v.re for v in values], [v.im for v in values]
        return ComplexSymbol(*(ufunc(*part) for part in parts))
    if all(value.is_real for value in values):
        return ComplexSymbol.of(a.graph, ufunc(*(value.re for value in values)))
    if name in ("mul", "square"):
        return _product(a, b)
    if name == "div":
        return _quotient(a, b)
    if name == "fabs":
        return ComplexSymbol.of(a.graph, np.sqrt(a.re * a.re + a.im * a.im))
    if name == "pow" and b.is_real and b.re.op == "const":
        return _power(a, b.re.value)
    raise TraceError(f"numpy.{ufunc.__name__} of a complex number: {_ALLOWED}")


def _product(a: ComplexSymbol, b: ComplexSymbol) -> ComplexSymbol:
    return ComplexSymbol(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _quotient(a: ComplexSymbol, b: ComplexSymbol) -> ComplexSymbol:
    if b.is_real:
        return ComplexSymbol(a.re / b.re, a.im / b.re)
    above, below = _product(a, b.conjugate()), b.re * b.re + b.im * b.im
    return ComplexSymbol(above.re / below, above.im / below)


def _power(a: ComplexSymbol, exponent: float) -> ComplexSymbol:
    """Power with a whole exponent, by repeated squares."""
    if exponent != int(exponent):
        raise TraceError(f"a complex number to the power {exponent}: {_ALLOWED}")
    one = ComplexSymbol.of(a.graph, 1.0)
    if exponent < 0:
        return _quotient(one, _power(a, -exponent))
    result, square, left = one, a, int(exponent)
    while left:
        result = _product(result, square) if left % 2 else result
        square, left = _product(square, square), left // 2
    return result
