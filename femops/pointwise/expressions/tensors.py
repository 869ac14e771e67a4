"""Functions that a form may call besides arithmetic and NumPy, on symbols and on numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from femops.errors import TraceError
from femops.pointwise.expressions.complex_symbols import (
    ComplexSymbol,
    complex_array,
    each,
    where_complex,
)
from femops.pointwise.expressions.graph import Node
from femops_common.arguments import array_of, refusal


def _entries(value: Any) -> Any:
    """Convert a value to an array of objects. Numbers and numeric arrays are not changed."""
    if isinstance(value, bool | int | float | np.generic):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value
    return array_of(value, "an argument", TraceError, object)


def _numbers(value: Any) -> Any:
    """Return the value. Raise unless it is a number or an array of numbers."""
    array = array_of(value, "an argument", TraceError)
    if array.dtype.kind not in "biufc":
        raise TraceError(refusal("an argument", value, "symbols, numbers or arrays of them"))
    return value


def _graph_of(*values: Any) -> Any:
    """Graph of the first symbol among values and entries of arrays. None without symbols."""
    return next((entry.graph for entry in _symbols(*values)), None)


def _symbols(*values: Any) -> Iterator[Node | ComplexSymbol]:
    """Symbols among the entries of arrays of objects."""
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype == object:
            yield from (entry for entry in value.flat if isinstance(entry, Node | ComplexSymbol))


def _any_complex(*values: Any) -> bool:
    """True if an entry is a complex number or its symbol, in a form of complex numbers."""
    return any(isinstance(entry, ComplexSymbol) for entry in _symbols(*values))


def _each(values: tuple[Any, ...], function: Callable[..., Node]) -> Any:
    """Apply a function entry by entry to arrays that broadcast."""
    arrays = np.broadcast_arrays(*[np.asarray(value, dtype=object) for value in values])
    out = np.empty(arrays[0].shape, dtype=object)
    for index in np.ndindex(out.shape):
        out[index] = function(*(array[index] for array in arrays))
    return out if out.ndim else out[()]


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``. Both are evaluated.

    Parameters
    ----------
    condition : comparison of symbols, boolean, or array of these
        A number counts as true if it is not zero, as in NumPy.
    a, b : symbols, numbers or arrays that broadcast
    """
    values = tuple(map(_entries, (condition, a, b)))
    graph = _graph_of(*values)
    if graph is None:
        return np.where(*(_numbers(part) for part in (condition, a, b)))

    if _any_complex(*values):
        return each(lambda *parts: where_complex(graph, *parts), *values)

    def choose(condition: Any, a: Any, b: Any) -> Node:
        if not isinstance(condition, Node):
            return graph.node(a if condition else b)  # type: ignore[no-any-return]
        return graph.where(condition, graph.node(a), graph.node(b))  # type: ignore[no-any-return]

    return _each(values, choose)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two symbols, numbers or arrays, entry by entry.

    Parameters
    ----------
    a, b : symbols, numbers or arrays that broadcast
    """
    return _pairwise("minimum", np.minimum, a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two symbols, numbers or arrays, entry by entry.

    Parameters
    ----------
    a, b : symbols, numbers or arrays that broadcast
    """
    return _pairwise("maximum", np.maximum, a, b)


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """Values at x of a table: linear between its points, constant beyond the first and the last.

    As `numpy.interp`. At an inner point the derivative is that of the piece to the right.

    Parameters
    ----------
    x : symbol, number or array
    xp : (n,) numbers
        Points of the table, ascending, at least two.
    fp : (n,) symbols or numbers
        Values at the points.

    Raises
    ------
    TraceError
        If the table has another shape, its points are not finite numbers that ascend, or x is
        complex.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> k = lambda T: femops.interp(T, [0.0, 100.0, 300.0], [0.3, 0.4, 0.8])
    >>> F = femops.residual(lambda T: {"grad": k(T) * T.grad}, V)
    >>> round(float(k(200.0)), 12)
    0.6
    """
    points, values = array_of(xp, "xp", TraceError), _entries(fp)
    if points.ndim != 1 or len(points) < 2 or np.shape(values) != points.shape:
        raise TraceError(
            f"interp is given xp of shape {points.shape} and fp of shape {np.shape(values)}: give "
            "(n,) points, at least two, and as many values"
        )
    if points.dtype == object:
        raise TraceError(
            "xp of interp has symbols: give numbers, which are known when the form is made. For "
            "points that vary, join the pieces with femops.where"
        )
    real = points.dtype.kind in "iuf" and bool(np.isfinite(points).all())
    if not real or not (np.diff(points) > 0.0).all():
        raise TraceError("xp of interp are not finite numbers that ascend: sort the table by them")
    places = _entries(x)
    if _graph_of(places, values) is None:
        if np.iscomplexobj(_numbers(x)):
            raise TraceError("x of interp is complex: a table has real points")
        return np.interp(x, points, _numbers(fp))
    places = np.asarray(places, dtype=object)
    pieces = np.empty(places.shape, dtype=object)
    for index in np.ndindex(pieces.shape):
        pieces[index] = _piecewise(places[index], points.tolist(), values)
    return pieces if pieces.ndim else pieces[()]


