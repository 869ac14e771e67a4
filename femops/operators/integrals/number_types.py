"""Types of numbers: for an operator's arithmetic, and for its data at quadrature points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.errors import OperatorError
from femops.spaces.restriction import FLOAT_TYPES
from femops_common.arguments import dtype_of, shown


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Convert a user's ``dtype`` to the type of an operator."""
    kind = _known(dtype)
    if kind is None:
        asked = dtype_of(dtype) or shown(dtype)
        hint = "; femops.form makes complex operators" if "complex" in str(asked) else ""
        raise OperatorError(
            f"an operator of type {asked} was asked for: take float64 or float32{hint}"
        )
    return kind


def data_type(data_dtype: DTypeLike | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which an operator of type ``dtype`` stores numbers at quadrature points."""
    if data_dtype is None:
        return dtype
    kind = _known(data_dtype)
    if kind is None:
        raise OperatorError(f"data_dtype is {shown(data_dtype)}: take float64 or float32")
    if kind.itemsize > dtype.itemsize:
        raise OperatorError(
            f"data_dtype is {kind} in an operator of type {dtype}, which would round the data "
            "whenever it reads them: leave data_dtype out, or take dtype=float64"
        )
    return kind


def check_range(
    what: str,
    largest: float,
    kind: np.dtype[Any],
    cure: str = "use float64",
    *,
    whole: bool = False,
) -> None:
    """Raise if numbers are out of a type's range."""
    smallest = smallest_of(kind) if whole else 0.0
    if not smallest <= largest <= float(np.finfo(kind).max):
        raise OperatorError(
            f"{what} reach {largest:.3g}, beyond the range of {kind}: "
            f"scale the coordinates or the coefficients, or {cure}"
        )


def smallest_of(kind: np.dtype[Any]) -> float:
    """Smallest allowed maximum of the absolute values of many numbers in a type.

    With a smaller maximum, numbers of epsilon times the maximum would not be normal numbers.
    """
    limits = np.finfo(kind)
    return float(limits.tiny) / float(limits.eps)


def check_values(what: str, values: NDArray[Any], kind: np.dtype[Any]) -> None:
    """Raise if finite float64 numbers (of any shape) would be infinite in the type ``kind``."""
    if kind == np.float32:
        check_range(what, largest_of(values), kind)


def largest_of(values: NDArray[np.float64]) -> float:
    """Largest absolute value of the finite numbers in an array of any shape; zero if none."""
    most = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if math.isfinite(most):
        return most
    return float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))


def _known(dtype: DTypeLike) -> np.dtype[Any] | None:
    kind = dtype_of(dtype)
    return None if kind is None or kind not in FLOAT_TYPES else kind
