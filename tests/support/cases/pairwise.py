"""Pairwise covers: few cases in which every two values of two factors meet."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

Values = dict[str, Any]
Pair = tuple[str, Any, str, Any]


@final
@dataclass(frozen=True, eq=False)
class Pairwise:
    """Factors, and what is known of them.

    Parameters
    ----------
    factors : the values of each factor
    sensible : whether a case exists, and is small enough
    least : a case; if two values go together at all, they do in this one
    kernel : the values of a case that decide which kernel it takes
    favoured : weights of values in the random draws, 1 if omitted
    """

    factors: dict[str, list[Any]]
    sensible: Callable[[Values], bool]
    least: Values
    kernel: Callable[[Values], Values]
    favoured: dict[tuple[str, Any], float] = field(default_factory=dict)

    @cached_property
    def feasible(self) -> frozenset[Pair]:
        """Every two values of two factors that go together."""
        return frozenset(
            (a, x, b, y)
            for a, b in itertools.combinations(self.factors, 2)
            for x, y in itertools.product(self.factors[a], self.factors[b])
            if self.sensible({**self.least, a: x, b: y})
        )

    def pairs(self, values: Values) -> set[Pair]:
        """The pairs of values that a case holds."""
        names = itertools.combinations(self.factors, 2)
        return {(a, values[a], b, values[b]) for a, b in names}

    @cached_property
    def cover(self) -> list[Values]:
        """Cases such that every two values of two factors meet in one of them (where they can).

        Greedy: of random cases that hold a pair not yet met, take the one with most such pairs; to
        compile a kernel costs far more than to try it on another mesh, so one that is there counts
        more.
        """
        rng = np.random.default_rng(8)
        missing = set(self.feasible)
        chosen: list[Values] = []
        while missing:
            a, x, b, y = min(missing, key=repr)
            drawn = self._draw(rng, 300)
            olds = zip(drawn, chosen * 9, strict=False)
            drawn += [values | self.kernel(old) for values, old in olds]
            known = [self.kernel(old) for old in chosen]
            best, most = self.least | {a: x, b: y}, 0
            for values in (values | {a: x, b: y} for values in drawn):
                if self.sensible(values):
                    gain = len(self.pairs(values) & missing)
                    gain *= 4 if self.kernel(values) in known else 1
                    best, most = (values, gain) if gain > most else (best, most)
            missing -= self.pairs(best)
            chosen.append(best)
        return chosen

    def _draw(self, rng: np.random.Generator, count: int) -> list[Values]:
        """Random values of all factors."""
        columns = []
        for name, choices in self.factors.items():
            weights = np.array([self.favoured.get((name, choice), 1.0) for choice in choices])
            picked = rng.choice(len(choices), count, p=weights / weights.sum())
            columns.append([choices[k] for k in picked])
        return [dict(zip(self.factors, row, strict=True)) for row in zip(*columns, strict=True)]
