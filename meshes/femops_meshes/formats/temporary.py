"""Temporary files, which are removed later if their writer was killed."""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:
    # on Windows files of killed writers are not removed, as nothing tells whether a writer lives
    _LOCKS = False
else:
    _LOCKS = True

_HERE = f"{zlib.crc32(platform.node().encode(errors='surrogateescape')) % 0xFFFF:04x}"
"""Hexadecimal number below ffff for this machine, in names of files."""

_MANY = "ffff"
"""Number in the name of a file that several machines use."""

_NAME = re.compile(r"\..{0,40}-femops-([0-9a-f]{4})-[0-9a-f]{8}(\..{0,19})?", re.DOTALL)

_DAY = 86400.0

_searched: set[tuple[int, Path]] = set()
"""Pairs of process (there may be forks) and folder in which it has removed abandoned files."""


@contextmanager
def temporary_file(target: Path, shared: str | None = None, mode: int = 0o666) -> Iterator[Path]:
    """Yield a new file in the folder of `target`. Remove it at the end unless it was renamed.

    First, files that killed writers left in the folder are removed. A writer holds a lock on its
    file, which the system releases when the writer ends in any way. Not all file systems show locks
    to other machines. So files of other machines are removed a day after their last change.
    """
    _remove_abandoned(target.parent)
    path, handle = _made(target, shared, mode)
    try:
        yield path
    finally:
        with suppress(OSError):  # or another user's folder in its place would hide the error
            path.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def regular(path: str, flags: int) -> int:
    """Opener of `open` for regular files. A pipe or device would let us wait, or read, for ever.

    The open file is checked, as another may have taken the place of one that was checked before.
    """
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file")


def unlinked(path: str, flags: int) -> int:
    """Opener like `regular` that follows no symbolic link.

    Who can write the folder could put a link or pipe in place of a temporary file.
    """
    return regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


def shared_name(target: Path, shared: str) -> Path:
    """Path of a temporary file for `target` that several machines write together."""
    return target.with_name(f".{target.stem[:40]}-femops-{_MANY}-{shared}")


def _made(target: Path, shared: str | None, mode: int) -> tuple[Path, int | None]:
    """Make a new file. Return its path and the handle that holds its lock, if there are locks."""
    while True:
        ending = f"{_HERE}-{secrets.token_hex(4)}{target.suffix[:20]}"
        path = target.with_name(f".{target.stem[:40]}-femops-{ending}")
        if shared is not None:
            path = shared_name(target, shared)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        if not _LOCKS:
            os.close(handle)
            return path, None
        locked = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # or the file system has no locks
            locked = not isinstance(error, BlockingIOError)
        if locked and os.fstat(handle).st_nlink:
            return path, handle
        # another process took it for abandoned, or holds its lock to let us wait for ever
        path.unlink(missing_ok=True)
        os.close(handle)


def _remove_abandoned(folder: Path) -> None:
    """Remove files whose writers have ended. A process searches each folder once."""
    here = os.getpid(), folder.absolute()
    if not _LOCKS or here in _searched:
        return
    _searched.add(here)
    with suppress(OSError), os.scandir(folder) as entries:
        found = [(folder / entry.name, _NAME.fullmatch(entry.name)) for entry in entries]
        for path, match in found:
            if match is not None:
                with suppress(OSError):  # its writer was quicker, or it is another user's
                    _remove_if_abandoned(path, match[1])


def _remove_if_abandoned(path: Path, machine: str) -> None:
    old = time.time() - path.stat().st_mtime > _DAY
    if machine != _HERE and not old:
        return
    handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not old or isinstance(error, BlockingIOError):
                return  # it lives, or, on a file system without locks, may live
        path.unlink()
    finally:
        os.close(handle)
