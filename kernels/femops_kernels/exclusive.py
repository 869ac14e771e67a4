"""Things that one thread of Python uses at a time, whatever becomes of the thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from typing import TypeVar, final
from weakref import WeakSet

Result = TypeVar("Result")

_numbers = count()


@final
class Exclusive:
    """A thing that one thread uses at a time; the others wait, see `together`.

    It is free in copies and in a forked process, whose only thread may be another one than its
    user. A thread that is interrupted, at whatever point, leaves it free.
    """

    def __init__(self) -> None:
        self._number, self._lock = next(_numbers), Lock()
        _all.add(self)

    def __reduce__(self) -> tuple[type[Exclusive], tuple[()]]:
        return Exclusive, ()


_all: WeakSet[Exclusive] = WeakSet()


def together(several: Sequence[Exclusive], work: Callable[[], Result]) -> Result:
    """Call a function when nobody else uses any of several."""
    ordered = sorted(set(several), key=lambda one: one._number)  # all who want several wait so
    return _nested(ordered, work)


def _nested(ordered: Sequence[Exclusive], work: Callable[[], Result]) -> Result:
    if not ordered:
        return work()
    with ordered[0]._lock:
        return _nested(ordered[1:], work)


def _freed() -> None:
    """In a forked process: what other threads used is used in the parent alone."""
    for one in _all:
        one._lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_freed)
