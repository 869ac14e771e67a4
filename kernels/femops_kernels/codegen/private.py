"""Checks that no other user can have written a folder or file: compiled kernels are run as code.

The checks are those of OpenSSH's ``StrictModes`` for keys.  A user who can write a folder can
replace its entries.  So each folder from the root on, and each symbolic link on the way, must
belong to this user or to root, and neither its group nor others may write it.  In a folder with
the sticky bit, such as ``/tmp``, only the owner of an entry can rename it.  So others may write
such a folder if it is a parent of the checked one.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from femops_kernels.errors import CacheError

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
