"""The record of a benchmark: its results so far, its failures, and the steps that are done."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, final

from femops.io.atomic import fill, replacing

Found = TypeVar("Found")
Row = dict[str, Any]

TABLES = ("rows", "cg", "solves", "products", "gas", "vectors", "faces", "shapes")
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
        """True if the case ``what`` was measured before, or has failed."""
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
