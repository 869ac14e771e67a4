"""Checkpoints of states in time, in memory and on disk, and schedules that ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.spaces.memory import Memory
from femops_meshes.arguments import shown

Vector = NDArray[Any]
STORED = frozenset({"RAM", "DISK"})
"""Storages of a schedule besides the states at work."""


@final
class Checkpoints:
    """States by storage and step."""

    def __init__(self, folder: Path, memory: Memory) -> None:
        self._folder, self._memory = folder, memory
        self._kept: dict[tuple[str, int], dict[str, Any]] = {}

    def write(self, storage: str, n: int, arrays: Mapping[str, Vector]) -> None:
        """Keep states of a step by name, beside those that the storage has of this step.

        Nobody changes states in place, so memory takes them without a copy.
        """
        kept = self._kept.setdefault((storage, n), {})
        for name, array in arrays.items():
            kept[name] = array
            if storage == "DISK":
                kept[name] = self._folder / f"{name}-{n}.npy"
                np.save(kept[name], self._memory.get(array))

    def read(self, storage: str, n: int) -> dict[str, Vector]:
        """States of a step by name."""
        kept = self._kept[storage, n]
        if storage != "DISK":
            return dict(kept)
        return {name: self._memory.put(np.load(path)) for name, path in kept.items()}

    def delete(self, storage: str, n: int) -> None:
        """Delete the states of a step."""
        kept = self._kept.pop((storage, n))
        if storage == "DISK":
            for path in kept.values():
                path.unlink()


def actions_of(schedule: Any, count: int) -> Iterator[Any]:
    """Actions of a schedule for some number of steps."""
    again = f"checkpoint_schedules.Revolve({count}, 10), for instance"
    if isinstance(schedule, type) or not hasattr(schedule, "max_n"):
        raise OperatorError(f"schedule is {shown(schedule)}: give {again}")
    if schedule.max_n not in (None, count):
        raise OperatorError(
            f"schedule is {shown(schedule)} for {schedule.max_n} steps, but there are {count}: "
            f"give {again}"
        )
    actions = iter(schedule)
    first = next(actions, None)
    if first is None or type(first).__name__ != "Forward" or first.n0 != 0:
        raise OperatorError(
            f"schedule is {shown(schedule)} that has been used: a schedule serves one gradient, "
            f"give a new one, {again}"
        )
    return chain([first], actions)
