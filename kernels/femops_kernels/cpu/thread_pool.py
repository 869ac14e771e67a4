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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.errors import KernelError, KernelValueError
from femops_kernels.exclusive import held_in_forks
from femops_kernels.simd import threads as layout

_POSIX = {
    layout.WHO: "gettid",  # only Linux has it, with glibc >= 2.30
    layout.LOCK: "pthread_mutex_lock",
    layout.UNLOCK: "pthread_mutex_unlock",
    layout.WAIT: "pthread_cond_wait",
    layout.WAKE: "pthread_cond_broadcast",
}
_WINDOWS = {
    layout.WHO: "GetCurrentThreadId",
    layout.LOCK: "AcquireSRWLockExclusive",
    layout.UNLOCK: "ReleaseSRWLockExclusive",
    layout.WAIT: "SleepConditionVariableSRW",
    layout.WAKE: "WakeAllConditionVariable",
}


class SystemThreads(ABC):
    """Threads of an operating system."""

    # addresses of the functions that lock, unlock, wait, wake and number threads, by their places
    # in a team's memory. LOCK, UNLOCK and WAKE take one pointer. WAIT takes a condition, a lock,
    # a time and flags. WHO is missing if threads have no numbers.
    addresses: dict[int, int]

    @abstractmethod
    def prepare(self, lock: int, conditions: Sequence[int]) -> None:
        """Make a lock and conditions at addresses of zeros."""

    @abstractmethod
    def start(self, worker: int, argument: int) -> None:
        """Start a thread that calls the function at the address ``worker``."""


@final
class PosixThreads(SystemThreads):
    """Threads of Linux and macOS."""

    def __init__(self) -> None:
        self._system: Any = ctypes.CDLL(None)
        self.addresses = _addresses(self._system, _POSIX)

    def prepare(self, lock: int, conditions: Sequence[int]) -> None:
        self._call("pthread_mutex_init", ctypes.c_void_p(lock), None)
        for condition in conditions:
            self._call("pthread_cond_init", ctypes.c_void_p(condition), None)

    def start(self, worker: int, argument: int) -> None:
        """See `SystemThreads.start`. The thread blocks all signals: they are for Python's own."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            handle, place = ctypes.c_void_p(), ctypes.c_void_p(argument)
            made = ctypes.byref(handle), None, ctypes.c_void_p(worker), place
            self._call("pthread_create", *made)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._system, name)(*arguments)
        if error:
            raise KernelError(f"{name}: {os.strerror(error)}; take fewer threads")


@final
class WindowsThreads(SystemThreads):
    """Threads of Windows, with its slim locks and condition variables."""

    def __init__(self, kernel32: Any, last_error: Callable[[], int]) -> None:
        self._system, self._last_error = kernel32, last_error
        create, pointer, number = kernel32.CreateThread, ctypes.c_void_p, ctypes.c_uint32
        create.argtypes = [pointer, ctypes.c_size_t, pointer, pointer, number, pointer]
        create.restype = pointer
        kernel32.CloseHandle.argtypes = [pointer]
        self.addresses = _addresses(kernel32, _WINDOWS)

    def prepare(self, lock: int, conditions: Sequence[int]) -> None:
        """Do nothing: zeros are a lock, and a condition, of Windows."""

    def start(self, worker: int, argument: int) -> None:
        handle = self._system.CreateThread(None, 0, worker, argument, 0, None)
        if not handle:
            raise KernelError(f"CreateThread: error {self._last_error()}; take fewer threads")
        self._system.CloseHandle(handle)  # the thread goes on


def _addresses(library: Any, names: dict[int, str]) -> dict[int, int]:
    """Addresses of a library's functions, by place. Functions that it lacks are left out."""
    found = {place: getattr(library, name, None) for place, name in names.items()}
    return {
        place: ctypes.cast(function, ctypes.c_void_p).value or 0
        for place, function in found.items()
        if function is not None
    }


@cache
def system_threads() -> SystemThreads | None:
    """Threads of this operating system. None if femops knows none."""
    return threads_of(os.name)


