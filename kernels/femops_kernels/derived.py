"""Data that follow from an object, such as a mesh or a space, kept as long as it lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, Generic, TypeVar, final
from weakref import WeakKeyDictionary, ref

Owner = TypeVar("Owner")
Value = TypeVar("Value")


@final
class Derived(Generic[Owner, Value]):
    """One kind of data that follow from objects, their owners: made when first asked for, and kept.

    A module has one for each kind of data that it derives. Values belong to an owner itself, not to
    what is equal to it: a copy, or what pickle restores, is another owner, for which they are made
    anew; nothing of them is pickled or copied with it.

    Several threads may ask at a time: a value is made once, and who asks meanwhile waits for it.
    Where making it fails, the next one who asks tries again. No other value is locked meanwhile, so
    that it can be made of other derived data.

    Parameters
    ----------
    weak : bool
        Whether values are kept only as long as something else uses them too. Values that refer to
        their owner need this: else neither would ever go.

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
        self._lock = RLock()
        self._slots: WeakKeyDictionary[Owner, dict[Hashable, _Slot]] = WeakKeyDictionary()

    def get(self, owner: Owner, make: Callable[[], Value], *key: Hashable) -> Value:
        """Return a value, made if it is not there.

        Parameters
        ----------
        owner : object
            Compares by identity, and can be referred to weakly.
        make : callable
            Returns the value, which must not refer to the owner unless it is kept weakly.
        *key : hashable
            Which of the owner's values of this kind, where there are several.
        """
        slot = self._slot(owner, key)
        with slot.lock:
            value: Any = None if slot.kept is None else slot.kept()
            if slot.kept is None or (self._weak and value is None):
                value = make()
                slot.kept = self._hold(value)
        found: Value = value
        return found

    def put(self, owner: Owner, value: Value, *key: Hashable) -> None:
        """Let an owner have this value from now on."""
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
    """Where a value is, if it has been made."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.kept: Callable[[], Any] | None = None
