"""Compilation ahead of need, by another process on an idle core.

What it has compiled is found in the cache folder; what it is at work on is waited for, by the lock
of that kernel. Whatever keeps it from working, kernels are compiled where they are needed.
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
"""Names and texts, as `femops_kernels.codegen.specialize.named` gives them."""

_LOAD = Path("/proc/loadavg")
_IDLE_SECONDS = 10.0  # after which a process without work ends


@final
class Compiler:
    """Another process that compiles kernels; begun with the first that are asked for.

    Parameters
    ----------
    folder : Path
        The cache folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._asked = folder, set[str]()
        self._lines, self._alive = SimpleQueue[str](), False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start the process, unless there is one."""
        with self._lock:
            if not self._alive:
                self._alive, self._lines = True, SimpleQueue()
                # who waits for the process is a thread that nobody waits for
                threading.Thread(target=self._feed, args=(self._lines,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """True if there is a process."""
        return self._alive

    def compile(self, kernels: Kernels) -> None:
        """Compile kernels in this order, before those that were asked for earlier."""
        self._asked.update(name for name, _ in kernels)
        self._lines.put(json.dumps(kernels))

    def missing(self, kernels: Kernels) -> Kernels:
        """Those that are not in the cache, and were not asked for."""
        return [
            (name, text)
            for name, text in kernels
            if name not in self._asked and not _sealed(self._folder, name)
        ]

    def _feed(self, lines: SimpleQueue[str]) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with suppress(OSError):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(os.getpid())],
                env=os.environ | {"PYTHONPATH": path, "FEMOPS_CACHE": str(self._folder)},
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
        lines.put("")  # whoever feeds it ends


_compilers: dict[tuple[Path, int], Compiler] = {}
"""By cache folder and process."""


def compile_kernels_ahead(parts: Sequence[Parts], cores: int) -> None:
    """Begin to compile kernels that are not in the cache, if one of so many cores is idle.

    Parameters
    ----------
    parts : sequence of Parts
        Of what is needed last, first: who asks compiles from the other end.
    cores : int
        Those that this process may use.
    """
    folder = cache_folder()
    first = (folder, os.getpid()) not in _compilers  # a forked process has no threads of these
    compiler = _compilers.setdefault((folder, os.getpid()), Compiler(folder))
    if not compiler.alive and not _can_help(cores):
        return
    if first and next(folder.glob("driver_*.sha256"), None) is None:
        compiler.begin()  # the cache is empty: it imports what compiles while this process does
    missing = compiler.missing([named(*each) for each in parts])
    if missing:
        compiler.begin()
        compiler.compile(missing)


def _sealed(folder: Path, name: str) -> bool:
    return (folder / f"{name}.sha256").exists()


def _can_help(cores: int) -> bool:
    """True if this process knows how to start another Python, and a core is idle."""
    known = Path(sys.executable or "").name.startswith("python") and not hasattr(sys, "frozen")
    return known and cores > 1 and _running() < (os.cpu_count() or 1)


def _running() -> float:
    """Number of threads that run or wait for a core, this one among them."""
    try:
        return int(_LOAD.read_text().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):  # not Linux: the mean of a minute
        return os.getloadavg()[0] + 1.0 if hasattr(os, "getloadavg") else inf


# --- in the other process -------------------------------------------------------------------------


@final
class _Work:
    """Kernels that wait to be compiled, the latest that were asked for first."""

    def __init__(self) -> None:
        self._kernels, self._news, self._closed = Kernels(), threading.Condition(), False

    def read(self) -> None:
        """Take what standard input asks for, to its end."""
        for line in sys.stdin:
            with self._news:
                self._kernels[:0] = json.loads(line)
                self._news.notify()
        with self._news:
            self._closed = True
            self._news.notify()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The kernels, until there are no more for a while."""
        while True:
            with self._news:
                if not self._kernels and not self._closed:
                    self._news.wait(_IDLE_SECONDS)
                if not self._kernels:
                    return
                name, text = self._kernels.pop(0)
            yield name, text


def _main(parent: int) -> None:
    """Compile what standard input names, as long as the process that asked for it is there."""
    work, folder = _Work(), cache_folder()
    threading.Thread(target=work.read, daemon=True).start()
    import numba  # noqa: F401  (while work is on its way)

    for name, text in work:
        # nobody could use kernels in a temporary folder of this process
        if os.getppid() != parent or cache_folder() != folder:
            return
        if not _sealed(folder, name):
            load(name, text)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
