"""Derivatives of a value by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def difference(
    value: Callable[[dict[str, Any]], Any], point: Any, along: Any, h: float = 2e-3
) -> Any:
    """Derivative along a direction, by differences of fourth order."""

    def at(t: float) -> Any:
        return value({n: p + t * h * along[n] if n in along else p for n, p in point.items()})

    return (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * h)
