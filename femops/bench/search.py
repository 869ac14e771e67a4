"""The search for the fastest of a few candidates, on machines that do other things too."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, final

import numpy as np

# Rounds after which a candidate that takes so many times as long as the best is out.
_TRIES, _CLOSE = 3, 1.15
# Part of the time that another candidate must save, and of the rounds in which it must be ahead.
_GAIN, _AHEAD = 0.02, 0.7

Name = TypeVar("Name", bound=Hashable)


@final
@dataclass(frozen=True)
class Found(Generic[Name]):
    """Result of a search.

    Attributes
    ----------
    best : hashable
        The candidate to take.
    gain : float
        How many times as fast as the first one it is.
    tried : int
        How many candidates were run.
    seconds : dict
        All times of each.
    """

    best: Name
    gain: float
    tried: int
    seconds: dict[Name, list[float]] = field(default_factory=dict, compare=False)


def fastest(candidates: Mapping[Name, Callable[[], float]], rounds: int) -> Found[Name]:
    """The fastest candidate, where all take turns; the first, unless another is clearly ahead.

    Noise of other programs lengthens single times: what counts is the median over the rounds of
    the ratio of two times that follow each other.

    Parameters
    ----------
    candidates : mapping
        For each name what runs it and returns its seconds; the first is the default.
    rounds : int
        Turns of each; candidates far behind are left out after three.
    """
    first = next(iter(candidates))
    seconds: dict[Name, list[float]] = {name: [] for name in candidates}
    left = list(candidates)
    for k in range(rounds):
        if k == _TRIES:
            least = {name: min(times) for name, times in seconds.items()}
            limit = _CLOSE * min(least.values())
            left = [name for name in left if least[name] <= limit or name == first]
        for name in left:
            seconds[name].append(candidates[name]())
    ratios = {name: np.array(seconds[first]) / seconds[name] for name in left}
    best = max(ratios, key=lambda name: float(np.median(ratios[name])))
    gain = float(np.median(ratios[best]))
    if gain < 1.0 + _GAIN or np.mean(ratios[best] > 1.0) < _AHEAD:
        best, gain = first, 1.0
    return Found(best, gain, len(candidates), seconds)
