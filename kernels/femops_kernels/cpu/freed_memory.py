"""Memory that has been freed, and that the C library has not given back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


@cache
def _trim() -> Any:
    """Function of glibc that gives freed memory back. None for other C libraries."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back() -> None:
    """Give freed memory back to the system, where the C library can.

    glibc keeps memory that a thread has freed for the thread's next array. After work on several
    threads this is a good part of a program's memory. It takes some milliseconds.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
