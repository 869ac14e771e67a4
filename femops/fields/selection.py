"""Indices of a MultiVector, and values that can be assigned to its vectors."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.errors import VectorError
from femops.spaces.memory import Memory
from femops_meshes.arguments import shown

Chosen = int | range | NDArray[np.int64]
"""Number of one vector, or numbers of several vectors. All numbers are >= 0."""


def chosen_vectors(which: Any, nvec: int) -> Chosen:
    """Convert an index to the numbers of the chosen vectors. NumPy's rules for columns apply.

    Shapes: `which` (n,).
    """
    try:
        if isinstance(which, slice):
            return range(nvec)[which]
        index = np.asarray(which)
        if index.shape == (0,):
            index = index.astype(np.int64)
        numbers = index.dtype.kind in "iu" and index.ndim <= 1
        mask = index.dtype == bool and index.ndim == 1
        if not isinstance(which, tuple) and (numbers or mask):
            chosen: Any = np.arange(nvec)[index]
            return int(chosen) if index.ndim == 0 else chosen
    except (IndexError, TypeError, ValueError) as error:
        raise VectorError(f"there are {nvec} vectors: {error}") from error
    raise VectorError(
        f"{shown(which)} is no index of {nvec} vectors: give a number, a range, or a list of "
        "numbers or of bools"
    )


def values_for(values: Any, shape: tuple[int, ...], kind: np.dtype[Any], memory: Memory) -> Any:
    """Return ``values`` unchanged, after a check that they can be assigned to vectors."""
    given = np.asarray(values) if isinstance(values, Number) else values
    got, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    numbers = isinstance(dtype, np.dtype) and dtype.kind in "biufc"
    if got not in ((), shape) or not numbers:
        many = f"{shape[1]} vectors" if len(shape) == 2 else "a vector"
        what = f"an array of shape {got} and type {dtype}" if got else shown(values)
        raise VectorError(
            f"{many} of {shape[0]} entries cannot be set to {what}: give a number, or numbers of "
            f"shape {shape}"
        )
    if given.dtype.kind == "c" and kind.kind != "c":
        raise VectorError(
            f"vectors of type {kind} cannot be set to complex numbers: make them of complex128, or "
            "give the real parts"
        )
    if not isinstance(values, Number):
        memory.adopt(getattr(values, "panels", values), "values")
    return values


def value_of(values: Any, k: int) -> Any:
    """Value for the k-th chosen vector: column k of ``values``, or the single value."""
    if len(getattr(values, "shape", ())) < 2:
        return values
    return values[k] if hasattr(values, "panels") else values[:, k]
