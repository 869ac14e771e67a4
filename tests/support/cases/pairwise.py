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
        for pair in sorted(self.feasible, key=repr):
            if pair not in missing:
                continue
            a, x, b, y = pair
            drawn = self._draw(rng, 300)
            olds = zip(drawn, chosen * 9, strict=False)
            drawn += [values | self.kernel(old) for values, old in olds]
            drawn = [values | {a: x, b: y} for values in drawn]
            known = [self.kernel(old) for old in chosen]
            best, most = self.least | {a: x, b: y}, 0
            for values, gain in zip(drawn, self._gains(drawn, missing), strict=True):
                if 4 * gain > most and self.sensible(values):
                    worth = gain * (4 if self.kernel(values) in known else 1)
                    best, most = (values, worth) if worth > most else (best, most)
            missing -= self.pairs(best)
            chosen.append(best)
        return chosen

    def _gains(self, drawn: list[Values], missing: set[Pair]) -> list[int]:
        """How many of the missing pairs each case holds, by tables: most of the time goes here."""
        places = {name: k for k, name in enumerate(self.factors)}
        numbers = {(n, x): k for n, values in self.factors.items() for k, x in enumerate(values)}
        size = len(places), max(numbers.values()) + 1
        table = np.zeros((size[0], size[0], size[1], size[1]), int)
        for a, x, b, y in missing:
            table[places[a], places[b], numbers[a, x], numbers[b, y]] = 1
        rows = np.array([[numbers[n, values[n]] for n in places] for values in drawn]).T
        a, b = np.triu_indices(len(places), 1)
        return table[a[:, None], b[:, None], rows[a], rows[b]].sum(axis=0).tolist()

    def _draw(self, rng: np.random.Generator, count: int) -> list[Values]:
        """Random values of all factors."""
        columns = []
        for name, choices in self.factors.items():
            weights = np.array([self.favoured.get((name, choice), 1.0) for choice in choices])
            picked = rng.choice(len(choices), count, p=weights / weights.sum())
            columns.append([choices[k] for k in picked])
        return [dict(zip(self.factors, row, strict=True)) for row in zip(*columns, strict=True)]
