"""Functions given by the user, evaluated and checked in one place.

Wherever femops takes a function of position it takes a number too, and wherever the space has
components, one number or one function value per component.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.errors import FemopsError, SpaceError
from femops.spaces.restriction import refuse_device_array
from femops_meshes.arguments import check_takes

Floats = NDArray[np.float64]
Function = Callable[[Floats], Any] | ArrayLike
"""``f(x)`` of points x (dim, n) -> (n,) or (ncomp, n) or a scalar; or the constant itself."""

Predicate = Callable[[Floats], Any]
"""``f(x)`` of points x (dim, n) -> (n,) booleans."""


def evaluate(f: Function, x: Floats, shape: tuple[int, ...] = (), what: str = "f") -> Floats:
    """Values of a user's function at points.

    Parameters
    ----------
    f : callable, number or sequence of numbers
        Called once as ``f(x)``, unless there are no points. What it returns may be an array of
        shape ``shape + (n,)``, of ``shape`` alone (the same at all points), a sequence that mixes
        the two, or one number.
    x : (dim, n) float64
        The points.
    shape : tuple of int
        () for a scalar function, (ncomp,) for a vector, (ncomp, dim) for its gradient.
    what : str
        The function's name in errors.

    Returns
    -------
    (n, *shape) float64, C-contiguous

    Raises
    ------
    SpaceError
        The result has another shape, is not real, or is not finite everywhere.
    """
    return evaluate_any(f, x, (shape,), what, SpaceError)


def evaluate_any(
    f: Function,
    x: Floats,
    shapes: Sequence[tuple[int, ...]],
    what: str,
    error: type[FemopsError],
) -> Floats:
    """Values of a user's function that may have one of several shapes.

    Parameters
    ----------
    f, x, what
        As in `evaluate`.
    shapes : sequence of tuples of int
        Accepted shapes; the first that fits is taken.
    error : class
        Error to raise.

    Returns
    -------
    (n, *shape) float64, C-contiguous

    Raises
    ------
    error
        The result has another shape, is not real, or is not finite everywhere.
    VectorError
        The result is on a GPU.
    """
    n = x.shape[1]
    result = _called(f, x, shapes[0], what, error) if callable(f) else f
    refuse_device_array(result, what)
    # beside other shapes, (1, n) may be meant for a vector of one component: no guess then
    fits = (_fit(result, shape, n, row=len(shapes) == 1) for shape in shapes)
    values = next((fit for fit in fits if fit is not None), None)
    if values is None:
        raise error(_shape_complaint(result, shapes, n, what))
    bad = ~np.isfinite(values).all(axis=tuple(range(values.ndim - 1)))
    if bad.any():
        where = ", ".join(f"{c:.6g}" for c in x[:, np.argmax(bad)])
        raise error(
            f"{what} is not finite at {np.count_nonzero(bad)} of {n} points, the first of them "
            f"({where}): give a function that is finite on the whole mesh"
        )
    return np.array(np.moveaxis(values, -1, 0), order="C")  # never the user's own array


def selected(predicate: Callable[[Floats], Any], x: Floats) -> NDArray[np.bool_]:
    """Points that a user's predicate chooses: booleans (n,).

    Parameters
    ----------
    predicate : callable
        Called once as ``predicate(x)``, unless there are no points.
    x : (dim, n) float64

    Raises
    ------
    SpaceError
        It is called otherwise, or returns what is no array of n booleans.
    """
    n = x.shape[1]
    result = _called(predicate, x, (), "the predicate", SpaceError) if n else np.zeros(0, np.bool_)
    try:
        chosen = np.asarray(result)
    except ValueError:
        chosen = np.empty(0, object)
    if chosen.shape != (n,) or chosen.dtype != np.bool_:
        raise SpaceError(
            f"the predicate returned a {type(result).__name__} of shape {chosen.shape} and type "
            f"{chosen.dtype} at {n} points: it takes x of shape (dim, n) and returns n booleans, "
            "as lambda x: x[0] < 1e-9 does"
        )
    return chosen


def _called(
    f: Callable[[Floats], Any],
    x: Floats,
    shape: tuple[int, ...],
    what: str,
    error: type[FemopsError],
) -> Any:
    check_takes(
        f,
        (x,),
        lambda mismatch: error(
            f"{what} is called with one array x of shape (dim, n), x[0] being the first "
            f"coordinate: {mismatch}"
        ),
    )
    return f(x) if x.shape[1] else np.empty((*shape, 0))


def _fit(result: Any, shape: tuple[int, ...], n: int, *, row: bool) -> Floats | None:
    """`result` as a float64 array of shape ``shape + (n,)``, None if it does not fit.

    With ``row``, one row (1, n) will do for (n,).
    """
    if isinstance(result, (list, tuple)) and shape and len(result) == shape[0]:
        parts = [_fit(part, shape[1:], n, row=row) for part in result]
        return None if any(part is None for part in parts) else np.array(parts)
    try:
        array = np.asarray(result)
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
    taken = [str((*shape, n)) for shape in shapes] + [str(shape) for shape in shapes if shape]
    return (
        f"{what} gives {got} at {n} points: it must give real numbers of shape "
        f"{', '.join(taken)} or a number"
    )
