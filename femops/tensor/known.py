"""The cache of this package: calls that were made before, and what was worked out for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, final

Given = ParamSpec("Given")
Result = TypeVar("Result")

_MOST = 4096


@final
class Known(dict[Hashable, Any]):
    """Results by all that they depend on; it is emptied when there are too many."""

    def keep(self, key: Hashable, value: Any) -> None:
        """Add a result."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = value


KNOWN = Known()
"""Calls by their keys (None for a call that can't be remembered); results of functions."""


def remembered(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Keep the results of a function of hashable arguments in `KNOWN`; they are never None."""

    @wraps(function)
    def known(*given: Given.args, **named: Given.kwargs) -> Result:
        key = function, given, *named.items()
        found: Result | None = KNOWN.get(key)
        if found is None:
            found = function(*given, **named)
            KNOWN.keep(key, found)
        return found

    return known
