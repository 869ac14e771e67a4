"""The most memory that something takes while it is made."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from femops.errors import OperatorError

_PROCESS = Path("/proc/self")
_RESET = "5"  # proc(5), clear_refs: the peak resident set size becomes the present one


@final
@dataclass
class Peak:
    """What `peak_of` finds out.

    Attributes
    ----------
    nbytes : int
        Largest resident memory inside, less that before.
    """

    nbytes: int = 0


@contextmanager
def peak_of() -> Iterator[Peak]:
    """Measure the most memory of this process inside, less what it had before. Linux only.

    Raises
    ------
    OperatorError
        The kernel does not tell.
    """
    peak = Peak()
    try:
        (_PROCESS / "clear_refs").write_text(_RESET, encoding="ascii")
        before = _kibibytes("VmRSS")
        yield peak
        peak.nbytes = 1024 * (_kibibytes("VmHWM") - before)
    except OSError as error:
        raise OperatorError(
            f"memory is measured by /proc on Linux, this is {sys.platform}: {error}"
        ) from error


def _kibibytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", (_PROCESS / "status").read_text("ascii"), re.M)
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1])
