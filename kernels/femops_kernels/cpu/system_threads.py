"""Threads, locks and conditions of the operating system, for a team of threads.

Compiled code calls functions of the system by their addresses, with up to two pointers each (see
`femops_kernels.simd.threads`). Locks and conditions are places in the team's memory.
"""

from __future__ import annotations

import ctypes
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, final

from femops_kernels.errors import KernelError
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
