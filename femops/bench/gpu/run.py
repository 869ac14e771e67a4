"""A running benchmark of a GPU: its steps, and the record of its results."""

from __future__ import annotations

import json
import shutil
import subprocess
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.problems import Progress
from femops.errors import OperatorError
from femops.io.atomic import fill, replacing
from femops.parallel.comm import communicator
from femops.spaces.memory import find_device
from femops_kernels.cpu import machine
from femops_kernels.cuda.rates import Amounts, Rates
from femops_kernels.device import Device

Found = TypeVar("Found")
Row = dict[str, Any]

TABLES = (
    *("rows", "cg", "solves", "products", "gas", "vectors", "faces", "refined", "simplices"),
    "shapes",
)
"""Names of the tables of a result; each row has a ``name`` that no other row of its table has."""

ALL = "all that follows"
"""Name of the failure of a device that no longer answers."""

ENDED = "the process ended while it was measured"
"""Message of a case that was begun and has no result."""


def one_line(error: BaseException) -> str:
    """Return the error in one line."""
    if isinstance(error, MemoryError):
        return f"there is no room for it ({error})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def write_json(file: Path, values: Row) -> None:
    """Write values as JSON to a file, which is replaced only when complete."""
    with replacing(file) as temporary:
        fill(temporary, json.dumps(values, indent=1, allow_nan=False))


@final
@dataclass
class Record:
    """Results of a benchmark so far, written to a file if there is one."""

    # written after each row, and before each case that may make the device fail
    file: Path | None = None
    facts: Row = field(default_factory=dict)  # descriptions of the host and the device
    # rows of each of `TABLES`; see `run_gpu`
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    # limits of the device, an entry for each measurement
    rates: list[Row] = field(default_factory=list)
    # for each failure, the case (``what``), the ``message`` and the ``traceback``
    failures: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # lines about cases that are not measured
    # steps and groups of cases that are completely measured
    done: list[str] = field(default_factory=list)
    begun: str = ""  # the case that is being measured
    complete: bool = False  # True if every case was measured or has failed
    seconds: float = 0.0  # time of the benchmark so far, in all processes
    answers: Callable[[], object] = bool  # raises an error if the device no longer works

    def __post_init__(self) -> None:
        self._begin = perf_counter() - self.seconds

    @staticmethod
    def of(file: Path) -> Record:
        """Read a record to continue it. A case that was begun counts as failed."""
        if not file.exists():
            return Record(file)
        record = Record(file, **json.loads(file.read_text(encoding="utf-8")))
        record.notes.clear()
        record.failures = [failure for failure in record.failures if failure["what"] != ALL]
        if record.begun:
            record.failures.append({"what": record.begun, "message": ENDED, "traceback": ""})
            record.begun = ""
        return record

    def keep(self) -> None:
        """Write the file."""
        self.seconds = perf_counter() - self._begin
        if self.file is not None:
            names = (each.name for each in fields(self) if each.name not in ("file", "answers"))
            write_json(self.file, {name: getattr(self, name) for name in names})

    @property
    def amount(self) -> int:
        """Number of entries, which grows with each step of the benchmark."""
        return len(self.failures) + len(self.done) + sum(map(len, self.tables.values()))

    def known(self, what: str) -> bool:
        """True if a case of this name has been measured or has failed."""
        rows = [row["name"] for table in self.tables.values() for row in table]
        return what in rows or any(failure["what"] == what for failure in self.failures)

    def attempt(self, what: str, call: Callable[[], Found]) -> Found | None:
        """Return the result of a call. If it fails, record the failure and return None."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  (whatever a driver says; the exit code tells)
            found = {"message": one_line(error), "traceback": traceback.format_exc()}
            others = [failure for failure in self.failures if failure["what"] != what]
            self.failures = [*others, {"what": what} | found]
            return None

    def measure(self, what: str, call: Callable[[], Found]) -> Found | None:
        """Attempt a case that may make the device fail, unless it was attempted before.

        If a kernel does an invalid access, every later call in this process fails. Then no further
        case is attempted, and only the first case is recorded as failed.
        """
        if self.known(what) or self.dead:
            return None
        self.begun = what
        self.keep()
        before = len(self.failures)
        found = self.attempt(what, call)
        self.begun = ""
        if len(self.failures) > before:
            self.attempt(ALL, self.answers)
        return found

    @property
    def dead(self) -> bool:
        """True if the device no longer answers."""
        return any(failure["what"] == ALL for failure in self.failures)


# --- steps ---------------------------------------------------------------------------------------

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
    "refined": "{over_uniform:.3g} times the time of an element of a uniform mesh",
    "simplices": "{dofs_per_second:.3g} dofs/s, {fraction_of_limit:.0%} of {limit:.3g} ({bound})",
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


# --- clocks --------------------------------------------------------------------------------------

_FIELDS = {
    "clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "celsius": "temperature.gpu",
    "watts": "power.draw",
    "throttled": "clocks_event_reasons.active",
}
_PATIENCE = 10  # seconds


def clocks(device: Device) -> dict[str, Any]:
    """Return the present clocks of a device from ``nvidia-smi``; None for missing values."""
    program, words = shutil.which("nvidia-smi"), list[str]()
    if program is not None and device.bus:
        asked = f"--query-gpu={','.join(_FIELDS.values())}"
        command = [program, asked, "--format=csv,noheader,nounits", "-i", device.bus]
        with suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_PATIENCE
            )
            words = [word.strip() for word in said.stdout.split(",")]
    if len(words) != len(_FIELDS):
        return dict.fromkeys(_FIELDS)
    return {name: _value(word) for name, word in zip(_FIELDS, words, strict=True)}


def _value(word: str) -> float | str | None:
    """Convert a word to a number, hexadecimal words to text, and others such as "[N/A]" to None."""
    if word.startswith("0x"):
        return hex(int(word, 16))
    try:
        return float(word)
    except ValueError:
        return None
