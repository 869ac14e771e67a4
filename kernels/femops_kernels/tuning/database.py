"""The tuning database: settings measured to be fastest, by machine and kernel.

It has two tables in JSON: ``shipped.json`` beside this file, and the user's ``tuning.json`` in the
cache folder, which takes precedence.  An entry has the machine, the kernel, the settings and the
day of the measurement.  For a kernel without an entry a model chooses the settings.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.cache import read_private
from femops_kernels.errors import CacheWarning
from femops_kernels.exclusive import Reentrant

SHIPPED = Path(__file__).parent / "shipped.json"
"""The table that comes with the package."""

_reading = Reentrant()

Settings = Mapping[str, int | str]
"""Settings of a kernel by name: integers below 2**31 from 1 on, and a word for ``level``."""


@final
@dataclass(frozen=True)
class TuningKey:
    """Machine and kernel that settings were measured for."""

    machine: str  # name of the processor or the device, for example "NVIDIA H200"
    kernel: str  # the kernel in words: sizes, inputs and types


@final
@dataclass(frozen=True)
class Entry:
    """Settings and the day of their measurement, for example ``2026-11-22``."""

    settings: Settings
    date: str


_tried: dict[TuningKey, Settings] = {}
"""Settings that take precedence over all tables while tuning tries them."""


@contextmanager
def trying(key: TuningKey, settings: Settings) -> Iterator[None]:
    """Make `find` return these settings for a key inside the ``with`` block."""
    before = _tried.get(key)
    _tried[key] = settings
    try:
        yield
    finally:
        del _tried[key]
        if before is not None:
            _tried[key] = before


def users_table() -> Path:
    """Path of the user's own table, which need not exist."""
    return kernel_cache.cache_folder() / "tuning.json"


def find(key: TuningKey) -> Settings:
    """Settings of the tables for a kernel on a machine; empty without an entry.

    A table that can't be read is renamed, with one ``CacheWarning``.
    """
    if key in _tried:
        return _tried[key]
    entry = entry_of(key)
    return {} if entry is None else entry.settings


def entry_of(key: TuningKey) -> Entry | None:
    """Entry of the tables for a key, the user's table first; None without an entry."""
    for path in (users_table(), SHIPPED):
        entry = _table(path).get(key)
        if entry is not None:
            return entry
    return None


def known(key: TuningKey) -> bool:
    """True if the user's table has settings for a kernel."""
    return key in _table(users_table())


def record(found: Mapping[TuningKey, Settings]) -> Path:
    """Add settings to the user's table atomically.

    Several processes may add at the same time, and no entry is lost.
    """
    return kernel_cache.keep(lambda _: _add(users_table(), found))


def _add(path: Path, found: Mapping[TuningKey, Settings]) -> Path:
    today = datetime.now(UTC).date().isoformat()
    with kernel_cache.locked(path.with_suffix(".lock")):
        entries = _table(path, locked=True) | {key: Entry(one, today) for key, one in found.items()}
        rows = (asdict(key) | asdict(entry) for key, entry in entries.items())
        kernel_cache.write_whole(path, _lines(rows).encode())
    return path


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    """JSON list with an entry per line, so that people can read and compare tables."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _table(path: Path, *, locked: bool = False) -> dict[TuningKey, Entry]:
    """Entries of a table. With ``locked`` this process has its lock."""
    try:
        state = path.lstat()
        # time stamps stand still for some milliseconds: a new file has another inode or size
        stamp = state.st_mtime_ns, state.st_ino, state.st_size
        with _reading:  # only one thread renames a damaged table and warns
            found = _read(path, stamp)
            if isinstance(found, str):
                _set_aside(path, stamp, found, locked=locked)
                return {}
            return found
    except FileNotFoundError:  # or another process has just renamed it
        return {}


@lru_cache(maxsize=8)
def _read(path: Path, stamp: tuple[int, ...]) -> dict[TuningKey, Entry] | str:  # noqa: ARG001  (read again if changed)
    """Entries of a table, or why it can't be read."""
    content = path.read_bytes() if path == SHIPPED else read_private(path)
    try:
        rows = json.loads(content.decode())
        return {TuningKey(str(row["machine"]), str(row["kernel"])): _entry(row) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return str(error)


@lru_cache(maxsize=8)
def _set_aside(path: Path, stamp: tuple[int, ...], error: str, *, locked: bool) -> None:
    """Rename a damaged table of the user, if the system allows it, and warn once."""
    aside, done = path.with_suffix(".damaged"), "it is not used"
    if path != SHIPPED:
        lock = kernel_cache.locked(path.with_suffix(".lock"), wait=False)
        with suppress(OSError), nullcontext() if locked else lock:
            state = path.lstat()
            if (state.st_mtime_ns, state.st_ino, state.st_size) != stamp:
                return  # another process has written a new one
            os.replace(path, aside)
            done = f"it is now {aside.name}"
    warnings.warn(
        f"the table of tuned settings {path} can't be read ({error}): {done}, and models choose "
        "until femops tune writes another",
        CacheWarning,
        stacklevel=2,
    )


def _entry(row: Mapping[str, Any]) -> Entry:
    settings = dict(row["settings"])
    for name, value in settings.items():
        whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31
        if not (isinstance(value, str) if name == "level" else whole):
            what = "word" if name == "level" else "whole number from 1 to 2**31 - 1"
            raise ValueError(f"{name!r} is {value!r}, no {what}")
    return Entry(settings, str(row["date"]))
