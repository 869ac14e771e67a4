"""An operation of a sequence that the host's compiled code does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, eq=False)
class Instruction:
    """An operation that compiled code of the host does, see ``skeletons/sequence``.

    Attributes
    ----------
    function : int
        Address of what does it.
    words : tuple
        What its row has behind the common entries: addresses, counts, numbers.
    work_bytes : int
        Work space that a thread needs.
    kept : object
        What must not be freed while it can run.
    current : callable, optional
        Gives False as soon as another instruction is to be made.
    """

    function: int
    words: tuple[int | float, ...]
    work_bytes: int = 0
    kept: Any = None
    current: Callable[[], bool] | None = None
