"""Things that one thread of Python uses at a time, whatever becomes of the thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock, get_ident
from typing import TypeVar, final
from weakref import WeakSet

Result = TypeVar("Result")

_numbers = count()
_awaited: dict[int, Exclusive] = {}
"""By thread, what it waits for."""


@final
class EndlessWait(Exception):
    """Wait of a thread for itself."""


@final
class Exclusive:
    """A thing that one thread uses at a time; the others wait.

    It is free in a forked process, whose only thread may be another one than its user. Copies are
    free too. A thread that is interrupted, at whatever point, leaves it free.
    """

    def __init__(self) -> None:
        self._number, self._lock, self._user = next(_numbers), Lock(), 0
        _all.add(self)

    def __reduce__(self) -> tuple[type[Exclusive], tuple[()]]:
        return Exclusive, ()

    def call(self, work: Callable[[], Result]) -> Result:
        """Call a function when nobody else uses this.

        Raises
        ------
        EndlessWait
            This thread uses it already, or another one does that waits for this one.
        """
        me = get_ident()
        try:
            _awaited[me] = self
            if self._user:
                self._check(me)
            with self._lock:  # once it is taken nothing interrupts this, as it would a stack
                try:
                    self._user = me
                    _awaited.pop(me)
                    return work()
                finally:
                    self._user = 0
        finally:
            _awaited.pop(me, None)

    def _check(self, me: int) -> None:
        """Refuse to wait for a thread that waits for this one: the later of two finds the other."""
        one: Exclusive | None = self
        seen: set[Exclusive] = set()
        while one is not None and one not in seen:
            seen.add(one)
            user = one._user
            if user == me:
                raise EndlessWait
            one = _awaited.get(user)


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
    me = get_ident()
    _awaited.clear()
    for one in _all:
        if one._user != me:
            one._lock, one._user = Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_freed)
