"""Coefficients of forms: numbers, functions of x, arrays at quadrature points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.geometry import GeometryBlock

Coefficient = float | NDArray[Any] | Callable[[NDArray[np.float64]], Any]


def at_points(
    coefficient: Coefficient, block: GeometryBlock, ne: int, name: str, shapes: tuple[tuple[int, ...], ...]
) -> NDArray[np.float64]:
    """Values of a coefficient at the quadrature points of a block of elements.

    Parameters
    ----------
    coefficient : number, array or callable
        A constant of one of ``shapes``; a function of x, (dim, n) -> (*shape, n); or an array at all quadrature points,
        (ne, nq, *shape).
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
        points = np.ascontiguousarray(np.moveaxis(block.points, -1, 0)).reshape(-1, n * nq)
        values = _array(coefficient(points), name)
        for shape in shapes:
            if values.shape in (shape, (*shape, n * nq)):
                full = np.broadcast_to(values.reshape(*shape, -1), (*shape, n * nq))
                return _finite(np.moveaxis(full, -1, 0).reshape(n, nq, *shape), name)
        wanted = " or ".join(str((*shape, n * nq)) for shape in shapes)
        raise OperatorError(f"{name}(x) returned shape {values.shape} for {n * nq} points: return {wanted}")
    values = _array(coefficient, name)
    for shape in shapes:
        if values.shape == shape:
            return _finite(np.broadcast_to(values, (n, nq, *shape)), name)
        if values.shape == (ne, nq, *shape):
            return _finite(values[block.start : block.stop], name)
    wanted = " or ".join(str((ne, nq, *shape)) for shape in shapes)
    raise OperatorError(
        f"{name} has shape {values.shape}: give a number, a function of x, or values at the quadrature points, {wanted}"
    )


def _array(values: Any, name: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"type {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise OperatorError(f"{name} is no real number, array or function of x: {error}") from error


def _finite(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    bad = int(values.size - np.count_nonzero(np.isfinite(values)))
    if bad:
        raise OperatorError(f"{name} has {bad} values that are not finite: mend the coefficient")
    return values
