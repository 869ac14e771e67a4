"""Parts of a benchmark that may fail: the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar, final

Result = TypeVar("Result")


def one_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, MemoryError):
        return f"there is no room for it ({error})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@final
class Attempts:
    """What has been tried.

    Attributes
    ----------
    failures : list of dict
        ``what`` failed, the ``message`` in one line, the ``traceback``.
    """

    def __init__(self) -> None:
        self.failures: list[dict[str, Any]] = []

    def __call__(self, what: str, call: Callable[[], Result]) -> Result | None:
        """Result of a call; None if it fails, which is told among the failures."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  (whatever a driver says; the exit code tells)
            self.failed(what, one_line(error), traceback.format_exc())
            return None

    def failed(self, what: str, message: str, trace: str = "") -> None:
        """Tell that something failed."""
        self.failures.append({"what": what, "message": message, "traceback": trace})