def _piecewise(x: Any, points: list[float], values: Any) -> Any:
    """Value at one symbol or number of a table that `interp` has checked."""
    x = maximum(x, points[0])
    result: Any = None
    for i, (low, high) in enumerate(pairwise(points)):
        piece = values[i] + (values[i + 1] - values[i]) / (high - low) * (x - low)
        result = piece if result is None else where(x >= low, piece, result)
    # the last piece would lose the digits of a last value that is small beside the one before it
    return where(x >= points[-1], values[-1], result)


def _pairwise(op: str, function: Any, a: Any, b: Any) -> Any:
    values = _entries(a), _entries(b)
    graph = _graph_of(*values)
    if graph is None:
        return function(_numbers(a), _numbers(b))
    if _any_complex(*values):
        return each(function, *values)
    return _each(values, lambda x, y: graph.binary(op, graph.node(x), graph.node(y)))


def _square(matrix: Any, what: str) -> Any:
    a = array_of(matrix, "the matrix", TraceError)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or a.shape[0] > 3:
        raise TraceError(
            f"{what} of an array of shape {a.shape}: give a 1 x 1, 2 x 2 or 3 x 3 matrix"
        )
    return a


def adjugate(matrix: Any) -> Any:
    """Transposed cofactors of a matrix of up to 3 x 3, so that ``A @ adjugate(A) = det(A) I``.

    Parameters
    ----------
    matrix : (n, n) array
        Matrix of symbols or numbers, n up to 3.

    Raises
    ------
    TraceError
        If the array has another shape.
    """
    a = _square(matrix, "the adjugate")
    n = len(a)
    if n == 1:
        return np.ones((1, 1))
    if n == 2:
        return complex_array(np.array([[a[1, 1], -a[0, 1]], [-a[1, 0], a[0, 0]]]))
    rows = []
    for i in range(3):
        i1, i2 = (i + 1) % 3, (i + 2) % 3
        row = []
        for j in range(3):
            j1, j2 = (j + 1) % 3, (j + 2) % 3
            row.append(a[j1, i1] * a[j2, i2] - a[j1, i2] * a[j2, i1])
        rows.append(row)
    return complex_array(np.array(rows))


def det(matrix: Any) -> Any:
    """Determinant of a matrix of up to 3 x 3.

    Parameters
    ----------
    matrix : (n, n) array
        Matrix of symbols or numbers, n up to 3.

    Raises
    ------
    TraceError
        If the array has another shape.
    """
    a = _square(matrix, "the determinant")
    first = adjugate(a)[:, 0]
    total = a[0, 0] * first[0]
    for j in range(1, len(a)):
        total = total + a[0, j] * first[j]
    return total


def inv(matrix: Any) -> Any:
    """Inverse of a matrix of up to 3 x 3, by cofactors.

    Parameters
    ----------
    matrix : (n, n) array
        Matrix of symbols or numbers, n up to 3.

    Raises
    ------
    TraceError
        If the array has another shape.
    """
    a = _square(matrix, "the inverse")
    if a.dtype == object:
        return adjugate(a) * (1.0 / det(a))
    # products of numbers may be beyond the range where the inverse is not
    power = np.exp2(-np.frexp(abs(a).max())[1])
    a = a * power
    return adjugate(a) * (1.0 / det(a)) * power


def sym(matrix: Any) -> Any:
    """Symmetric part, (A + A^T) / 2.

    Parameters
    ----------
    matrix : (n, n) array
        Matrix of symbols or numbers, n up to 3.

    Raises
    ------
    TraceError
        If the array has another shape.
    """
    a = complex_array(_square(matrix, "the symmetric part"))
    return 0.5 * (a + a.T)


def inner(a: Any, b: Any) -> Any:
    """Sum of the products of the entries of two arrays of equal shape, A : B.

    Parameters
    ----------
    a, b : arrays of equal shape, or two scalars
        Arrays of symbols or numbers.

    Raises
    ------
    TraceError
        If the shapes differ.
    """
    left, right = array_of(a, "a", TraceError), array_of(b, "b", TraceError)
    if left.shape != right.shape:
        raise TraceError(
            f"inner product of shapes {left.shape} and {right.shape}: give two of one shape"
        )
    products = [x * y for x, y in zip(left.flat, right.flat, strict=True)]
    total = products[0]
    for product in products[1:]:
        total = total + product
    return total
