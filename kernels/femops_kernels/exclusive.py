"""Locks that survive copies, forks and interrupted threads."""

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
    """Lock that one thread of Python holds at a time; see `together`.

    A copy of the lock is free. So are all locks in a forked process, where the thread that held
    them may not exist. A thread that is interrupted at any point releases its locks.
    """

    def __init__(self) -> None:
        self._number, self._lock = next(_numbers), Lock()
        _all.add(self)

    def __reduce__(self) -> tuple[type[Exclusive], tuple[()]]:
        return Exclusive, ()


_all: WeakSet[Exclusive] = WeakSet()


def together(several: Sequence[Exclusive], work: Callable[[], Result]) -> Result:
    """Call ``work`` while this thread holds all locks ``several``, and return its result."""
    ordered = sorted(set(several), key=lambda one: one._number)  # one order, so no deadlock
    return _nested(ordered, work)


def _nested(ordered: Sequence[Exclusive], work: Callable[[], Result]) -> Result:
    if not ordered:
        return work()
    with ordered[0]._lock:
        return _nested(ordered[1:], work)


def _freed() -> None:
    """Release all locks in a forked process: the threads that hold them are in the parent."""
    for one in _all:
        one._lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_freed)
