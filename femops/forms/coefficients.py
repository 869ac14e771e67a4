"""Coefficients of forms: numbers, functions of x, arrays at quadrature points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.functions import evaluate_any
from femops.geometry import GeometryBlock

Coefficient = float | NDArray[Any] | Callable[[NDArray[np.float64]], Any]


def at_points(
    coefficient: Coefficient,
    block: GeometryBlock,
    ne: int,
    name: str,
    shapes: tuple[tuple[int, ...], ...],
) -> NDArray[np.float64]:
    """Values of a coefficient at the quadrature points of a block of elements.

    Parameters
    ----------
    coefficient : number, array or callable
        A constant of one of ``shapes``; a function of x, (dim, n) -> (*shape, n); or an array at
        all quadrature points, (ne, nq, *shape).
    block : GeometryBlock
    ne : int
        Elements of the mesh.
    name : str
        For messages.
    shapes : tuple of shapes
        Those the form takes, ``()`` for a scalar.

    Returns
    -------
    (n, nq, *shape) float64

    Raises
    ------
    OperatorError
        Another shape, another type, or values that are not finite.
    """
    n, nq = block.stop - block.start, block.weighted_det.shape[1]
    if callable(coefficient):
        values = _evaluate(coefficient, block.points, shapes, name)
        return values.reshape(n, nq, *values.shape[1:])
    given = _shape(coefficient, name)
    for shape in shapes:
        if given == shape:  # checked at the points of one element
            points = block.geometry.points(block.start, block.start + 1)
            values = _evaluate(coefficient, points, (shape,), name)
            return np.broadcast_to(values, (n, nq, *shape))
        if given == (ne, nq, *shape):
            return _stored(np.asarray(coefficient)[block.start : block.stop], name)
    wanted = " or ".join(str((ne, nq, *shape)) for shape in shapes)
    raise OperatorError(
        f"{name} has shape {given}: give a number, a function of x, "
        f"or values at the quadrature points, {wanted}"
    )


def _evaluate(
    coefficient: Coefficient,
    points: NDArray[np.float64],
    shapes: tuple[tuple[int, ...], ...],
    name: str,
) -> NDArray[np.float64]:
    x = np.ascontiguousarray(points.reshape(-1, points.shape[-1]).T)
    return evaluate_any(coefficient, x, shapes, name, OperatorError)


def _shape(coefficient: Any, name: str) -> tuple[int, ...]:
    try:
        return np.shape(coefficient)
    except ValueError as error:
        raise OperatorError(
            f"{name} is a sequence of parts that do not fit together: "
            "give a number, an array or a function of x"
        ) from error


def _stored(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """An array given at the quadrature points, checked."""
    if values.dtype.kind not in "biuf":
        raise OperatorError(f"{name} has type {values.dtype}: give real numbers")
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise OperatorError(f"{name} has {bad} values that are not finite: mend the coefficient")
    return values.astype(np.float64, copy=False)
