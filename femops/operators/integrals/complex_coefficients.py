"""Coefficients of complex forms, as real ones with real and imaginary parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.parallel.comm import Communicator, check
from femops.spaces.base import GridFunction
from femops.spaces.functions import called, is_by_parts, takes_normals
from femops.spaces.restriction import refuse_unreadable
from femops_common.arguments import array_of
from femops_meshes.mesh import Mesh

Function = Callable[..., Any]


def paired(name: str, value: Any, mesh: Mesh, comm: Communicator | None) -> tuple[Any, bool]:
    """Convert a coefficient of a complex form to real numbers. Collective with a ``comm``."""
    refuse_unreadable(value, name)
    if isinstance(value, GridFunction | Mapping | str):
        if comm is None:
            raise OperatorError(f"{name} was complex, and is a field now: make a new operator")
        return value, False
    if callable(value):
        if comm is not None:
            with check(comm):
                mine = _is_complex_inside(name, value, mesh)
            if not comm.max(int(mine)):
                return _checked_real(name, value), False
        return _pairs_of(name, value), True
    by_parts = is_by_parts(value, mesh)
    arrays = [_numbers(name, one) for one in (value if by_parts else [value])]
    if comm is not None and all(array.dtype.kind != "c" for array in arrays):
        return value, False
    pairs = [np.stack([array.real, array.imag], axis=-1) for array in arrays]
    return pairs if by_parts else pairs[0], True


def _is_complex_inside(name: str, function: Function, mesh: Mesh) -> bool:
    """True if a function of x, or of x and the normal, has complex values in the first element."""
    if not mesh.num_elements:
        return False
    nodes = mesh.parts[0].coordinates[0]
    x = nodes.reshape(-1, mesh.dim).mean(axis=0)[:, np.newaxis]
    place = (x, np.eye(mesh.dim)[:, :1]) if takes_normals(function) else (x,)
    with np.errstate(all="ignore"):
        return np.iscomplexobj(_values(name, called(function, place, name, OperatorError), 1))


def _checked_real(name: str, function: Function) -> Function:
    """Function that raises an OperatorError if a function's values are not real after all."""

    @functools.wraps(function)
    def real(*place: NDArray[np.float64]) -> Any:
        result = function(*place)
        if np.iscomplexobj(_values(name, result, place[0].shape[1])):
            raise OperatorError(
                f"{name} is real in one element and complex in another: return complex numbers "
                "everywhere, as values.astype(complex)"
            )
        return result

    return real


def _pairs_of(name: str, function: Function) -> Function:
    """Function with real and imaginary parts (*shape, 2, n) of a function's values (*shape, n)."""

    @functools.wraps(function)
    def pairs(*place: NDArray[np.float64]) -> NDArray[np.float64]:
        n = place[0].shape[1]
        values = _values(name, function(*place), n)
        if values.shape[-1:] != (n,) or _is_constant(name, function, place, values.shape):
            values = np.broadcast_to(values[..., np.newaxis], (*values.shape, n))
        return np.stack([values.real, values.imag], axis=-2)

    return pairs


def _is_constant(
    name: str, function: Function, place: tuple[NDArray[np.float64], ...], shape: tuple[int, ...]
) -> bool:
    """True if a function's result has a shape (..., n) at n points, and at another number, too."""
    n = shape[-1]
    if not n or len(shape) == 1:
        return False
    m = 4 if n != 4 else 5
    some = tuple(np.resize(values[:, 0], (m, len(values))).T.copy() for values in place)
    return _values(name, function(*some), m).shape == shape


def _values(name: str, result: Any, n: int) -> NDArray[Any]:
    """Array (*shape, n), or (*shape) of a constant, of a function's result at n points.

    The result may be a sequence that mixes numbers and arrays.
    """
    if not isinstance(result, list | tuple) or not result:
        return _numbers(name, result)
    parts = [_values(name, part, n) for part in result]
    most = max(part.ndim for part in parts)
    parts = [
        part if part.ndim == most else np.broadcast_to(part[..., np.newaxis], (*part.shape, n))
        for part in parts
    ]
    if len({part.shape for part in parts}) > 1:
        raise OperatorError(f"{name} gives a sequence of parts that do not fit together")
    return np.stack(parts)


def _numbers(name: str, value: Any) -> NDArray[Any]:
    """Convert a value to an array of numbers."""
    array = array_of(value, name, OperatorError)
    if array.dtype.kind not in "biufc":
        raise OperatorError(f"{name} has type {array.dtype}: give numbers or a function of x")
    return array
