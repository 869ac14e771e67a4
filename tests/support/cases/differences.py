"""Derivatives by differences, beside which gradients are tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest


def difference(value: Callable[[float], Any], h: float = 1e-3) -> Any:
    """Derivative at zero, by differences of fourth order."""
    return (8.0 * (value(h) - value(-h)) - (value(2.0 * h) - value(-2.0 * h))) / (12.0 * h)


def difference_along(
    value: Callable[[dict[str, Any]], Any],
    point: Mapping[str, Any],
    along: Mapping[str, Any],
    h: float = 2e-3,
) -> Any:
    """Derivative at a point by the controls in ``along``, in the direction of their changes."""

    def at(t: float) -> Any:
        return value({n: p + t * along[n] if n in along else p for n, p in point.items()})

    return difference(at, h)


def check_slopes(
    value: Callable[[dict[str, Any]], float],
    point: Mapping[str, Any],
    slopes: Mapping[str, Any],
    rel: float = 1e-6,
) -> dict[str, Any]:
    """Compare derivatives by some controls with a difference along all of them at once.

    Each control has an equal part in it. The direction, which is returned, is random, but not
    across the slope.
    """
    random, along = np.random.default_rng(1), {}
    for name, slope in slopes.items():
        step = random.standard_normal(np.shape(point[name]))
        step = step + slope * (2.0 * np.linalg.norm(step) / np.linalg.norm(slope))
        along[name] = step / np.sum(slope * step)
    found = float(difference_along(value, point, along, 1e-4))
    assert found == pytest.approx(len(along), rel=rel), [*along]
    return along
