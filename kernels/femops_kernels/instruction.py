"""Instructions: operations that compiled code of the host does one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, eq=False)
class Instruction:
    """An operation that compiled code of the host does; see ``skeletons/sequence``.

    Attributes
    ----------
    function : int
        Address of the compiled function.
    words : tuple
        Arguments of the operation: addresses, counts and factors.  They are the entries of the
        instruction's row after the two entries that all rows have.
    work_bytes : int
        Bytes of work space that a thread needs.
    kept : object
        Arrays and objects that must live as long as the instruction can run.
    current : callable, optional
        Returns False if the instruction is out of date and must be made again.
    """

    function: int
    words: tuple[int | float, ...]
    work_bytes: int = 0
    kept: Any = None
    current: Callable[[], bool] | None = None
