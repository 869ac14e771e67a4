"""Vectors of spaces: new ones, types, checks of real and complex ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.errors import VectorError
from femops.spaces.memory import VectorSpace, check_shape
from femops.spaces.restriction import FLOAT_TYPES, Vector
from femops_common.arguments import dtype_of, refusal, shown


def zeros(space: VectorSpace, dtype: DTypeLike) -> Vector:
    """Return a new vector of zeros (size,) in the memory of a space."""
    kind = dtype_of(dtype) if is_complex(dtype) else vector_type(dtype)
    vector: Vector = space.memory.xp.zeros(space.size, kind)
    return vector


def any_vector(space: VectorSpace, vector: Any, what: str) -> Any:
    """Return a user's vector, real or complex, as an array of the space's memory, after checks."""
    if not has_complex(vector):
        return space.memory.vector_of(space, vector, what)
    return check_shape(space, space.memory.factor(vector, what), what)


def has_complex(vector: Any) -> bool:
    """True if a user's vector is an array of complex numbers."""
    return getattr(getattr(vector, "dtype", None), "kind", "") == "c"


def as_doubled(space: VectorSpace, vector: Any, what: str = "u") -> Any:
    """Return a user's complex vector as a vector of `Space.doubled`, after checks."""
    found = space.memory.xp.ascontiguousarray(any_vector(space, vector, what))
    return found.view(found.real.dtype)


def by_components(space: Any, vectors: Any) -> Any:
    """View vectors (size[, nvec]) by nodes and components, (ndofs, ncomp[, nvec])."""
    if not isinstance(getattr(vectors, "shape", None), tuple) or not hasattr(vectors, "reshape"):
        raise VectorError(refusal("u", vectors, "an array, as V.zeros() makes"))
    if len(vectors.shape) != 2 or vectors.shape[0] != space.size:
        check_shape(space, vectors, "u")
    return vectors.reshape(space.ndofs, space.ncomp, *vectors.shape[1:])


def vector_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Convert a user's ``dtype`` to the type of a vector."""
    kind = dtype_of(dtype)
    if kind is None or kind not in FLOAT_TYPES:
        asked = shown(dtype) if kind is None else kind
        raise VectorError(f"a vector of type {asked} was asked for: take float64 or float32")
    return kind


def float64_or_complex(dtype: DTypeLike) -> bool:
    """True if a user's ``dtype`` is complex128, and False if it is float64."""
    kind = dtype_of(dtype)
    if kind not in (np.float64, np.complex128):
        asked = shown(dtype) if kind is None else kind
        raise VectorError(f"values of type {asked} were asked for: take float64 or complex128")
    return bool(kind == np.complex128)


def is_complex(dtype: DTypeLike) -> bool:
    """True if a user's ``dtype`` is complex128 or complex64."""
    return dtype_of(dtype) in (np.complex128, np.complex64)
