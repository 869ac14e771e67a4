"""Threads of the operating system that share compiled loops and sleep between them.

They belong to this process alone.  OpenMP and the threads of other libraries are not used, and
their settings stay as they are.  A forked process starts its own threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.errors import KernelError, KernelValueError
from femops_kernels.simd import threads as layout

POSIX = os.name == "posix"
"""True if the system has POSIX threads. Elsewhere the caller does all work alone."""
MOST = 1024
"""Threads that a team can have."""
# Times that a thread checks for work before it sleeps: for some 5 microseconds, if a pause takes 20
# to 30 nanoseconds. A worker checks for 100 microseconds while that pays, because waking a thread
# takes longer than the Python between two loops.
SPINS, LONG_SPINS = 200, 4000
# A team of threads runs one loop at a time, and a sweep's buffer serves one application at a time.
LAUNCH = threading.RLock()
if hasattr(os, "register_at_fork"):  # or a child would wait for the end of a parent's loop
    _after = {"after_in_parent": LAUNCH.release, "after_in_child": LAUNCH.release}
    os.register_at_fork(before=LAUNCH.acquire, **_after)
WORKER_PARTS: Parts = ("worker",), {}, ""
"""Parts of the compiled code that workers of a team run."""
_LINE = 8 * layout.LINE_WORDS
_FUNCTIONS = {
    layout.WHO: "gettid",
    layout.LOCK: "pthread_mutex_lock",
    layout.UNLOCK: "pthread_mutex_unlock",
    layout.WAIT: "pthread_cond_wait",
    layout.WAKE: "pthread_cond_broadcast",
}


@final
class Team:
    """A thread that calls compiled code and its workers, who share the loops of that code.

    One loop runs at a time: hold ``LAUNCH``.
    """

    def __init__(self) -> None:
        size = layout.FIRST + MOST * layout.LINE_WORDS
        memory = np.zeros(size + layout.LINE_WORDS, dtype=np.int64)
        skip = -memory.ctypes.data % _LINE // 8
        self._words: NDArray[np.int64] = memory[skip : skip + size]
        self._address: int = self._words.ctypes.data
        self._system: Any = ctypes.CDLL(None)
        self._words[layout.SPINS], self._words[layout.LONG_SPINS] = SPINS, LONG_SPINS
        for place, name in _FUNCTIONS.items():
            function = getattr(self._system, name, None)  # some systems have no gettid
            if function is not None:
                self._words[place] = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._call("pthread_mutex_init", self._place(layout.MUTEX), None)
        for condition in (layout.NEWS, layout.DONE):
            self._call("pthread_cond_init", self._place(condition), None)
        compiled = specialize(*WORKER_PARTS)
        self._worker: int = compiled.worker.address
        self._words[layout.RUN] = compiled.run.address
        self._count = 1

    def address(self, threads: int, *, strict: bool) -> int:
        """Address of the team's memory for loops on ``threads`` threads; see `team_address`.

        Raises
        ------
        KernelError
            If the system gives no more threads.
        """
        while self._count < threads:
            self._start(self._count)
            self._count += 1
        self._words[layout.WIDTH], self._words[layout.STRICT] = threads, strict
        return self._address

    def system_number(self, thread: int) -> int:
        """Wait until a worker has stored its thread id of the system, and return the id."""
        place = layout.FIRST + thread * layout.LINE_WORDS + layout.SYSTEM_NUMBER
        while not self._words[place]:
            time.sleep(1e-4)
        return int(self._words[place])

    def _start(self, number: int) -> None:
        """Start a worker. It blocks all signals, which are for Python's own threads."""
        place = layout.FIRST + number * layout.LINE_WORDS
        self._words[place + layout.NUMBER] = number
        self._words[place + layout.TEAM] = self._address
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            handle = ctypes.c_void_p()
            made = ctypes.byref(handle), None, ctypes.c_void_p(self._worker), self._place(place)
            self._call("pthread_create", *made)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _place(self, word: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._address + 8 * word)

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._system, name)(*arguments)
        if error:
            raise KernelError(f"{name}: {os.strerror(error)}; take fewer threads")


def system_numbers(threads: int) -> list[int]:
    """Operating system's ids of the team's first ``threads`` threads, the caller's id first.

    Raises
    ------
    KernelValueError
        A system without ``gettid``.
    """
    if not (POSIX and hasattr(ctypes.CDLL(None), "gettid")):
        raise KernelValueError("threads have no numbers here: it takes Linux with glibc >= 2.30")
    with LAUNCH:  # or a loop that runs would be given another number of threads
        team_address(threads)
    workers = [_teams[os.getpid()].system_number(k) for k in range(1, threads)]
    return [threading.get_native_id(), *workers]


_teams: dict[int, Team] = {}


def team_address(threads: int, *, strict: bool = False) -> int:
    """Address of the memory of this process's team for ``threads`` threads; 0 for one thread.

    Hold ``LAUNCH`` as long as loops run with this team.

    If ``strict``, each thread does its own items alone.  No thread helps another.

    Raises
    ------
    KernelError
        If the system gives no more threads.
    """
    if threads == 1 or not POSIX:
        return 0
    pid = os.getpid()  # a forked child has none of its parent's workers
    if pid not in _teams:
        _teams[pid] = Team()
    return _teams[pid].address(threads, strict=strict)
