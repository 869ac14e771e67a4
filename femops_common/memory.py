"""Check of the available memory before large arrays are made."""

from __future__ import annotations

import os
from pathlib import Path

_SMALL = 2**26


def available_memory() -> int:
    """Bytes available without swapping. If the system does not tell, the size of the memory."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**47  # the addresses of a process


def check_memory(needed: int, what: str, remedy: str, error: type[Exception]) -> None:
    """Raise if fewer than ``needed`` bytes are available.

    Callers count only arrays that must exist at once, so a refused request could not succeed.
    """
    if needed < _SMALL:  # the system is not asked for every small array
        return
    available = available_memory()
    if needed > available:
        raise error(
            f"{what} needs at least {needed / 2**30:.3g} GiB of memory, and "
            f"{available / 2**30:.3g} GiB are available: {remedy}"
        )
