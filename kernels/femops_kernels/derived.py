"""Data derived from an object, such as a mesh or a space, and kept as long as the object lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, final
from weakref import WeakKeyDictionary, ref

from femops_kernels.exclusive import Reentrant

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
