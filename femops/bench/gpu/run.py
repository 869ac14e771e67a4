"""A running benchmark of a GPU, which does its steps one after the other while there is time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.gpu.record import Record, Row
from femops.bench.problems import Progress
from femops.errors import OperatorError
from femops.parallel.comm import communicator
from femops.spaces.memory import find_device
from femops_kernels.cpu import machine
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.rates import Amounts, Rates

_MARGIN = 1.3  # safety factor on the estimate of the next step's time

ROUND_OFF = 1e-12
"""Largest difference of results, relative to the largest entry."""

WORDS = {
    "rows": "{dofs_per_second:.3g} dofs/s, {fraction_of_limit:.0%} of {limit:.3g} ({bound})",
    "cg": "{dofs_per_second:.3g} dofs/s, {fraction_of_limit:.0%} of {limit:.3g} ({bound})",
    "solves": "{iterations} iterations, {seconds_solve:.3g} s",
    "products": "{gflops:.3g} GFlop/s, {fraction_of_limit:.0%} of the limit",
    "gas": "{seconds_step:.3g} s a step, {forces_points_per_second:.3g} points/s",
    "vectors": "{dofs_per_second:.3g} dofs/s, {over_one_by_one:.3g} times one by one",
    "faces": "{dofs_per_second:.3g} dofs/s",
    "shapes": "{seconds_before:.3g} s before, {seconds:.3g} now",
}
"""Formats for the progress line of a row, for each table."""


@final
@dataclass(frozen=True)
class Step:
    """Step of a benchmark."""

    name: str
    do: Callable[[Run], object]  # takes the `Run`, and adds rows to its record
    effort: float = 1.0  # relative time of the step; 0 for a step that is always done


@final
class Run:
    """A device that is measured, and the record of the benchmark."""

    def __init__(
        self,
        place: str | Device,
        seconds: float,
        budget: float,
        amounts: Amounts,
        found: Record,
        show: Progress,
    ) -> None:
        device = find_device(place, communicator())
        assert device is not None  # no name is no device
        self.device, self.seconds, self.found, self.show = device, seconds, found, show
        self._begin, self._budget, self._amounts = perf_counter(), budget, amounts
        self._busy = False
        names = ("name", "arch", "processors", "shared_bytes")
        facts = {name: getattr(device, name) for name in names}
        found.facts = {"machine": machine.describe(), "device": facts}
        found.answers = device.synchronize

    def do(self, steps: Sequence[Step]) -> None:
        """Do the steps that are left: the first always, the others if they are likely to fit in."""
        rate = 0.0
        for step in steps:
            begin = perf_counter()
            if step.name in self.found.done or self.found.dead:
                continue
            expected = begin - self._begin + _MARGIN * rate * step.effort
            if self._busy and expected > self._budget:
                few = f"{self._budget:g} s are too few"
                self.found.notes.append(f"{step.name}: not measured, {few}")
                continue
            step.do(self)
            self._busy = True
            if step.effort:
                rate = (perf_counter() - begin) / step.effort
                if not self.found.dead:
                    self.found.done.append(step.name)
            self.found.keep()

    def measure(self, table: str, what: str, call: Callable[[], list[Row]]) -> list[Row]:
        """Measure a case, add its rows to a table, and return the rows.

        Return no rows if the case fails or was measured before.
        """
        rows = self.found.measure(what, call) or []
        for row in rows:
            self.found.tables[table].append(row)
            self.show(f"{row['name']}: {WORDS[table].format(**row)}")
        self.found.keep()
        return rows

    @cached_property
    def rates(self) -> Rates | None:
        """Limits of the device; None if they cannot be measured."""
        return self.measure_rates()

    @property
    def limits(self) -> Rates:
        """Limits of the device; they must have been measured."""
        assert self.rates is not None
        return self.rates

    def measure_rates(self) -> Rates | None:
        """Measure the limits of the device now, and add them to the record."""
        self.show("limits of the device")
        measure = partial(Rates.of, self.device, self._amounts)
        rates = self.found.attempt("limits of the device", measure)
        if rates is not None:
            self.found.rates.append(vars(rates))
        self.found.keep()
        return rates


def relative_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference of results from expected results, relative to the largest expected."""
    off = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not np.isfinite(off):
        raise OperatorError("results are not finite")
    return off
