"""Conversion of physical groups, which may overlap, to one attribute per element."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count as counting
from typing import final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True)
class Numbering:
    """Attributes (n,) of n elements, the attribute of elements `without` group, and all names."""

    numbers: Ints
    without: int
    names: dict[str, tuple[int, ...]]


def attributes_of(count: int, members: Ints, names: dict[int, str]) -> Numbering:
    """Give each element or boundary face (here: thing) one attribute.

    Shapes: `members` (m, 2).
    """
    members = np.unique(members, axis=0)
    tags = np.unique(members[:, 1]).tolist()
    without = next(number for number in counting(1) if number not in tags)
    numbers = np.full(count, without, dtype=np.int64)
    numbers[members[:, 0]] = members[:, 1]
    memberships = np.bincount(members[:, 0], minlength=count)
    shared = set(members[memberships[members[:, 0]] > 1, 1].tolist())
    meanings: dict[int, list[int]] = {tag: [tag] for tag in tags if tag not in shared}
    if shared:
        for combination, things in _combinations(members, shared).items():
            number = max(*tags, without, *(max(m) for m in meanings.values() if m)) + 1
            numbers[things] = number
            for tag in combination:
                meanings.setdefault(tag, []).append(number)
    by_name: dict[str, tuple[int, ...]] = {}
    for tag in tags:
        name = names.get(tag, str(tag) if tag in shared else "")
        if name:
            by_name[name] = (*by_name.get(name, ()), *meanings[tag])
    return Numbering(numbers, without, by_name)


def _combinations(members: Ints, shared: set[int]) -> dict[tuple[int, ...], list[int]]:
    """Things in each combination of overlapping groups."""
    groups: dict[int, list[int]] = defaultdict(list)
    for thing, tag in members[np.isin(members[:, 1], list(shared))].tolist():
        groups[thing].append(tag)
    result: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for thing, combination in groups.items():
        result[tuple(combination)].append(thing)
    return dict(sorted(result.items()))
