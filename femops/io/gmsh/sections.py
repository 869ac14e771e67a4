"""Sections of a Gmsh file, and their numbers, in ASCII and binary.

Nothing is skipped or guessed: every line has the numbers that its section's counts announce, and a
section ends where its numbers end. A damaged file so differs from what its counts say.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_meshes import MeshFormatError
from femops_meshes.formats.scanner import printable, shorten

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_START = re.compile(rb"\$([A-Za-z][A-Za-z0-9]*)[ \t]*(?:\r?\n|\Z)")
# white space that no writer puts between numbers; Python reads 1_000 as a number
_STRAY = re.compile(rb"[\x0b\x0c_]|\r(?!\n|\Z)")
_SPACE = re.compile(rb"\s*")
_COUNT = re.compile(rb"\s*([0-9]{1,18})[ \t]*\r?\n")
_REPEATED = frozenset({"Comments", "NodeData", "ElementData", "ElementNodeData"})
_CURE = "let Gmsh, or the program that made the file, write it again"


@final
@dataclass(frozen=True)
class Section:
    """Content of a section between its first and its last line."""

    file: str
    name: str
    content: bytes
    line: int

    def fail(self, why: str, line: int | None = None) -> MeshFormatError:
        """Error that names the fault, the section and the line of the file."""
        at = "" if line is None else f" in line {self.line + line}"
        what = f"its section ${self.name} is damaged{at} ({why})"
        return MeshFormatError(f"{self.file}: {what}: {_CURE}")

    def numbers(self, order: str) -> Cursor:
        """Cursor over the numbers: ASCII if `order` is empty, else binary of a byte order."""
        return Binary(self, order) if order else Text(self)


def sections_of(data: bytes, file: str) -> dict[str, Section]:
    """Split a file into its sections."""
    found: dict[str, Section] = {}
    place, counted, line = 0, 0, 1
    while (place := _after_space(data, place)) < len(data):
        start = _START.match(data, place)
        line, counted = line + data.count(b"\n", counted, place), place
        if not start:
            got = _shown(data[place : place + 60].split(b"\n")[0])
            raise MeshFormatError(
                f'{file}, line {line}: a section such as $Nodes should begin here, got "{got}": '
                f"{_CURE}"
            )
        name = start[1].decode("ascii")
        end = re.compile(rb"^\$End" + start[1] + rb"[ \t\r]*$", re.M).search(data, start.end())
        if not end:
            raise MeshFormatError(f"{file} has no $End{name}: it is truncated, {_CURE}")
        if name in found and name not in _REPEATED:
            raise MeshFormatError(f"{file}, line {line}: a second section ${name}: {_CURE}")
        found[name] = Section(file, name, data[start.end() : end.start()], line + 1)
        place = end.end()
    return found


def _after_space(data: bytes, place: int) -> int:
    space = _SPACE.match(data, place)
    return space.end() if space else place


class Cursor(ABC):
    """Place in the numbers of a section. Whole numbers have 4 bytes (kind "i") or 8 ("n")."""

    @abstractmethod
    def fail(self, why: str) -> MeshFormatError:
        """Error that names the fault, the section and the byte of the file."""

    @abstractmethod
    def begin_row(self) -> None:
        """Go to the next line, in ASCII."""

    @abstractmethod
    def whole(self, kind: str, count: int) -> Ints:
        """Return the next whole numbers (count,) of the row."""

    @abstractmethod
    def floats(self, count: int) -> Floats:
        """Return the next floats (count,) of the row."""

    @abstractmethod
    def end_row(self) -> None:
        """Check that the line ends here, in ASCII."""

    @abstractmethod
    def whole_table(self, kind: str, rows: int, width: int) -> Ints:
        """Return whole numbers (rows, width), in ASCII one row in each line."""

    @abstractmethod
    def float_table(self, rows: int, width: int) -> Floats:
        """Return floats (rows, width), in ASCII one row in each line."""

    @abstractmethod
    def end(self) -> None:
        """Check that the section ends here."""

    @abstractmethod
    def checked_count(self, count: int) -> int:
        """Return a count of items that follow. Raise if the section is too short for them."""

    def row(self, kinds: str) -> list[int]:
        """Return the whole numbers of a line, of the given kinds."""
        self.begin_row()
        result = [int(self.whole(kind, 1)[0]) for kind in kinds]
        self.end_row()
        return result


@final
class Text(Cursor):
    """Cursor over a section in ASCII, whose lines are split into words."""

    def __init__(self, section: Section) -> None:
        self._section = section
        stray = _STRAY.search(section.content)
        if stray:
            line = section.content.count(b"\n", 0, stray.start())
            raise section.fail(f'"{_shown(stray[0])}" between numbers', line)
        self._rows = [words for line in section.content.split(b"\n") if (words := line.split())]
        self._next = 0
        self._words: list[bytes] = []

    def fail(self, why: str, row: int | None = None) -> MeshFormatError:
        lines = enumerate(self._section.content.split(b"\n"))
        numbers = [number for number, line in lines if line.split()] or [0]
        row = self._next - 1 if row is None else row
        return self._section.fail(why, numbers[max(0, min(row, len(numbers) - 1))])

    def rows(self, count: int) -> list[list[bytes]]:
        """Return the words of the next lines."""
        left = len(self._rows) - self._next
        if not 0 <= count <= left:
            raise self.fail(f"{count} more lines should follow, {left} do")
        self._next += count
        return self._rows[self._next - count : self._next]

    def begin_row(self) -> None:
        self._words = self.rows(1)[0]

    def starts_with(self, word: bytes) -> bool:
        """True if the next line begins with a word."""
        return self._next < len(self._rows) and self._rows[self._next][0] == word

    def _taken(self, count: int) -> list[bytes]:
        if not 0 <= count <= len(self._words):
            raise self.fail(f"{count} numbers should follow, {len(self._words)} do")
        taken, self._words = self._words[:count], self._words[count:]
        return taken

    def whole(self, kind: str, count: int) -> Ints:
        return self.as_whole(self._taken(count), kind)

    def floats(self, count: int) -> Floats:
        return self.as_floats(self._taken(count))

    def end_row(self) -> None:
        if self._words:
            raise self.fail(f'"{_shown(self._words[0])}" is one number too many')

    def _table(self, rows: int, width: int) -> list[bytes]:
        chosen = self.rows(rows)
        for number, words in enumerate(chosen, self._next - rows):
            if len(words) != width:
                raise self.fail(f"{len(words)} numbers where {width} should be", number)
        return [word for words in chosen for word in words]

    def whole_table(self, kind: str, rows: int, width: int) -> Ints:
        return self.as_whole(self._table(rows, width), kind).reshape(rows, width)

    def float_table(self, rows: int, width: int) -> Floats:
        return self.as_floats(self._table(rows, width)).reshape(rows, width)

    def as_whole(self, words: list[bytes], kind: str = "n") -> Ints:
        """Convert words to whole numbers (n,)."""
        try:
            values = np.array([*map(int, words)], dtype=np.int64)
        except (ValueError, OverflowError):
            raise self._bad(words, int) from None
        wide = values[values != values.astype(np.int32)] if kind == "i" else values[:0]
        if len(wide):
            raise self.fail(f"{wide[0]} does not fit into 4 bytes")
        return values

    def as_floats(self, words: list[bytes]) -> Floats:
        """Convert words to floats (n,)."""
        try:
            values = np.array([*map(float, words)], dtype=np.float64)
        except ValueError:
            raise self._bad(words, float) from None
        return values

    def _bad(self, words: list[bytes], convert: type[int | float]) -> MeshFormatError:
        """Error about the first word that is no number."""
        for word in words:
            try:
                np.int64(convert(word)) if convert is int else convert(word)
            except (ValueError, OverflowError):
                first = next(k for k, row in enumerate(self._rows) if word in row)
                return self.fail(
                    f'"{_shown(word)}" is no number', max(first, self._next - len(words))
                )
        return self.fail("a word is no number")

    def checked_count(self, count: int) -> int:
        if not 0 <= count <= len(self._rows) - self._next:
            raise self.fail(f"{count} items should follow, in {len(self._rows) - self._next} lines")
        return count

    def end(self) -> None:
        if self._next < len(self._rows):
            left = len(self._rows) - self._next
            raise self.fail(f"{left} lines more than its counts say", self._next)


@final
class Binary(Cursor):
    """Cursor over a section in binary. `order` is NumPy's sign of the byte order."""

    def __init__(self, section: Section, order: str) -> None:
        self._section, self._order = section, order
        self._place = 0

    def fail(self, why: str) -> MeshFormatError:
        return self._section.fail(f"{why}, at byte {self._place} of it")

    def count_line(self) -> int:
        """Return the number in the first line, which is text in version 2."""
        found = _COUNT.match(self._section.content)
        if not found:
            raise self.fail("it does not begin with a count")
        self._place = found.end()
        return int(found[1])

    def begin_row(self) -> None:
        """Do nothing: there are no lines."""

    def end_row(self) -> None:
        """Do nothing: there are no lines."""

    def records(self, dtype: list[tuple[str, str, int]], count: int) -> NDArray[np.void]:
        """Return records (count,). A type is "i4" or "f8"."""
        native = np.dtype([(name, self._order + kind, (size,)) for name, kind, size in dtype])
        left = len(self._section.content) - self._place
        if not 0 <= count <= left // native.itemsize:
            raise self.fail(
                f"{count} records of {native.itemsize} bytes should follow, {left} bytes do"
            )
        found = np.frombuffer(self._section.content, native, count, self._place)
        self._place += count * native.itemsize
        return found

    def whole(self, kind: str, count: int) -> Ints:
        size = {"i": "i4", "n": "i8"}[kind]
        return self.records([("x", size, 1)], count)["x"].astype(np.int64).ravel()

    def floats(self, count: int) -> Floats:
        return self.records([("x", "f8", 1)], count)["x"].astype(np.float64).ravel()

    def whole_table(self, kind: str, rows: int, width: int) -> Ints:
        self.checked_count(rows)
        return self.whole(kind, rows * width).reshape(rows, width)

    def float_table(self, rows: int, width: int) -> Floats:
        self.checked_count(rows)
        return self.floats(rows * width).reshape(rows, width)

    def checked_count(self, count: int) -> int:
        left = len(self._section.content) - self._place
        if not 0 <= count <= left:
            raise self.fail(f"{count} items should follow, in {left} bytes")
        return count

    def end(self) -> None:
        left = self._section.content[self._place :]
        if left not in (b"", b"\n", b"\r\n"):
            raise self.fail(f"{len(left)} bytes more than its counts say")


def _shown(word: bytes) -> str:
    return shorten(word.decode("latin-1"))


def decoded(text: bytes) -> str:
    """Text of a file, with escapes for bytes and characters that cannot be printed."""
    return printable(text.decode("utf-8", "backslashreplace"))
