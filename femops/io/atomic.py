"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from femops.errors import FileError
from femops_meshes.formats.temporary import temporary_file


def checked_path(path: str | os.PathLike[str], *suffixes: str) -> Path:
    """Return `path` if it can be written: it has this suffix, and its folder exists.

    Raises
    ------
    FileError
        Another suffix, no such folder, a name that the system refuses, or `path` is a folder.
    """
    target = Path(path)
    if "\0" in str(target):
        raise FileError(f"cannot write {str(target)!r}: there is a zero in it, choose another name")
    if target.suffix.lower() not in suffixes:
        raise FileError(
            f"'{target}' does not end in {' or '.join(suffixes)}: name it "
            f"'{target.stem}{suffixes[0]}'"
        )
    with refused(target):
        if not target.parent.is_dir():
            raise FileError(
                f"cannot write '{target}': there is no folder '{target.parent}', make it"
            )
        if target.is_dir():
            raise FileError(f"cannot write '{target}': this is a folder, choose another name")
    return target


def check_writable(target: Path) -> None:
    """Check that a file can be made beside `target`, before long work whose result it will hold.

    Raises
    ------
    FileError
        The system refuses.
    """
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise refusal(target, error) from error


@contextmanager
def refused(target: Path) -> Iterator[None]:
    """Turn an error of the system inside into the error that `target` cannot be written.

    Raises
    ------
    FileError
        It is.
    """
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
    """Make a folder unless it is there.

    Raises
    ------
    FileError
        The system refuses.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder '{folder}': {error.strerror}") from error


def remove(files: Iterable[Path]) -> None:
    """Remove the files that exist.

    Raises
    ------
    FileError
        The system refuses.
    """
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"cannot remove '{file}': {error.strerror}") from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary file beside `target`, and move it there once it is complete.

    Whatever stops the writer, `target` is either what it was before or the whole new file.

    Raises
    ------
    FileError
        The system refuses to write or to move the file.
    """
    with refused(target), temporary_file(target) as temporary:
        yield temporary
        os.replace(temporary, target)


def to_disk(path: Path) -> None:
    """Wait until the system has written a file, or the names that a folder has.

    Only POSIX systems can be asked to write names.
    """
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
