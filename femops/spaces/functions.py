"""Evaluation and checks of users' functions of position.

Instead of a function of position femops also accepts a number. For a space with components it
accepts one number or function value per component.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.errors import FemopsError, SpaceError
from femops.geometry.domain import DomainBlock
from femops.pointwise.trace import line_of
from femops.spaces.restriction import refuse_unreadable
from femops_common.arguments import call_with_arrays, check_takes, plain_numbers, shown, type_name

_LOOKED_AT = 4096  # points among which the two are chosen that a function is checked at

Floats = NDArray[np.float64]
Function = Callable[[Floats], Any] | ArrayLike
"""Function ``f(x)`` of points x (dim, n) -> (n,) or (ncomp, n) or a scalar, or a constant."""


Predicate = Callable[[Floats], Any]
"""Function ``f(x)`` of points x (dim, n) -> (n,) booleans."""


def evaluate(f: Function, x: Floats, shape: tuple[int, ...] = (), what: str = "f") -> Floats:
    """Evaluate a user's function at points.

    Shapes: `x` (dim, n), returned (n, *shape).
    """
    return evaluate_any(f, (x,), (shape,), what, SpaceError)


def evaluate_any(
    f: Function,
    place: tuple[Floats, ...],
    shapes: Sequence[tuple[int, ...]],
    what: str,
    error: type[FemopsError],
) -> Floats:
    """Evaluate a user's function whose values may have one of several shapes.

    Shapes: `place` (dim, n), returned (n, *shape).
    """
    x = place[0]
    n = x.shape[1]
    result = called(f, place, what, error, np.empty((*shapes[0], 0))) if callable(f) else f
    values = _fitted(result, shapes, n, what, error)
    largest = max(values.max(initial=0.0), -values.min(initial=0.0))  # NaN if one is NaN
    if not np.isfinite(largest):
        bad: Any = ~np.isfinite(values).all(axis=tuple(range(values.ndim - 1)))
        raise error(_not_finite(f, x, bad, what))
    if callable(f):
        shape = values.shape[:-1]
        tolerance = np.sqrt(_rounding(result)) * largest

        def same(again: Any, chosen: NDArray[np.intp]) -> bool:
            found = _fitted(again, (shape,), len(chosen), what, error)
            return bool(np.all(np.abs(found - values[..., chosen]) <= tolerance))

        _check_pointwise(f, place, same, what, error, shape)
    return np.array(np.moveaxis(values, -1, 0), order="C")  # never the user's own array


def is_by_parts(values: Any, mesh: Any) -> bool:
    """True for a list of an array of values at points for each part of a mesh of several shapes."""
    if not isinstance(values, list | tuple) or len(values) != len(getattr(mesh, "parts", ())):
        return False
    return all(isinstance(one, np.ndarray) and one.ndim > 1 for one in values)


def parts_of(f: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a complex function, number or array. Others: itself, and zero."""
    if callable(f):
        return functools.wraps(f)(lambda *place: np.real(f(*place))), functools.wraps(f)(
            lambda *place: np.imag(f(*place))
        )
    if isinstance(f, list | tuple) and all(isinstance(one, np.ndarray) for one in f):
        return [np.real(one) for one in f], [np.imag(one) for one in f]  # lengths may differ
    if isinstance(f, bool | int | float | complex | np.number | np.ndarray | list | tuple):
        return np.real(f), np.imag(f)
    return f, 0.0


def columns(points: Floats) -> Floats:
    """Copy points (n, nq, dim) to the layout (dim, n * nq) of users' functions."""
    return np.ascontiguousarray(points.reshape(-1, points.shape[-1]).T)


def place_of(
    function: Callable[..., Any], block: DomainBlock, error: type[FemopsError]
) -> tuple[Floats, ...]:
    """Arguments of a user's function: points; on a boundary also normals, if it takes two.

    The function's signature decides whether normals are passed.

    Shapes: returned (dim, n).
    """
    x = columns(block.points)
    if not block.geometry.domain.has_normals:
        return (x,)
    if _first_argument(function) == "n":
        raise error(
            "the first argument of a function on the boundary is the position, not the normal n: "
            "write lambda x, n: ..."
        )
    return (x, columns(block.normals)) if takes_normals(function) else (x,)


