"""Coefficients of complex forms, as real ones with real and imaginary parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.parallel.collective_checks import check
from femops.parallel.comm import Communicator
from femops.spaces.base import GridFunction
from femops.spaces.functions import called, takes_normals
from femops_meshes.mesh import Mesh

Function = Callable[..., Any]


def paired(name: str, value: Any, mesh: Mesh, comm: Communicator | None) -> tuple[Any, bool]:
    """Convert a coefficient of a complex form to real numbers. Collective if there is a ``comm``.

    Parameters
    ----------
    name : str
    value : number, array, callable or GridFunction
        See `femops.form`. Values may be complex.
    mesh : Mesh
        A function of x is called at one point to see if its values are complex.
    comm : Communicator, optional
        The ranks of the mesh. None to convert real values, too.

    Returns
    -------
    value : the same kind
        Unchanged if it is real. Otherwise real and imaginary parts are one more axis, which is the
        last of the shape at a point.
    is_complex : bool

    Raises
    ------
    OperatorError
        The value is a field, which is real, and ``comm`` is None.
    """
    if isinstance(value, GridFunction | Mapping | str):
        if comm is None:
            raise OperatorError(f"{name} was complex, and is a field now: make a new operator")
        return value, False
    if callable(value):
        if comm is not None:
            with check(comm):
                mine = _is_complex_inside(name, value, mesh)
            if not comm.max(int(mine)):
                return value, False
        return _pairs_of(value), True
    array = np.asarray(value)
    if comm is not None and array.dtype.kind != "c":
        return value, False
    return np.stack([array.real, array.imag], axis=-1), True


def _is_complex_inside(name: str, function: Function, mesh: Mesh) -> bool:
    """True if a function of x, or of x and the normal, has complex values in the first element."""
    if not mesh.num_elements:
        return False
    x = mesh.coordinates[0].reshape(-1, mesh.dim).mean(axis=0)[:, np.newaxis]
    place = (x, np.eye(mesh.dim)[:, :1]) if takes_normals(function) else (x,)
    with np.errstate(all="ignore"):
        return np.iscomplexobj(np.asarray(called(function, place, name, OperatorError)))


def _pairs_of(function: Function) -> Function:
    """Function with real and imaginary parts (*shape, 2, n) of a function's values (*shape, n)."""

    @functools.wraps(function)
    def pairs(x: NDArray[np.float64], *normal: Any) -> NDArray[np.float64]:
        values = np.asarray(function(x, *normal))
        if values.shape[-1:] != x.shape[1:]:  # a constant
            values = np.broadcast_to(values[..., np.newaxis], (*values.shape, x.shape[1]))
        return np.stack([values.real, values.imag], axis=-2)

    return pairs
