"""Step of a three-term recurrence, for arrays of NumPy, CuPy and similar libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def three_term(
    old: NDArray[Any],
    product: NDArray[Any],
    current: NDArray[Any] | None,
    coefficients: tuple[float, float, float],
    scales: NDArray[Any] | None,
    extra: tuple[NDArray[Any], NDArray[Any]] | None,
) -> None:
    """Overwrite ``old`` (rows, width) by the next vectors; see `Memory.three_term`."""
    a, b, c = coefficients
    total = a * product if extra is None else a * product + extra[1] * extra[0]
    total = total if scales is None else total * scales[:, np.newaxis]
    total = total if current is None else total + b * current
    old[...] = total + c * old if c else total