def _first_argument(function: Callable[..., Any]) -> str:
    """Name of a function's first argument; empty if it has none, or does not tell."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        return ""


def takes_normals(function: Callable[..., Any]) -> bool:
    """True if a function must be called with two arguments: points and normals."""
    try:
        parameters = inspect.signature(function)
        parameters.bind(0, 0)
    except (TypeError, ValueError):  # no two arguments, or a builtin that does not tell
        return False
    try:
        parameters.bind(0)
    except TypeError:
        return True
    return False


def selected(predicate: Callable[[Floats], Any], x: Floats) -> NDArray[np.bool_]:
    """Evaluate a user's predicate at points. Return booleans (n,), True at the chosen points.

    Shapes: `x` (dim, n).
    """
    n = x.shape[1]
    result = called(predicate, (x,), "the predicate", SpaceError, np.zeros(0, np.bool_))
    refuse_unreadable(result, "the predicate")
    try:
        chosen = np.asarray(result)
    except ValueError:
        chosen = np.empty(0, object)
    if chosen.shape != (n,) or chosen.dtype != np.bool_:
        raise SpaceError(
            f"the predicate returned {type_name(type(result))} of shape {chosen.shape} and type "
            f"{chosen.dtype} at {n} points: it takes x of shape (dim, n) and returns n booleans, "
            "as lambda x: x[0] < 1e-9 does"
        )

    def same(again: Any, at: NDArray[np.intp]) -> bool:
        return np.array_equal(again, chosen[at])

    _check_pointwise(predicate, (x,), same, "the predicate", SpaceError)
    return chosen


def called(
    f: Callable[..., Any],
    place: tuple[Floats, ...],
    what: str,
    error: type[FemopsError],
    empty: NDArray[Any] | None = None,
) -> Any:
    """Call a user's function. Turn typical mistakes into errors that explain them."""
    check_takes(
        f,
        place,
        lambda mismatch: error(
            f"{what} is called with one array x of shape (dim, n), x[0] being the first "
            f"coordinate: {mismatch}"
        ),
    )
    if empty is not None and not place[0].shape[1]:
        return empty
    own = tuple(values.copy() for values in place)  # f may write into its arguments
    return call_with_arrays(
        f,
        own,
        lambda mistake: error(
            f"{what} is called with all points at once, x of shape (dim, n), and uses an array as "
            f"one number: {line_of(mistake)}in place of a Python `if`, `and`, `or`, `min` or "
            "`max` write np.where(x[0] > 0.5, 1.0, 2.0), `&`, `|`, np.minimum or np.maximum, and "
            "numpy's functions in place of math's"
        ),
    )


