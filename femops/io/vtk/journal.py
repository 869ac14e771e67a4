"""Changes of a file that take place at once: all of them, or none if the program is killed.

HDF5 overwrites heads of arrays in no order. Killed in between, it leaves a file that cannot be
read. So overwritten bytes are held in memory, and go into a journal before they go to the file.
The journal is a file beside it, which is there only while the file is overwritten. It has the bytes
before the change too: a journal that a killed program left is for no other file of that name.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from femops.errors import FileError
from femops.io.atomic import remove, to_disk, writing
from femops_meshes.formats.temporary import unlinked

_PAGE = 4096  # bytes that are held together
_MAGIC = b"femops\x89\n"
_HEAD = struct.Struct("<8sQ")  # magic; length of the file
_SUM = struct.Struct("<I")  # checksum of the head and of the entries
_PLACE = struct.Struct("<Q")  # before the old and the new bytes of each page


@final
class JournaledFile(io.RawIOBase):
    """File whose bytes up to its present end do not change before `commit`.

    New bytes are written behind the present end at once.
    """

    def __init__(self, file: IO[bytes], journal: Path, end: int) -> None:
        super().__init__()
        self._file, self._journal, self._old_end, self._place = file, journal, end, 0
        self._length = os.fstat(file.fileno()).st_size
        self._pages: dict[int, bytearray] = {}
        self.overwritten = False  # true from when old bytes change: the file must keep the new ones

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
        entries = b"".join(
            self._entry(number * _PAGE, page) for number, page in sorted(self._pages.items())
        )
        head = _HEAD.pack(_MAGIC, self._length)
        with writing(self._journal, durable=True) as file:
            file.write(head + _SUM.pack(zlib.crc32(head + entries)) + entries)
        to_disk(self._journal.parent)
        self.overwritten = True
        _finish(self._journal, self._file)

    def _entry(self, place: int, page: bytearray) -> bytes:
        """Entry of the journal for a page, without the page's bytes behind the old end."""
        size = min(_PAGE, self._old_end - place)
        self._file.seek(place)
        return _PLACE.pack(place) + self._file.read(size).ljust(size, b"\0") + bytes(page[:size])


def _real(path: Path) -> tuple[Path, Path]:
    """Paths of a file itself and of its journal: the same for all links to the file."""
    real = Path(os.path.realpath(path))
    return real, real.with_name(f".{real.name}-femops-journal")


def _opened_journal(journal: Path, file: IO[bytes]) -> IO[bytes]:
    """Open a journal if it is a plain file, and of this user or of the owner of the file.

    In a folder that others can write, as /tmp, they could have put it there.
    """
    found, own = journal.lstat(), os.fstat(file.fileno()).st_uid
    user = getattr(os, "geteuid", lambda: own)()  # Windows has no numbers of users
    if stat.S_ISREG(found.st_mode) and found.st_uid in (own, user):
        entries = open(journal, "rb", opener=unlinked)  # noqa: SIM115
        if os.path.samestat(os.fstat(entries.fileno()), found):
            return entries
        entries.close()
    raise FileError(
        f"'{journal}' is no plain file, or has another owner than '{file.name}', whose changes it "
        "should hold: remove it, or let its owner continue the series"
    )


def recover(path: Path) -> None:
    """Finish the change that a file's journal holds, if there is a journal, and remove it."""
    real, journal = _real(path)
    if not os.path.lexists(journal):
        return
    if real.exists():
        with open(real, "r+b", opener=unlinked) as file:
            _finish(journal, file)
    else:
        journal.unlink()


def discard_journal(path: Path) -> None:
    """Remove the journal of a file that was replaced, if there is one."""
    remove([_real(path)[1]])


def _finish(journal: Path, file: IO[bytes]) -> None:
    """Make the change that a journal holds in an open file, and remove the journal.

    The file is not opened again: another user could put a link in its place meanwhile.
    """
    with _opened_journal(journal, file) as entries:
        head = entries.read(_HEAD.size).ljust(_HEAD.size, b"\0")
        (checksum,) = _SUM.unpack(entries.read(_SUM.size).ljust(_SUM.size, b"\0"))
        (magic, length), found = _HEAD.unpack(head), zlib.crc32(head)
        for entry in _entries(entries):
            found = zlib.crc32(entry, found)
        if (magic, found) != (_MAGIC, checksum):
            raise FileError(
                f"'{journal}' is damaged, so the change of '{file.name}' that it holds cannot be "
                "finished: take a copy of the series, or remove the journal and check the file"
            )
        with os.fdopen(os.dup(file.fileno()), "r+b") as target:
            entries.seek(_HEAD.size + _SUM.size)
            # a change never makes a file longer here: new bytes were written before the journal
            same = 0 < length <= os.fstat(file.fileno()).st_size
            if not same or not all(_holds(target, *_parts(each)) for each in _entries(entries)):
                raise FileError(
                    f"'{journal}' holds the change of another file than '{file.name}', which was "
                    "replaced since then: bring back the file that was beside the journal, or "
                    "remove the journal if this file is whole"
                )
            entries.seek(_HEAD.size + _SUM.size)
            for place, _, new in map(_parts, _entries(entries)):
                if place < length:
                    target.seek(place)
                    target.write(new)
            target.truncate(length)
            target.flush()
            os.fsync(target.fileno())
    journal.unlink()


def _entries(journal: IO[bytes]) -> Iterator[bytes]:
    """Read the entries of a journal, from its place on. The last page may be shorter."""
    return iter(lambda: journal.read(_PLACE.size + 2 * _PAGE), b"")


def _parts(entry: bytes) -> tuple[int, bytes, bytes]:
    """Place, old bytes and new bytes of an entry."""
    half = (len(entry) - _PLACE.size) // 2
    return _PLACE.unpack_from(entry)[0], entry[_PLACE.size : -half], entry[-half:]


def _holds(file: IO[bytes], place: int, old: bytes, new: bytes) -> bool:
    """True if each byte of a file is the old or the new one: it may be half overwritten."""
    if place >= os.fstat(file.fileno()).st_size:  # the change has cut it off already
        return True
    file.seek(place)
    found = np.frombuffer(file.read(len(new)), np.uint8)
    before, after = (np.frombuffer(part, np.uint8)[: len(found)] for part in (old, new))
    return bool(((found == before) | (found == after)).all())


@contextmanager
def journaled(path: Path, reserve: Callable[[IO[bytes]], object]) -> Iterator[JournaledFile]:
    """Open a file for changes that all take place together when the block ends.

    First `reserve` may make the file longer, which is no change.
    """
    real, journal = _real(path)
    with open(real, "r+b", buffering=0, opener=unlinked) as file:
        end = os.fstat(file.fileno()).st_size
        changed = None
        try:
            reserve(file)
            changed = JournaledFile(file, journal, end)
            yield changed
            changed.commit()
        except BaseException:
            # an interrupt may come when the change is complete, and its journal removed
            overwritten = changed is not None and changed.overwritten
            if not overwritten and not os.path.lexists(journal):  # or `recover` does the rest
                file.truncate(end)
            raise
