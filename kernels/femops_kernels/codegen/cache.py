"""Store of compiled kernels: cache folder, locks between processes, damage control."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from femops_kernels.errors import CacheError, CacheWarning

try:
    import fcntl
except ImportError:
    # Windows: two processes may compile the same kernel twice, which is slow but harmless
    fcntl = None  # type: ignore[assignment]


def _candidates() -> list[Path]:
    chosen = os.environ.get("FEMOPS_CACHE")
    if chosen:
        return [Path(chosen)]
    base = os.environ.get("XDG_CACHE_HOME")
    return [Path(base) / "femops" if base else Path.home() / ".cache" / "femops"]


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def cache_folder() -> Path:
    """Folder of compiled kernels.

    ``$FEMOPS_CACHE``, else ``$XDG_CACHE_HOME/femops``, else ``~/.cache/femops``.  Where that
    can't be written, a temporary folder of this process is used and a ``CacheWarning`` says so.

    Raises
    ------
    CacheError
        If no folder at all can be written.
    """
    for folder in _candidates():
        if _writable(folder):
            return folder
    try:
        folder = Path(tempfile.mkdtemp(prefix="femops-"))
    except OSError as error:
        raise CacheError(
            f"no folder for compiled kernels can be written: set FEMOPS_CACHE ({error})"
        ) from error
    message = (
        f"{_candidates()[0]} can't be written: kernels are compiled anew in {folder}; "
        "set FEMOPS_CACHE to keep them"
    )
    warnings.warn(message, CacheWarning, stacklevel=2)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, so that no kernel is compiled twice at once."""
    with path.open("a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_once(path: Path, text: str) -> None:
    """Write a source file atomically, unless it exists with this text.

    Numba recognises its compiled files by the source's time stamp and size: the file is not
    touched without need.
    """
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except (OSError, UnicodeDecodeError):
        pass
    write_whole(path, text.encode())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def _compiled(path: Path) -> list[Path]:
    """Files of Numba for a kernel in Python, of the CUDA compiler for one in C++."""
    files = (path.parent / "__pycache__").glob(f"{path.stem}.*")
    ours = [p for p in files if p.suffix in (".nbi", ".nbc", ".pyc")]
    ours += [p for p in map(path.with_suffix, (".cubin", ".log")) if p.exists()]
    return sorted(ours)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in _compiled(path):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def seal(path: Path) -> None:
    """Record the checksum of a kernel's compiled files."""
    value, record = _digest(path), path.with_suffix(".sha256")
    if not record.exists() or record.read_text(errors="replace") != value:
        write_whole(record, value.encode())


def usable(path: Path) -> bool:
    """True if the compiled files of a kernel are whole, those that `seal` has seen.

    Others are removed; if they were damaged, a ``CacheWarning`` says so.
    """
    record = path.with_suffix(".sha256")
    # without a checksum they are missing, or their compiler was stopped before `seal`: no damage
    finished = record.exists()
    if finished and record.read_text(errors="replace") == _digest(path):
        return True
    if finished:
        message = f"compiled kernel {path.stem} in {path.parent} was damaged: compiled again"
        warnings.warn(message, CacheWarning, stacklevel=5)
    discard(path)
    return False


def discard(path: Path) -> None:
    """Remove a kernel's compiled files and their checksum."""
    for file in [*_compiled(path), path.with_suffix(".sha256")]:
        file.unlink(missing_ok=True)
