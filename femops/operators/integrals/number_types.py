"""Types of numbers: of an operator's arithmetic, and of what it stores at quadrature points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.errors import OperatorError
from femops.spaces.restriction import FLOAT_TYPES


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """The type of an operator.

    Raises
    ------
    OperatorError
        One that is not float64 or float32.
    """
    kind = _known(dtype)
    if kind is None:
        raise OperatorError(f"an operator of type {dtype} was asked for: take float64 or float32")
    return kind


def data_type(data_dtype: DTypeLike | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which an operator of type ``dtype`` stores numbers at quadrature points.

    Parameters
    ----------
    data_dtype : dtype, optional
        The operator's own type if omitted.
    dtype : numpy.dtype

    Raises
    ------
    OperatorError
        One that is not float64 or float32, or that is wider than the arithmetic: its digits would
        be lost when they are loaded.
    """
    if data_dtype is None:
        return dtype
    kind = _known(data_dtype)
    if kind is None:
        raise OperatorError(f"data_dtype is {data_dtype!r}: take float64 or float32")
    if kind.itemsize > dtype.itemsize:
        raise OperatorError(
            f"data_dtype is {kind} in an operator of type {dtype}, which would round the data "
            "whenever it reads them: leave data_dtype out, or take dtype=float64"
        )
    return kind


def check_range(name: str, largest: float, kind: np.dtype[Any], *, whole: bool = False) -> None:
    """Refuse numbers that a type can't hold with all its digits.

    Parameters
    ----------
    name : str
        Of the form.
    largest : float
        Absolute value; that of all numbers if ``whole``, so that it must not be too small either.
    kind : numpy.dtype

    Raises
    ------
    OperatorError
        If there are such.
    """
    limits = np.finfo(kind)
    smallest = float(limits.tiny) / float(limits.eps) if whole else 0.0
    if not smallest <= largest <= float(limits.max):
        raise OperatorError(
            f"{name}: the data at quadrature points reach {largest:.3g}, beyond the range of "
            f"{kind}: scale the coordinates or the coefficients, or leave data_dtype out"
        )


def _known(dtype: DTypeLike) -> np.dtype[Any] | None:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        return None
    return kind if kind in FLOAT_TYPES else None
