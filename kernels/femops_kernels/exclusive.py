"""Locks that survive copies, forks and interrupted threads, and data derived once under them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from itertools import count
from threading import Lock, RLock
from typing import Any, Generic, TypeVar, final
from weakref import WeakKeyDictionary, WeakSet, ref

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

    @property
    def lock(self) -> Lock:
        """The lock of this process, which a forked process replaces."""
        return self._lock

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


@final
class Reentrant:
    """Lock that one thread of Python holds at a time, any number of times.

    It is free in a forked process, unless the thread that forks holds it.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        _all_reentrant.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def free(self) -> None:
        """Release the lock in a forked process, unless this thread holds it."""
        self._lock = usable(self._lock)


_all_reentrant: WeakSet[Reentrant] = WeakSet()


def held_in_forks(lock: RLock, ready: Callable[[], object] | None = None) -> None:
    """Let a fork wait for a lock, and for a function that is called with it.

    In the child the thread that held the lock would hold it for ever.
    """
    held: list[bool] = []  # a fork that has begun before this call ends without the lock

    def before() -> None:
        lock.acquire()
        held.append(True)
        if ready is not None:
            ready()

    def after() -> None:
        if held:
            held.pop()
            lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


def usable(lock: RLock) -> RLock:
    """Return the lock, or a new one if another thread holds it."""
    if not lock.acquire(blocking=False):
        return RLock()
    lock.release()
    return lock


def _freed() -> None:
    """Release all locks in a forked process: the threads that hold them are in the parent."""
    for one in _all:
        one._lock = Lock()
    for reentrant in _all_reentrant:
        reentrant.free()
    if sys.version_info < (3, 12):
        _free_properties()


def _free_properties() -> None:
    """Release the locks of cached properties, which Python 3.11 holds while it computes one."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] in _PACKAGES]
    classes = {v for m in modules for v in vars(m).values() if isinstance(v, type)}
    for one in classes:
        for value in vars(one).values():
            if isinstance(value, cached_property):
                kept = vars(value)
                kept["lock"] = usable(kept["lock"])


_PACKAGES = "femops", "femops_kernels", "femops_meshes", "femops_common"

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_freed)


Owner = TypeVar("Owner")
Value = TypeVar("Value")


@final
class Derived(Generic[Owner, Value]):
    """Table of values derived from objects, their owners. The first request computes a value.

    A module has one table for each kind of data that it derives. A value belongs to one owner, by
    identity. A copy or an unpickled object is another owner without values.

    Several threads may request a value at the same time. One thread computes it and the others
    wait. If the computation fails, the next request tries again. The computation may request other
    derived values, because it locks only its own value.

    Examples
    --------
    >>> class Mesh:
    ...     sides = 4
    >>> corners = Derived[Mesh, int]()
    >>> mesh = Mesh()
    >>> corners.get(mesh, lambda: mesh.sides)
    4
    >>> corners.get(mesh, lambda: 0)
    4
    """

    def __init__(self, *, weak: bool = False) -> None:
        self._weak = weak
        self._lock = Reentrant()
        self._slots: WeakKeyDictionary[Owner, dict[Hashable, _Slot]] = WeakKeyDictionary()

    def get(self, owner: Owner, make: Callable[[], Value], *key: Hashable) -> Value:
        """Return the value of an owner. If the table has none, compute it with ``make``."""
        slot = self._slot(owner, key)
        with slot.lock:
            value: Any = None if slot.kept is None else slot.kept()
            if slot.kept is None or (self._weak and value is None):
                value = make()
                slot.kept = self._hold(value)
        found: Value = value
        return found

    def known(self, owner: Owner, *key: Hashable) -> bool:
        """True if the table has a value of an owner; see `get`."""
        return self._slot(owner, key).kept is not None

    def put(self, owner: Owner, value: Value, *key: Hashable) -> None:
        """Set the value of an owner; see `get`."""
        slot = self._slot(owner, key)
        with slot.lock:
            slot.kept = self._hold(value)

    def _slot(self, owner: Owner, key: Hashable) -> _Slot:
        with self._lock:  # dictionaries of weak keys are not safe by themselves
            return self._slots.setdefault(owner, {}).setdefault(key, _Slot())

    def _hold(self, value: Value) -> Callable[[], Any]:
        return ref(value) if self._weak else lambda: value


@final
class _Slot:
    """Place of one value; ``kept`` is None until the value is computed."""

    def __init__(self) -> None:
        self.lock = Reentrant()
        self.kept: Callable[[], Any] | None = None
