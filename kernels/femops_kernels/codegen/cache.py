"""Store of compiled kernels: cache folder, locks between processes, checks for damaged files."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from threading import Timer
from time import time
from typing import TypeVar

from femops_kernels.errors import CacheError, CacheWarning, KernelError, UnwritableError
from femops_kernels.exclusive import Reentrant

try:
    import grp
    import pwd
except ImportError:
    # Windows: access lists close the folders of a user to others; they are not checked
    _POSIX = False
else:
    _POSIX = True

_ELSEWHERE = "set FEMOPS_CACHE to a folder that only you can write"

_LARGEST = 1 << 26
"""Bytes, more than a kernel has. A sparse file on a disk may have any number."""

_MOST_LINKS = 40
"""Most symbolic links on the way to a folder, as in Linux."""


def private_folder(folder: Path) -> Path:
    """Real path of a private folder. It is created, with its parents, if it does not exist.

    New folders are accessible to this user alone.
    """
    if not _POSIX:
        folder.mkdir(parents=True, exist_ok=True)
        return folder.absolute()
    whole = folder.absolute()
    here, left, links = Path(whole.anchor), list(reversed(whole.parts[1:])), 0
    _check(here, os.lstat(here), on_the_way=True)
    while left:
        step = here / left.pop()
        found = _found_or_made(step)
        if not (stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise NotADirectoryError(f"'{step}' is no folder")  # before its owner is checked
        _check(step, found, on_the_way=bool(left) or stat.S_ISLNK(found.st_mode))
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise CacheError(f"'{folder}' leads through too many links: {_ELSEWHERE}")
            target = here / step.readlink()
            here, left = Path(target.anchor), [*left, *reversed(target.parts[1:])]
        else:
            here = here.parent if step.name == ".." else step
    return here


def read_private(path: Path) -> bytes:
    """Content of a file in a private folder that only this user and root can have written.

    Of a file that is larger than any of these, only the beginning, as of one that is damaged.
    """
    if _POSIX:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise CacheError(f"'{path}' is no plain file but a link, folder or pipe: remove it")
        _check(path, found)
    with path.open("rb") as file:  # room is made for all that is asked for
        return file.read(min(os.fstat(file.fileno()).st_size, _LARGEST))


def _found_or_made(folder: Path) -> os.stat_result:
    try:
        return os.lstat(folder)
    except FileNotFoundError:
        folder.mkdir(mode=0o700, exist_ok=True)  # another process may be quicker
        return os.lstat(folder)


def _check(path: Path, found: os.stat_result, *, on_the_way: bool = False) -> None:
    """Raise unless only trusted users can write `path`, or rename entries of it if `on_the_way`."""
    trusted = {os.geteuid(), 0}
    if on_the_way:
        # in a user namespace root may have another number: that of the root folder's owner
        trusted.add(os.lstat("/").st_uid)
    if found.st_uid not in trusted:
        raise CacheError(
            f"'{path}' belongs to {_name(found.st_uid)}, who could put code there that femops runs "
            f"as {_name(os.geteuid())}: {_remedy(path)}"
        )
    if stat.S_ISLNK(found.st_mode) or (on_the_way and found.st_mode & stat.S_ISVTX):
        return
    others = found.st_mode & stat.S_IWOTH
    if others or (found.st_mode & stat.S_IWGRP and not _own_group(path, found.st_gid)):
        # the owner of a folder with the sticky bit wants others to write it
        mine = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
        raise CacheError(
            f"{'all users' if others else 'its group'} can write '{path}', and put code there that "
            f"femops runs as {_name(os.geteuid())}: "
            + (f"chmod go-w '{path}', or " if mine else "")
            + _remedy(path)
        )


def _remedy(path: Path) -> str:
    return _ELSEWHERE if path.is_dir() else f"remove it, or {_ELSEWHERE}"


def _own_group(path: Path, group: int) -> bool:
    """True if this user is the only member of a group.

    Many systems give each user a group of the same name, which can write the user's new files.
    If a file has an access list, its group bits also stand for other users.
    """
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    if (entry.gr_gid, entry.gr_name) != (user.pw_gid, user.pw_name):
        return False
    # a number may have several entries; those whose first group it is need not be listed
    groups = [entry, *(each for each in grp.getgrall() if each.gr_gid == entry.gr_gid)]
    members = {name for each in groups for name in each.gr_mem}
    members |= {each.pw_name for each in pwd.getpwall() if each.pw_gid == entry.gr_gid}
    return members <= {user.pw_name} and not _has_access_list(path)


def _has_access_list(path: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (AttributeError, OSError):  # no such system or file system
        return False


def _name(user: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user {user}"


try:
    import fcntl
except ImportError:
    # Windows: two processes may compile the same kernel twice, which is slow but harmless
    fcntl = None  # type: ignore[assignment]


Result = TypeVar("Result")

TABLES = "tuning.json", "limits.json"
"""Tables of measurements. A temporary cache folder begins with copies of them."""

MOST_KEPT = 5000
"""Number of kernels and traces in a cache folder, about 700 MB, above which old ones go."""

_TRACE = re.compile("trace_[0-9a-f]{24}")
_UNFINISHED = "femops-", ".tmp"
"""Begin and end of the names of files that are being written."""

_DAY, _LONG = 86400.0, 30.0  # seconds
_seals = count()  # since this process began

_temporary: set[Path] = set()
_refusals: list[str] = []  # the system's reasons for no longer writing to the wanted folder
_choosing = Reentrant()


def _wanted() -> Path:
    """Folder for compiled kernels according to the environment, which may not be writable."""
    chosen, base = os.environ.get("FEMOPS_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return Path(base) / "femops" if base else Path("~/.cache/femops").expanduser()


def cache_folder() -> Path:
    """Folder of compiled kernels, which nobody but this user and root can write.

    It is ``$FEMOPS_CACHE``, else ``$XDG_CACHE_HOME/femops``, else ``~/.cache/femops``.  If the
    system refuses to write there, now or later (see `keep`), this process warns with a
    ``CacheWarning`` and uses a temporary folder until it ends.
    """
    if not _folder().is_dir():  # a temporary folder, which the parent of this process has removed
        _folder.cache_clear()
    return _folder()


def is_temporary(folder: Path) -> bool:
    """True if this process removes the folder at its end."""
    return folder in _temporary


def keep(work: Callable[[Path], Result]) -> Result:
    """Call a function that writes to the cache folder, and return its result.

    If the system refuses to write there (the disk is full, a quota is used up, the file system has
    become read-only), the function is called again with a temporary folder.
    """
    folder = cache_folder()
    try:
        return work(folder)
    except UnwritableError as error:
        with _choosing:
            if folder == cache_folder():  # another thread may have changed the folder
                if is_temporary(folder):
                    raise
                reason = getattr(error.__cause__, "strerror", None) or error.__cause__
                _refusals.append(f"'{folder}': {reason}")
                _folder.cache_clear()
        return work(cache_folder())


@cache
def _folder() -> Path:
    if _refusals:
        return _temporary_folder(_refusals[-1])
    try:
        folder = private_folder(_wanted())
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except CacheError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        return _temporary_folder(error)


def _temporary_folder(refusal: Exception | str) -> Path:
    """Make a folder that this process removes when it ends. Forked processes leave it alone."""
    from multiprocessing.util import Finalize

    try:
        folder = Path(tempfile.mkdtemp(prefix="femops-"))
    except OSError as error:
        raise CacheError(
            f"no folder for compiled kernels can be written: set FEMOPS_CACHE ({error})"
        ) from error
    # atexit would not do: children of multiprocessing end without it.
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=-1)
    private_folder(folder)
    _temporary.add(folder)
    with suppress(OSError, RuntimeError):
        for name in TABLES:
            write_whole(folder / name, read_private(private_folder(_wanted()) / name))
    message = (
        f"the cache folder can't be written ({refusal}): kernels and settings are kept in {folder} "
        "until this process ends; make room, or set FEMOPS_CACHE to a folder that lasts"
    )
    warnings.warn(message, CacheWarning, stacklevel=2)
    return folder


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Turn errors of the system into an `UnwritableError` that names the folder."""
    try:
        yield
    except KernelError:
        raise
    except OSError as error:
        raise UnwritableError(
            f"compiled kernels can't be kept in '{folder}' ({error.strerror or error}): make room "
            "there, or set FEMOPS_CACHE to another folder"
        ) from error


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file between processes, so that no two compile the same kernel.

    Without ``wait`` it is an error if another process holds the lock.
    """
    with _kept(path.parent), ExitStack() as stack:
        while True:
            # for reading too: a writer of a pipe waits for a reader
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # others could lock it for ever
            stack.callback(os.close, handle)
            if fcntl is not None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not wait:
                        raise
                    _wait(handle, path)
                # a process forked meanwhile has the handle too
                stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)
            with suppress(FileNotFoundError):  # removed, with an old kernel, before it was locked
                if os.path.samestat(os.fstat(handle), path.stat()):
                    break
        yield


def _wait(handle: int, path: Path) -> None:
    """Wait for the lock of a file. Log a message if another process holds it for long."""
    message = "femops waits for another process, which compiles or was stopped, to release %s"
    notice = Timer(_LONG, logging.getLogger("femops").warning, (message, path))
    notice.daemon = True
    notice.start()
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    finally:
        notice.cancel()


def write_once(path: Path, text: str) -> None:
    """Write a source file atomically, unless it exists with this text."""
    try:
        if read_private(path) == text.encode():
            return
    except CacheError:
        raise
    except OSError:
        pass
    write_whole(path, text.encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes see all of it or nothing."""
    with _kept(path.parent):
        handle, temporary = tempfile.mkstemp(_UNFINISHED[1], _UNFINISHED[0], path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _compiled(path: Path) -> list[Path]:
    """Compiled files of a kernel: for the host, or of the CUDA compiler."""
    files = map(path.with_suffix, (".kernel", ".cubin", ".log"))
    return [file for file in files if file.exists()]


def _record(path: Path) -> Path:
    """Path of the checksums of a kernel's compiled files, in the format of ``sha256sum``."""
    return path.with_suffix(".sha256")


def _digest(file: Path) -> str:
    return hashlib.sha256(read_private(file)).hexdigest()


def seal(path: Path) -> None:
    """Record the checksums of a kernel's compiled files."""
    lines = [f"{_digest(file)}  {file.name}\n" for file in _compiled(path)]
    write_whole(_record(path), "".join(lines).encode())
    if next(_seals) % 64 == 0:  # it reads the folder
        with suppress(OSError):
            _remove_old(path.parent)


def _remove_old(folder: Path) -> None:
    """Remove the kernels and traces used least recently, if there are more than `MOST_KEPT`.

    Files whose writers were killed are removed after a day. A user may have chosen a folder with
    other files: these have neither the names of traces nor locks.
    """
    files: dict[str, list[str]] = {}
    used: list[tuple[float, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if re.fullmatch(r"\w{8}".join(_UNFINISHED), entry.name):
                with suppress(OSError):  # its writer, or another process, was quicker
                    if time() - entry.stat().st_mtime > _DAY:
                        Path(entry).unlink()
                continue
            stem, _, suffix = entry.name.partition(".")
            files.setdefault(stem, []).append(entry.name)
            if suffix == "sha256" or _TRACE.fullmatch(stem):
                used.append((entry.stat().st_mtime, stem))
    used = [one for one in used if _TRACE.fullmatch(one[1]) or f"{one[1]}.lock" in files[one[1]]]
    if len(used) <= MOST_KEPT:
        return
    for _, stem in sorted(used)[: len(used) - MOST_KEPT * 3 // 4]:
        # a process that compiles or loads the kernel holds its lock
        with suppress(OSError), locked(folder / f"{stem}.lock", wait=False):
            # the record goes first: without it no process takes the others for whole
            for name in sorted(files[stem], key=lambda name: not name.endswith(".sha256")):
                (folder / name).unlink(missing_ok=True)


def _recorded(path: Path) -> dict[Path, str]:
    """Checksums of a kernel's compiled files by path; empty before `seal`.

    The result is empty, too, if a line of the record has another format: a damaged record may have
    lost lines.
    """
    try:
        lines = read_private(_record(path)).decode(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    name = rf"{re.escape(path.stem)}\.[^/\0]{{1,200}}"
    matches = [re.fullmatch(rf"([0-9a-f]{{64}})  ({name})\n", line) for line in lines]
    return {} if None in matches else {path.parent / one[2]: one[1] for one in matches if one}


def usable(path: Path) -> bool:
    """True if the compiled files of a kernel are those that `seal` recorded.

    If not, the files are removed, with a ``CacheWarning`` if they were damaged. A temporary folder
    then gets those of the wanted folder, if that one has them: it may only be closed for writing,
    as the image of a container.
    """
    # no checksums: files are missing, or the compiler was stopped before `seal`, which is no damage
    known = _recorded(path)
    if known and all(_is_whole(file, digest) for file, digest in known.items()):
        note_use(_record(path))
        return True
    if known:
        warn_damaged(path)
    discard(path)
    return is_temporary(path.parent) and _copied(path)


def note_use(file: Path) -> None:
    """Set the time of a file, at most once a day. Systems need not note when files are read."""
    with suppress(OSError):
        if time() - file.stat().st_mtime > _DAY:
            os.utime(file)


def warn_damaged(path: Path) -> None:
    """Warn that a kernel is compiled again."""
    message = f"compiled kernel {path.stem} in {path.parent} was damaged: compiled again"
    warnings.warn(message, CacheWarning, stacklevel=6)


def _copied(path: Path) -> bool:
    """Copy a kernel's compiled files from the wanted folder. True if they are there, and whole."""
    with suppress(OSError, RuntimeError):
        there = private_folder(_wanted()) / path.name
        known = _recorded(there)
        if known and all(_is_whole(file, digest) for file, digest in known.items()):
            for file in known:
                write_whole(path.with_name(file.name), read_private(file))
            seal(path)
            return True
    return False


def _is_whole(file: Path, digest: str) -> bool:
    try:
        return _digest(file) == digest
    except FileNotFoundError:
        return False


def discard(path: Path) -> None:
    """Remove a kernel's compiled files and their checksums."""
    for file in [*_compiled(path), _record(path)]:
        file.unlink(missing_ok=True)
