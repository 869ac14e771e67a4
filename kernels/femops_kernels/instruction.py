"""Instructions: operations that compiled code of the host does one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, eq=False)
class Instruction:
    """An operation that compiled code of the host does; see ``skeletons/sequence``."""

    function: int  # address of the compiled function
    # arguments of the operation: addresses, counts and factors.  They are the entries of the
    # instruction's row after the two entries that all rows have.
    words: tuple[int | float, ...]
    work_bytes: int = 0  # bytes of work space that a thread needs
    kept: Any = None  # arrays and objects that must live as long as the instruction can run
    # Returns False if the instruction is out of date and must be made again
    current: Callable[[], bool] | None = None
