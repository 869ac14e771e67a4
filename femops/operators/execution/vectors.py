"""Checks of vectors that users pass to operators and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import VectorError
from femops.fields.multivector import MultiVector
from femops.spaces.base import Space
from femops.spaces.memory import check_layout, check_shape
from femops.spaces.product import Product
from femops.spaces.restriction import type_cure
from femops.spaces.vectors import any_vector
from femops_common.arguments import type_name


def checked_vector(space: Space | Product, dtype: np.dtype[Any], vector: Any, what: str) -> Any:
    """Return a user's vector as an array that compiled code can use without a copy."""
    vector = _typed(space, dtype, vector, what)
    check_layout(vector, what)
    return vector


def contiguous_vector(
    space: Space | Product, dtype: np.dtype[Any], vector: Any, what: str
) -> NDArray[Any]:
    """Return a user's vector as `checked_vector` does, or a copy if its memory has gaps."""
    found: NDArray[Any] = space.memory.xp.ascontiguousarray(_typed(space, dtype, vector, what))
    return found


def _typed(space: Space | Product, dtype: np.dtype[Any], vector: Any, what: str) -> NDArray[Any]:
    found: NDArray[Any] = any_vector(space, vector, what)
    if found.dtype != dtype:
        cure = type_cure(found.dtype, dtype, what)
        raise VectorError(f"{what} has type {found.dtype}, {dtype} is needed: {cure}")
    return found


def check_factor(space: Space | Product, x: NDArray[Any]) -> NDArray[Any]:
    """Return ``x`` after a check that an operator on the space can be applied to it."""
    if x.dtype.kind not in "biufc":
        raise VectorError(f"x has type {x.dtype}: give numbers, as V.zeros() has")
    if x.ndim == 2 and len(x) == space.size:
        return x
    if x.ndim == 2 and x.size != space.size:
        raise VectorError(
            f"x has shape {x.shape}; the operator takes a vector ({space.size},), or many as the "
            f"columns of an array ({space.size}, nvec)"
        )
    return check_shape(space, x, "x")


def check_output(
    space: Space | Product, x: NDArray[Any], out: NDArray[Any], given: Any = None
) -> None:
    """Raise if an output overlaps the input or can't be written.

    Shapes: `x`, `out` (size,).
    """
    if space.memory.overlap(x, out):
        raise VectorError("out overlaps the vector that is read: give another array")
    if not getattr(out.flags, "writeable", True) or (given is not out and _read_only(given)):
        raise VectorError("out is read-only: give an array that can be written")


def check_many(
    space: Space | Product,
    test_space: Space | Product,
    dtype: np.dtype[Any],
    x: MultiVector,
    out: MultiVector,
) -> None:
    """Raise unless an operator can be applied to a MultiVector, with the result in ``out``."""
    for vectors, of, what in ((x, space, "x"), (out, test_space, "out")):
        if not isinstance(vectors, MultiVector):
            raise VectorError(f"{what} is {type_name(type(vectors))}: give a MultiVector")
        if vectors.space is not of:
            raise VectorError(f"{what} is not of the space of the operator: {vectors!r}, {of!r}")
        if vectors.dtype not in (dtype, np.result_type(dtype, np.complex64)):
            raise VectorError(
                f"{what} has type {vectors.dtype}, the operator {dtype}: make it of that type"
            )
    if (x.nvec, x.width, x.dtype) != (out.nvec, out.width, out.dtype):
        raise VectorError(f"out is {out!r}: it needs panels and type of x, which is {x!r}")
    check_output(space, x.panels, out.panels, out.panels)


def _read_only(array: Any) -> bool:
    """True if another library marks its array as read-only. JAX does, and CuPy ignores the mark."""
    interface = getattr(array, "__cuda_array_interface__", None)
    return interface is not None and bool(interface["data"][1])
