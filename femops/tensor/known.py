"""Cache of this package: calls and function results, by key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, final

Given = ParamSpec("Given")
Result = TypeVar("Result")

_MOST = 4096


@final
class Known(dict[Hashable, Any]):
    """Dictionary of results by key. `keep` empties it when it is full."""

    def keep(self, key: Hashable, value: Any) -> None:
        """Add a result. If the dictionary is full, remove all others first."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = value


KNOWN = Known()
"""Cached calls and function results by key. None stands for a call that can't be repeated."""


def remembered(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Cache the results of a function in `KNOWN`. Results are not None; arguments are hashable."""

    @wraps(function)
    def known(*given: Given.args, **named: Given.kwargs) -> Result:
        key = function, given, *named.items()
        result: Result | None = KNOWN.get(key)
        if result is None:
            result = function(*given, **named)
            KNOWN.keep(key, result)
        return result

    return known