def threads_of(system: str) -> SystemThreads | None:
    """Threads of the operating system that has the name ``system`` in `os.name`."""
    if system == "posix":
        return PosixThreads()
    if system == "nt":
        windows: Any = ctypes  # type checkers do not know Windows' names
        kernel32 = windows.WinDLL("kernel32", use_last_error=True)
        return WindowsThreads(kernel32, windows.get_last_error)
    return None


MOST = 1024
"""Threads that a team can have."""
# Times that a thread checks for work before it sleeps: for some 5 microseconds, if a pause takes 20
# to 30 nanoseconds. A worker checks for 100 microseconds while that pays, because waking a thread
# takes longer than the Python between two loops.
SPINS, LONG_SPINS = 200, 4000
# A team of threads runs one loop at a time, and a sweep's buffer serves one application at a time.
LAUNCH = threading.RLock()
held_in_forks(LAUNCH)  # or a child would wait for the end of a parent's loop
WORKER_PARTS: Parts = ("worker",), {}, ""
"""Parts of the compiled code that workers of a team run."""
_LINE = 8 * layout.LINE_WORDS


@final
class Team:
    """A thread that calls compiled code and its workers, who share the loops of that code.

    One loop runs at a time: hold ``LAUNCH``.
    """

    def __init__(self, system: SystemThreads) -> None:
        size = layout.FIRST + MOST * layout.LINE_WORDS
        memory = np.zeros(size + layout.LINE_WORDS, dtype=np.int64)
        skip = -memory.ctypes.data % _LINE // 8
        self._words: NDArray[np.int64] = memory[skip : skip + size]
        self._address: int = self._words.ctypes.data
        self._system = system
        self._words[layout.SPINS], self._words[layout.LONG_SPINS] = SPINS, LONG_SPINS
        for place, address in system.addresses.items():
            self._words[place] = address
        system.prepare(
            self._place(layout.MUTEX), [self._place(layout.NEWS), self._place(layout.DONE)]
        )
        compiled = specialize(*WORKER_PARTS)
        self._worker: int = compiled.addresses["worker"]
        self._words[layout.RUN] = compiled.addresses["run"]
        self._count = 1

    def address(self, threads: int, *, strict: bool) -> int:
        """Address of the team's memory for loops on ``threads`` threads; see `team_address`."""
        if self._count < threads:
            self.started(threads)
        self._words[layout.WIDTH], self._words[layout.STRICT] = threads, strict
        return self._address

    def started(self, threads: int) -> int:
        """Address of the team's memory. Start ``threads`` threads, with that of the caller."""
        while self._count < threads:
            self._start(self._count)
            self._count += 1
        return self._address

    def system_number(self, thread: int) -> int:
        """Wait until a worker has stored its thread id of the system, and return the id."""
        place = layout.FIRST + thread * layout.LINE_WORDS + layout.SYSTEM_NUMBER
        while not self._words[place]:
            time.sleep(1e-4)
        return int(self._words[place])

    def _start(self, number: int) -> None:
        place = layout.FIRST + number * layout.LINE_WORDS
        self._words[place + layout.NUMBER] = number
        self._words[place + layout.TEAM] = self._address
        self._system.start(self._worker, self._place(place))

    def _place(self, word: int) -> int:
        return self._address + 8 * word


def system_numbers(threads: int) -> list[int]:
    """Operating system's ids of the team's first ``threads`` threads, the caller's id first."""
    system = system_threads()
    if system is None or layout.WHO not in system.addresses:
        raise KernelValueError(
            "threads have no numbers here: it takes Windows, or Linux with glibc >= 2.30"
        )
    with LAUNCH:  # or a loop that runs would be given another number of threads
        team_address(threads)
    workers = [_teams[os.getpid()].system_number(k) for k in range(1, threads)]
    return [threading.get_native_id(), *workers]


_teams: dict[int, Team] = {}


def team_address(threads: int, *, strict: bool = False) -> int:
    """Address of the memory of this process's team for ``threads`` threads; 0 for one thread.

    Hold ``LAUNCH`` as long as loops run with this team.

    If ``strict``, each thread does its own items alone.  No thread helps another.
    """
    system = system_threads()
    if threads == 1 or system is None:
        return 0
    pid = os.getpid()  # a forked child has none of its parent's workers
    if pid not in _teams:
        _teams[pid] = Team(system)
    return _teams[pid].address(threads, strict=strict)
