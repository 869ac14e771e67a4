"""How much Python a call runs, which no clock and no other program on the machine has a say in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines(call: Callable[[], Any]) -> int:
    """Lines of Python that a call runs; what NumPy and compiled code do counts nothing.

    A loop over elements in Python is seen by how the count grows with their number.
    """
    count, before = 0, sys.gettrace()

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return look

    sys.settrace(look)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
