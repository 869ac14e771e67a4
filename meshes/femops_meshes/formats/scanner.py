"""Scanner that reads a mesh file line by line, with errors that name file and line."""

import re
import warnings
from functools import cached_property
from math import isfinite
from typing import final
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshError, MeshFormatError, MeshGeometryError

# at most 18 digits: fits int64, and no count is ever so large
_INTEGERS = re.compile(r"[+-]?[0-9]{1,18}(?:[ \t]+[+-]?[0-9]{1,18})*")
_SHOWN = 60


@final
class Scanner:
    """Lines of a text without blank ones and comments (#)."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._next = 0
        self.line = 0
        """Number, from 1, of the line read last."""

    def fail(self, message: str, line: int | None = None) -> MeshFormatError:
        """Return the error to raise, with file and line (by default the last one read)."""
        return MeshFormatError(
            f"{self.name}, line {self.line if line is None else line}: {message}"
        )

    def read(self, expected: str) -> str:
        """Return the next line, stripped; `expected` names the missing item in the error."""
        while self._next < len(self._lines):
            text = self._lines[self._next].strip()
            self._next += 1
            if text and not text.startswith("#"):
                self.line = self._next
                return text
        self.line = len(self._lines)
        raise self.fail(
            f"the file ends where {expected} should come: it is truncated, or a count is too large"
        )

    def peek(self) -> str:
        """Return the next line without going past it; empty at the end."""
        line, after = self.line, self._next
        try:
            return self.read("")
        except MeshFormatError:
            return ""
        finally:
            self.line, self._next = line, after

    def keyword(self, word: str) -> None:
        """Go past a line that must be this word."""
        text = self.read(f'the section "{word}"')
        if text != word:
            raise self.fail(
                f'"{word}" should come here, got "{shorten(text)}": the count of the section '
                "before may be wrong"
            )

    def label(self, name: str) -> str:
        """Return the text after "name:" on the next line."""
        text = self.read(f'"{name}: ..."')
        if not text.startswith(name + ":"):
            raise self.fail(f'"{name}: ..." should come here, got "{shorten(text)}"')
        return text[len(name) + 1 :].strip()

    def integer(self, text: str, what: str, least: int, most: int | None = None) -> int:
        """Convert a whole number between bounds."""
        if not _INTEGERS.fullmatch(text) or len(text.split()) != 1:
            raise self.fail(f'{what} must be a whole number, got "{shorten(text)}"')
        value = int(text)
        if value < least or (most is not None and value > most):
            bounds = f">= {least}" if most is None else f"from {least} to {most}"
            raise self.fail(f"{what} must be {bounds}, got {value}")
        return value

    def number(self, text: str, what: str) -> float:
        """Convert a finite number."""
        try:
            value = float(_plain(text))
        except ValueError:
            raise self.fail(f'{what} must be a number, got "{shorten(text)}"') from None
        if not isfinite(value):
            raise self.fail(f'{what} must be finite, got "{shorten(text)}"')
        return value

    def room(self, numbers: int, what: str) -> None:
        """Raise if the rest of the text is too short for ``numbers`` numbers, before allocation."""
        left = int(self._ends[-1] - self._ends[self._next])
        if 2 * numbers - 1 > left:
            raise self.fail(
                f"{what} need {numbers} numbers, but only {left} characters are left: the file is "
                "truncated, or a count is too large"
            )

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Number of characters before each line, and in all lines, with a line end for each."""
        return np.cumsum([0, *(len(line) + 1 for line in self._lines)])

    def integer_row(self, expected: str) -> list[str]:
        """Return the words of the next line, all whole numbers."""
        text = self.read(expected)
        if not _INTEGERS.fullmatch(text):
            raise self.fail(
                f'{expected} should come here, as whole numbers, got "{shorten(text)}": check the '
                "count of this section"
            )
        return text.split()

    def floats(self, count: int, what: str) -> NDArray[np.float64]:
        """Read lines until they have `count` numbers, and return the numbers (count,)."""
        self.room(count, what)
        words: list[str] = []
        start = self._next
        while len(words) < count:
            words += self.read(f"number {len(words) + 1} of {count} of {what}").split()
        if len(words) > count:
            raise self.fail(
                f"{what} need {count} numbers, but this line brings number {len(words)}: check the "
                "counts"
            )
        return self._convert(words, start, what)

    def remaining_floats(self, what: str, tag: str) -> NDArray[np.float64]:
        """Return all numbers (n,) up to the end of the file, or up to a line with the tag."""
        start, rest = self._next, self._lines[self._next :]
        for number, text in enumerate(rest):
            if text.strip() == tag:
                rest = rest[:number]
                break
        self._next += len(rest)
        self.line = self._next
        words = " ".join(text for text in rest if not text.lstrip().startswith("#")).split()
        return self._convert(words, start, what)

    def _convert(self, words: list[str], start: int, what: str) -> NDArray[np.float64]:
        try:
            _plain("".join(words))
            values = np.array(list(map(float, words)), dtype=np.float64)
        except ValueError:
            raise self._bad_float(start, what) from None
        if not np.isfinite(values).all():
            raise self._bad_float(start, what)
        return values

    def _bad_float(self, start: int, what: str) -> MeshError:
        """Find the first word since line `start` that is no finite number."""
        for number in range(start, self._next):
            text = self._lines[number].strip()
            for word in [] if text.startswith("#") else text.split():
                place = f'"{shorten(word)}" among {what}'
                try:
                    finite = isfinite(float(_plain(word)))
                except ValueError:
                    return self.fail(f"{place} is not a number: check the counts", number + 1)
                if not finite:
                    place = f"{self.name}, line {number + 1}: {place}"
                    return MeshGeometryError(f"{place} is not finite: give every node a position")
        return self.fail(f"{what} are no numbers")

    def end(self, tag: str) -> None:
        """Check that nothing follows but a line with the tag. An empty tag has no line.

        Without a tag, only the end of the last line tells that the last number is whole.
        """
        text = self.peek()
        if tag and text in ("", tag):
            self.read(f'the last line "{tag}"')
            text = self.peek()
        if text:
            self.read("")
            raise self.fail(
                f'the file should end here, got "{shorten(text)}": the count of the section before '
                "may be too small"
            )
        last = self._lines[-1]
        if not tag and last[-1:].strip() and not last.lstrip().startswith("#"):
            warnings.warn(
                f"{self.name}: its last line has no end, so the file may be cut within its last "
                "number: compare it with its source, and end the line",
                stacklevel=6,
            )


def _plain(text: str) -> str:
    """Return the text. Raise if only Python reads it as a number: 1_000, digits not in ASCII."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def shorten(text: str) -> str:
    """Return the beginning of a text, short enough for a message."""
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return printable(shown.encode("ascii", "backslashreplace").decode("ascii"))


def printable(text: str) -> str:
    """Return a text with an escape for each character that a terminal may obey, as repr has them.

    Readers give all pieces of a file that errors quote, and names that meshes keep, through it.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or category(c) == "Zs" else repr(c)[1:-1] for c in text)
