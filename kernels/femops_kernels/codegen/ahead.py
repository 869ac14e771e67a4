"""Compilation of kernels ahead of need, by another process on an idle core.

Compiled kernels appear in the cache folder.  If this process needs a kernel that the other one is
compiling, it waits for the lock of that kernel.  If the other process can't work, this process
compiles kernels when it needs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import final

from femops_kernels.codegen.cache import cache_folder
from femops_kernels.codegen.specialize import Parts, load, named

Kernels = list[tuple[str, str]]
"""Names and source texts, as `femops_kernels.codegen.specialize.named` returns them."""

_LOAD = Path("/proc/loadavg")
_IDLE_SECONDS = 10.0  # time after which a process without work ends


@final
class Compiler:
    """Another process that compiles kernels. It starts with the first request."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._asked = folder, set[str]()
        self._lines, self._alive = SimpleQueue[str](), False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start the process, unless it runs already."""
        with self._lock:
            if not self._alive:
                self._alive, self._lines = True, SimpleQueue()
                # a daemon thread waits for the process, so that this program can end before it
                threading.Thread(target=self._feed, args=(self._lines,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self._alive

    def compile(self, kernels: Kernels) -> None:
        """Ask the process to compile kernels, in this order and before all earlier requests."""
        self._asked.update(name for name, _ in kernels)
        self._lines.put(json.dumps(kernels))

    def missing(self, kernels: Kernels) -> Kernels:
        """Kernels that are not in the cache and have not been requested."""
        return [
            (name, text)
            for name, text in kernels
            if name not in self._asked and not _sealed(self._folder, name)
        ]

    def _feed(self, lines: SimpleQueue[str]) -> None:
        with suppress(OSError):
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(os.getpid())],
                env=os.environ | same_imports() | {"FEMOPS_CACHE": str(self._folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            threading.Thread(target=self._watch, args=(process, lines), daemon=True).start()
            assert process.stdin is not None
            with suppress(OSError), process.stdin as pipe:
                while line := lines.get():
                    pipe.write(line + "\n")
                    pipe.flush()
            return
        self._alive = False

    def _watch(self, process: subprocess.Popen[str], lines: SimpleQueue[str]) -> None:
        process.wait()
        with self._lock:
            self._alive = False
        lines.put("")  # ends the thread that feeds the process


def same_imports() -> dict[str, str]:
    """Environment variables with which another Python imports from the folders that this one does.

    Without them it would import from the current folder first, where others may have put files.
    """
    # a folder with a separator in its name cannot stand in the variable
    folders = [folder for folder in sys.path if folder and os.pathsep not in folder]
    return {"PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"}


_compilers: dict[tuple[Path, int], Compiler] = {}
"""Compilers by cache folder and number of this process."""


def compile_kernels_ahead(parts: Sequence[Parts], cores: int) -> None:
    """Begin to compile kernels that are not in the cache, if a core is idle."""
    folder = cache_folder()
    first = (folder, os.getpid()) not in _compilers  # a forked process has no compiler's threads
    compiler = _compilers.setdefault((folder, os.getpid()), Compiler(folder))
    if not compiler.alive and not _can_help(cores):
        return
    if first and next(folder.glob("driver_*.sha256"), None) is None:
        compiler.begin()  # the cache is empty: both processes import the compiler at the same time
    missing = compiler.missing([named(*each) for each in parts])
    if missing:
        compiler.begin()
        compiler.compile(missing)


def _sealed(folder: Path, name: str) -> bool:
    return (folder / f"{name}.sha256").exists()


def _can_help(cores: int) -> bool:
    """True if this process can start another Python, and a core is idle."""
    startable = Path(sys.executable or "").name.startswith("python") and not hasattr(sys, "frozen")
    return startable and cores > 1 and _running() < (os.cpu_count() or 1)


def _running() -> float:
    """Number of threads on the machine that run or wait for a core, with this one."""
    try:
        return int(_LOAD.read_bytes().split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):  # not Linux: take the mean over a minute
        return os.getloadavg()[0] + 1.0 if hasattr(os, "getloadavg") else inf


# --- in the other process -------------------------------------------------------------------------


@final
class _Work:
    """Queue of kernels to compile, the latest request first."""

    def __init__(self) -> None:
        self._kernels, self._news, self._closed = Kernels(), threading.Condition(), False

    def read(self) -> None:
        """Read requests from standard input until it ends."""
        for line in sys.stdin:
            with self._news:
                self._kernels[:0] = json.loads(line)
                self._news.notify()
        with self._news:
            self._closed = True
            self._news.notify()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield kernels until no request comes for `_IDLE_SECONDS`."""
        while True:
            with self._news:
                if not self._kernels and not self._closed:
                    self._news.wait(_IDLE_SECONDS)
                if not self._kernels:
                    return
                name, text = self._kernels.pop(0)
            yield name, text


def _main(parent: int) -> None:
    """Compile the kernels that standard input names, as long as the parent process runs."""
    work, folder = _Work(), cache_folder()
    threading.Thread(target=work.read, daemon=True).start()
    for name, text in work:
        # nobody could use kernels in a temporary folder of this process
        if os.getppid() != parent or cache_folder() != folder:
            return
        if not _sealed(folder, name):
            load(name, text)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
