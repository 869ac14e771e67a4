"""Parts of a benchmark that may fail: the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar, final

Result = TypeVar("Result")


def one_line(error: BaseException) -> str:
    """Return the error in one line."""
    if isinstance(error, MemoryError):
        return f"there is no room for it ({error})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@final
class Attempts:
    """Record of attempts; ``failures`` say ``what``, the ``message`` and the ``traceback``."""

    def __init__(self) -> None:
        self.failures: list[dict[str, Any]] = []

    def __call__(self, what: str, call: Callable[[], Result]) -> Result | None:
        """Result of a call; None if it fails, which is told among the failures."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  (whatever a driver says; the exit code tells)
            found = {"message": one_line(error), "traceback": traceback.format_exc()}
            self.failures.append({"what": what} | found)
            return None
