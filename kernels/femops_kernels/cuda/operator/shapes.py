"""Tables of the launch shapes measured to be the fastest, by device and kernel.

There are two, lists of entries in JSON: ``shapes.json`` beside this file, and one of the user in
the cache folder, which goes first.  ``femops bench gpu --sweep`` writes the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, final

from femops_kernels.codegen import cache as storage
from femops_kernels.errors import CacheError

PACKAGED = Path(__file__).parent / "shapes.json"
"""The table that comes with the package."""

MOST_THREADS = 1024
"""Most threads that a block can have on any device."""


@final
@dataclass(frozen=True)
class Shape:
    """Launch shape of a kernel.

    Attributes
    ----------
    elements : int
        Elements per block.
    blocks : int
        Blocks that a multiprocessor should hold at least; bounds the registers.
    """

    elements: int
    blocks: int = 1


@final
@dataclass(frozen=True)
class ShapeKey:
    """Properties that the best launch shape depends on.

    Attributes
    ----------
    device : str
        Its name, as "NVIDIA H200".
    kernel : str
        Sizes of the kernel, the numbers it is given and their types, in words.
    """

    device: str
    kernel: str


def users_table() -> Path:
    """Path of the user's own table, which need not exist."""
    return storage.cache_folder() / "cuda_shapes.json"


def measured_shape(key: ShapeKey) -> Shape | None:
    """The shape that a table has for a kernel on a device; None without one.

    Raises
    ------
    CacheError
        A table that is damaged.
    """
    for path in (users_table(), PACKAGED):
        found = _table(path).get(key)
        if found is not None:
            return found
    return None


def check_tables() -> None:
    """Read the tables, before work that would meet a damaged one again and again.

    Raises
    ------
    CacheError
        A table that is damaged.
    """
    for path in (users_table(), PACKAGED):
        _table(path)


def record(shapes: Mapping[ShapeKey, Shape]) -> Path:
    """Add measured shapes to the user's table.

    Returns
    -------
    pathlib.Path
        The table.

    Raises
    ------
    CacheError
        A table that is damaged.
    """
    path = users_table()
    with storage.locked(path.with_suffix(".lock")):
        entries = _table(path) | dict(shapes)
        rows = [asdict(key) | asdict(shape) for key, shape in entries.items()]
        storage.write_whole(path, _lines(rows).encode())
    return path


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    """A list with an entry per line, so that a table can be read and compared."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _table(path: Path) -> dict[ShapeKey, Shape]:
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    return _read(path, changed)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> dict[ShapeKey, Shape]:  # noqa: ARG001  (read again if changed)
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {ShapeKey(row["device"], row["kernel"]): _shape(row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CacheError(
            f"the table of launch shapes {path} can't be read ({error}): remove it, and measure "
            "again by femops bench gpu --sweep"
        ) from error


def _shape(row: Mapping[str, Any]) -> Shape:
    numbers = row["elements"], row["blocks"]
    if any(not isinstance(n, int) or n < 1 for n in numbers):
        raise ValueError(f"elements and blocks are {numbers}, not whole numbers of at least 1")
    return Shape(*numbers)
