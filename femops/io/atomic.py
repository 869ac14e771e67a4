"""Files that appear under their final name only when complete."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from femops.errors import FileError
from femops_common.arguments import shown
from femops_meshes.formats.temporary import temporary_file, unlinked

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


LONGEST_WAIT = 600.0
"""Seconds for which a program waits for the lock of a folder."""


def checked_path(path: str | os.PathLike[str], *suffixes: str) -> Path:
    """Return `path` after a check of its suffix and of its folder."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise FileError(f"the path is {shown(path)}: give the name of a file, a text or a Path")
    target = Path(path)
    if "\0" in str(target):
        raise FileError(f"cannot write {str(target)!r}: leave the zero character out of the name")
    if target.suffix.lower() not in suffixes:
        listed = " or ".join([", ".join(suffixes[:-1]), suffixes[-1]][not suffixes[:-1] :])
        raise FileError(
            f"'{target}' does not end in {listed}: name it '{target.stem}{suffixes[0]}'"
        )
    with refused(target):
        target.absolute()  # fails if the current folder was removed
        if not target.parent.is_dir():
            raise FileError(
                f"cannot write '{target}': there is no folder '{target.parent}', make it"
            )
        if target.exists() and not target.is_file():
            what = "a folder" if target.is_dir() else "a pipe or device"
            raise FileError(f"cannot write '{target}': this is {what}, choose another name")
    return target


def check_writable(target: Path) -> None:
    """Check, before long work, that a file can be made in the folder of `target`."""
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise refusal(target, error) from error


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed at the end."""
    try:
        made = tempfile.TemporaryDirectory(prefix="femops-")
    except OSError as error:
        raise FileError(
            f"no temporary folder can be made ({error}): make room, or set TMPDIR to another folder"
        ) from error
    with made as folder:
        yield Path(folder)


@contextmanager
def refused(target: Path) -> Iterator[None]:
    """Convert an OSError inside the block to a FileError: `target` cannot be written."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise refusal(target, error) from error


def refusal(target: Path, error: OSError) -> FileError:
    """Error that reports the system's message about writing a file."""
    reason = error.strerror or str(error)
    return FileError(f"cannot write '{target}': {reason}; choose another folder or name")


def make_folder(folder: Path) -> None:
    """Make a folder unless it exists."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder '{folder}': {error.strerror}") from error
    if is_others_link(folder):
        raise FileError(
            f"'{folder}' is a link of another user, which could lead to any folder of yours: "
            "remove it, or choose another name"
        )


def is_others_link(folder: Path) -> bool:
    """True if a folder is a symbolic link that neither this user nor root has made."""
    owner = folder.lstat().st_uid  # on Windows 0
    return folder.is_symlink() and owner > 0 and owner != os.geteuid()


def remove(files: Iterable[Path]) -> None:
    """Remove those of the files that exist."""
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"cannot remove '{file}': {error.strerror}") from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary file in the folder of `target`. When it is complete, rename it to `target`.

    If the program stops, `target` is either the old file or the complete new file.
    """
    with refused(target), temporary_file(target) as temporary:
        yield temporary
        os.replace(temporary, target)


@contextmanager
def writing(target: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a temporary file as `replacing` does, open. No link in its place is followed.

    A `durable` file is on the disk before it is renamed.
    """
    with replacing(target) as temporary, open(temporary, "wb", opener=unlinked) as file:
        yield file
        if durable:
            file.flush()
            os.fsync(file.fileno())


def fill(temporary: Path, content: str | bytes) -> None:
    """Write a temporary file, and follow no link in its place."""
    with open(temporary, "wb", opener=unlinked) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Exclude other processes from a folder. Wait until the process that has it leaves it.

    Does nothing on Windows, and on file systems that do not lock folders.
    """
    handle = None
    try:
        try:
            with suppress(OSError):
                handle = None if fcntl is None else os.open(folder, os.O_RDONLY)
            if handle is not None:
                _lock(handle, folder)
            yield
        finally:
            _unlock(handle)
    finally:  # once more, as an interrupt may come before any line
        _unlock(handle)
        if handle is not None:
            os.close(handle)


def _unlock(handle: int | None) -> None:
    """Unlock an open folder, whose handle a process that was forked meanwhile has too."""
    if handle is not None:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def _lock(handle: int, folder: Path) -> None:
    """Lock an open folder. Any user who can read it may hold the lock: the waiting has an end."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                return None  # the file system does not lock folders
            if time.monotonic() > end:
                raise FileError(
                    f"'{folder}' is locked by another program for {LONGEST_WAIT:g} s: end that "
                    "program, or choose another folder"
                ) from None
            time.sleep(0.01)


def to_disk(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk.

    For folders this works on POSIX systems only, and needs the right to list the folder.
    """
    if path.is_dir() and not (os.name == "posix" and os.access(path, os.R_OK)):
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
