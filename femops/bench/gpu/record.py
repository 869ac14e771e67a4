"""The record of a benchmark: all that was found so far, what failed, and what is done."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, final

from femops.io.atomic import replacing

Found = TypeVar("Found")
Row = dict[str, Any]

TABLES = ("rows", "cg", "solves", "products", "gas", "vectors", "shapes")
"""Names of the tables of a result; each row has a ``name`` that no other row of its table has."""

ALL = "all that follows"
"""Name of the failure of a device that no longer answers."""

ENDED = "the process ended while it was measured"
"""Message of a case that was begun and of which nothing more is known."""


def one_line(error: BaseException) -> str:
    """Return the error in one line."""
    if isinstance(error, MemoryError):
        return f"there is no room for it ({error})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def write_json(file: Path, values: Row) -> None:
    """Write a file that appears whole or not at all."""
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(values, indent=1, allow_nan=False), encoding="utf-8")


@final
@dataclass
class Record:
    """All that a benchmark has found so far, kept in a file if there is one.

    Attributes
    ----------
    file : Path, optional
        Appears whole or not at all, after each row and before each case that a device might not
        survive.
    facts : dict
        The host and the device.
    tables : dict
        Rows of each of `TABLES`; see `run_gpu`.
    rates : list of dict
        Limits of the device, each time that they were measured.
    failures : list of dict
        What failed: ``what``, the ``message``, the ``traceback``.
    notes : list of str
        On what is not measured.
    done : list of str
        Steps, and groups of cases, of which nothing is left to measure.
    begun : str
        The case that is being measured.
    complete : bool
        Whether all was measured, or failed.
    seconds : float
        For how long, in all processes.
    answers : callable
        Raises an error if the device no longer works.
    """

    file: Path | None = None
    facts: Row = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})
    rates: list[Row] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    begun: str = ""
    complete: bool = False
    seconds: float = 0.0
    answers: Callable[[], object] = bool

    def __post_init__(self) -> None:
        self._begin = perf_counter() - self.seconds

    @staticmethod
    def of(file: Path) -> Record:
        """Read a record to go on with it; a case that was begun has failed."""
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
        """Number that grows with each step."""
        return len(self.failures) + len(self.done) + sum(map(len, self.tables.values()))

    def known(self, what: str) -> bool:
        """True if something was measured before, or has failed."""
        rows = [row["name"] for table in self.tables.values() for row in table]
        return what in rows or any(failure["what"] == what for failure in self.failures)

    def attempt(self, what: str, call: Callable[[], Found]) -> Found | None:
        """Result of a call; None if it fails, which is told among the failures."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  (whatever a driver says; the exit code tells)
            found = {"message": one_line(error), "traceback": traceback.format_exc()}
            others = [failure for failure in self.failures if failure["what"] != what]
            self.failures = [*others, {"what": what} | found]
            return None

    def measure(self, what: str, call: Callable[[], Found]) -> Found | None:
        """Attempt what a device may not survive, unless it was attempted before.

        After a kernel that reads where nothing is, everything fails in that process: no more is
        attempted, and nothing but the first is blamed.
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
