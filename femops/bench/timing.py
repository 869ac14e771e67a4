"""How long a call takes."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

LEAST = 3
"""Calls of which a median is taken, at least."""


def median_seconds(call: Callable[[], object], seconds: float) -> float:
    """Median seconds of calls for about that long (at least `LEAST`), after one that warms up.

    Parameters
    ----------
    call : callable
        Takes nothing; what it returns is not looked at.
    seconds : float
    """
    call()
    times: list[float] = []
    while len(times) < LEAST or sum(times) < seconds:
        begin = perf_counter()
        call()
        times.append(perf_counter() - begin)
    return float(np.median(times))