def _check_pointwise(
    f: Callable[..., Any],
    place: tuple[Floats, ...],
    same: Callable[[Any, NDArray[np.intp]], bool],
    what: str,
    error: type[FemopsError],
    shape: tuple[int, ...] = (),
) -> None:
    """Call a function again for two of its points, and raise if its values have changed.

    The two points are at opposite ends of the points, or of every few of them. They are passed
    together in the opposite order, then each alone. This detects functions that take ``x[:, 0]``
    for the first coordinate, or that sort, sum, or scale by the largest coordinate.
    """
    x = place[0]
    n = x.shape[1]
    step = max(1, n // _LOOKED_AT)
    along = np.arange(len(x), 0, -1) @ x[:, ::step] if n else np.zeros(1)
    ends = [step * int(np.argmax(along)), step * int(np.argmin(along))]
    if ends[0] == ends[1]:
        return
    # a number of points that cannot be confused with a dimension of a value
    m = next(m for m in count(4) if m != n and m not in shape)
    for chosen in (np.resize(order, m) for order in (ends, ends[:1], ends[1:])):
        part = tuple(np.ascontiguousarray(values[:, chosen]) for values in place)
        complaint = error(
            f"{what} depends on which points are asked for: at {_point(x, int(chosen[0]))} it "
            f"gives one value among {n} points and another, or none, among {m}. Compute each value "
            "from its own column of x alone. x has shape (dim, n): x[0] is the first coordinate of "
            "all points, x[:, 0] is the first point"
        )
        try:
            agrees = same(f(*part), chosen)
        except Exception as failure:  # whatever a user's function may raise
            raise complaint from failure
        if not agrees:
            raise complaint


def _not_finite(f: Any, x: Floats, bad: NDArray[np.bool_], what: str) -> str:
    """Return the message for a constant or a function that is not finite (at ``bad`` points)."""
    if not callable(f) and np.ndim(f) == 0:
        return f"{what} is {f}: give a finite number"
    if not callable(f):
        return f"{what} has entries that are not finite: give finite numbers"
    return (
        f"{what} is not finite at {np.count_nonzero(bad)} of {bad.size} points, the first of them "
        f"{_point(x, int(np.argmax(bad)))}: give a function that is finite on the whole mesh"
    )


def _point(x: Floats, number: int) -> str:
    return f"({', '.join(f'{c:.6g}' for c in x[:, number])})"


def _rounding(result: Any) -> float:
    """Largest unit round-off of the types in a result, at least that of float64."""
    if isinstance(result, list | tuple):
        return max(map(_rounding, result), default=0.0)
    dtype = getattr(result, "dtype", np.dtype(np.float64))
    least = float(np.finfo(np.float64).eps)
    return max(least, float(np.finfo(dtype).eps)) if dtype.kind == "f" else least


def _fitted(
    result: Any,
    shapes: Sequence[tuple[int, ...]],
    n: int,
    what: str,
    error: type[FemopsError],
) -> Floats:
    """Return a result as an array ``shape + (n,)``, with the first shape that fits."""
    for part in result if isinstance(result, list | tuple) else (result,):
        refuse_unreadable(part, what)
    # if several shapes are accepted, (1, n) may mean a vector of one component, not a scalar
    fits = (_fit(result, shape, n, row=len(shapes) == 1) for shape in shapes)
    values = next((fit for fit in fits if fit is not None), None)
    if values is None:
        raise error(_shape_complaint(result, shapes, n, what))
    return values


def _fit(result: Any, shape: tuple[int, ...], n: int, *, row: bool) -> Floats | None:
    """Convert a result to a float64 array of shape ``shape + (n,)``; None if it does not fit.

    With ``row``, an array (1, n) is accepted as (n,).
    """
    if isinstance(result, (list, tuple)) and shape and len(result) == shape[0]:
        parts = [_fit(part, shape[1:], n, row=row) for part in result]
        return None if any(part is None for part in parts) else np.array(parts)
    try:
        array = plain_numbers(np.asarray(result))
    except ValueError:
        return None
    if array.dtype.kind not in "fiub":
        return None
    values: Floats = array.astype(np.float64, copy=False)
    if values.ndim == 0 or values.shape == shape:
        return np.broadcast_to(values[..., None], (*shape, n))
    if values.shape == (*shape, n):
        return values
    if row and not shape and values.shape == (1, n):
        only: Floats = values[0]
        return only
    return None


def _shape_complaint(result: Any, shapes: Sequence[tuple[int, ...]], n: int, what: str) -> str:
    try:
        array = np.asarray(result)
        got = f"an array of shape {array.shape} and type {array.dtype}"
    except ValueError:
        got = "a sequence of parts that do not fit together"
    else:
        if array.dtype.kind == "c":
            return (
                f"{what} gives complex numbers, which V.interpolate, femops.load and femops.form "
                "take with dtype=complex: use these, or give real and imaginary part one by one"
            )
        if array.dtype == object and not array.ndim:
            return (
                f"{what} gives {shown(array.item())} at {n} points: it must give real numbers in "
                "the range of float64"
            )
    taken = [str((*shape, n)) for shape in shapes] + [str(shape) for shape in shapes if shape]
    return (
        f"{what} gives {got} at {n} points: it must give real numbers of shape "
        f"{', '.join(taken)} or a number"
    )
