"""Changes of a file that take place at once: all of them, or none if the program is killed.

HDF5 overwrites heads of arrays in no order. Killed in between, it leaves a file that cannot be
read. So overwritten bytes are held in memory, and go into a journal before they go to the file.
The journal is a file beside it, which is there only while the file is overwritten.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

from femops.errors import FileError
from femops.io.atomic import fill, replacing, to_disk

_PAGE = 4096  # bytes that are held together
_LENGTH = struct.Struct("<Q")  # length of the file
_SUM = struct.Struct("<I")  # checksum of the length and of the pages
_PLACE = struct.Struct("<Q")  # before each page


@final
class JournaledFile(io.RawIOBase):
    """File whose bytes up to its present end do not change before `commit`.

    New bytes are written behind the present end at once.
    """

    def __init__(self, path: Path, end: int) -> None:
        super().__init__()
        self._path, self._old_end, self._place = path, end, 0
        self._file: IO[bytes] = path.open("r+b", buffering=0)
        self._length = path.stat().st_size
        self._pages: dict[int, bytearray] = {}

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._length}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._place)
        count = min(len(view), max(self._length - self._place, 0))
        done = 0
        while done < count:
            part = self._file.readinto(view[done:count])  # type: ignore[attr-defined]
            if not part:
                break
            done += part
        for number, start, stop in self._old_pages(self._place, self._place + done):
            if number in self._pages:
                inside = slice(start - number * _PAGE, stop - number * _PAGE)
                view[start - self._place : stop - self._place] = self._pages[number][inside]
        self._place += done
        return done

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        begin, end = self._place, self._place + len(view)
        for number, start, stop in self._old_pages(begin, end):
            if number not in self._pages:
                self._file.seek(number * _PAGE)
                self._pages[number] = bytearray(self._file.read(_PAGE).ljust(_PAGE, b"\0"))
            inside = slice(start - number * _PAGE, stop - number * _PAGE)
            self._pages[number][inside] = view[start - begin : stop - begin]
        new = max(begin, self._old_end)
        if end > new:
            self._file.seek(new)
            rest = view[new - begin :]
            while len(rest):
                rest = rest[self._file.write(rest) :]
        self._place, self._length = end, max(self._length, end)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """See `io.IOBase`. Old bytes are cut off by `commit`."""
        place, end = self._place, self._place if size is None else size
        self._place = end
        self.write(bytes(max(min(self._length, self._old_end) - end, 0)))  # zeros if it grows again
        self._place, self._length = place, end
        self._file.truncate(max(self._length, self._old_end))
        return self._length

    def _old_pages(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Page numbers, with the ends of their parts, of the old bytes in a range."""
        end = min(end, self._old_end)
        for number in range(begin // _PAGE, -(-end // _PAGE) if begin < end else 0):
            yield number, max(begin, number * _PAGE), min(end, (number + 1) * _PAGE)

    def commit(self) -> None:
        """Overwrite old bytes, by way of the journal."""
        os.fsync(self._file.fileno())
        entries = b"".join(  # without new bytes in the last page
            _PLACE.pack(number * _PAGE) + bytes(page[: self._old_end - number * _PAGE])
            for number, page in sorted(self._pages.items())
        )
        length, journal = _LENGTH.pack(self._length), _journal(self._path)
        with replacing(journal) as temporary:
            fill(temporary, length + _SUM.pack(zlib.crc32(length + entries)) + entries)
            to_disk(temporary)
        to_disk(journal.parent)
        recover(self._path)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _journal(path: Path) -> Path:
    """Path of the journal of a file: the same for all links to the file."""
    real = Path(os.path.realpath(path))
    return real.with_name(f".{real.name}-femops-journal")


def _check_own(journal: Path, path: Path) -> None:
    """Raise if a journal is no plain file, or of neither this user nor the owner of the file.

    In a folder that others can write, as /tmp, they could have put it there.
    """
    found, own = journal.lstat(), path.stat().st_uid
    user = getattr(os, "geteuid", lambda: own)()  # Windows has no numbers of users
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (own, user):
        raise FileError(
            f"'{journal}' is no plain file, or has another owner than '{path}', whose changes it "
            "should hold: remove it, or let its owner continue the series"
        )


def recover(path: Path) -> None:
    """Finish the change that a file's journal holds, if there is a journal, and remove it."""
    journal = _journal(path)
    if not os.path.lexists(journal):
        return
    if path.exists():
        _check_own(journal, path)
        with journal.open("rb") as entries:
            head = entries.read(_LENGTH.size).ljust(_LENGTH.size, b"\0")
            (checksum,) = _SUM.unpack(entries.read(_SUM.size).ljust(_SUM.size, b"\0"))
            (length,), found = _LENGTH.unpack(head), zlib.crc32(head)
            for entry in _entries(entries):
                found = zlib.crc32(entry, found)
            # a change never makes a file longer here: new bytes were written before the journal
            if found != checksum or not 0 < length <= path.stat().st_size:
                raise FileError(
                    f"'{journal}' is damaged, so the change of '{path}' that it holds cannot be "
                    "finished: take a copy of the series, or remove the journal and check the file"
                )
            entries.seek(_LENGTH.size + _SUM.size)
            with path.open("r+b") as file:
                for entry in _entries(entries):
                    (place,) = _PLACE.unpack(entry[: _PLACE.size].ljust(_PLACE.size, b"\xff"))
                    if place < length:
                        file.seek(place)
                        file.write(entry[_PLACE.size :])
                file.truncate(length)
                file.flush()
                os.fsync(file.fileno())
    journal.unlink()


def _entries(journal: IO[bytes]) -> Iterator[bytes]:
    """Read the entries of a journal, from its place on: a place and a page each."""
    return iter(lambda: journal.read(_PLACE.size + _PAGE), b"")


@contextmanager
def journaled(path: Path, end: int) -> Iterator[JournaledFile]:
    """Open a file for changes that all take place together when the block ends."""
    file = JournaledFile(path, end)
    try:
        yield file
        file.commit()
    except BaseException:
        if not os.path.lexists(_journal(path)):  # or `recover` does the rest
            os.truncate(path, end)
        raise
    finally:
        file.close()
