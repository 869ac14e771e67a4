"""Threads of each operating system. Here the C library plays the part of Windows."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from femops_kernels.cpu.thread_pool import PosixThreads, Team, WindowsThreads, threads_of
from femops_kernels.errors import KernelError
from femops_kernels.simd import threads as layout
from support.kernels import compiled

posix = pytest.mark.skipif(os.name != "posix", reason="the C library has POSIX threads")
SAME = {
    "AcquireSRWLockExclusive": "pthread_mutex_lock",
    "ReleaseSRWLockExclusive": "pthread_mutex_unlock",
    "WakeAllConditionVariable": "pthread_cond_broadcast",
    "SleepConditionVariableSRW": "pthread_cond_wait",
    "GetCurrentThreadId": "gettid",
}
"""Functions that do the same with locks and conditions that are zeros at first."""


class Windows:
    """What femops uses of kernel32, by POSIX threads."""

    def __init__(self, most=100):
        library = ctypes.CDLL(None)
        for name, same in SAME.items():
            setattr(self, name, getattr(library, same))
        self.left, self.started, self.closed = most, list[Any](), list[Any]()
        self.SleepConditionVariableSRW.argtypes = None

        def create(safety, stack, worker, argument, *rest):
            assert (safety, stack, *rest) == (None, 0, 0, None)
            self.left -= 1
            if self.left < 0:
                return None
            handle = ctypes.c_void_p()
            place = ctypes.c_void_p(worker), ctypes.c_void_p(argument)
            assert library.pthread_create(ctypes.byref(handle), None, *place) == 0
            self.started.append(handle.value)
            return handle.value

        self.CreateThread: Any = Function(create)
        self.CloseHandle: Any = Function(self.closed.append)


class Function:
    """A function whose types can be set, as those of libraries."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *given):
        return self.call(*given)


LOOPS = """
import sys
import numpy as np
sys.path.insert(0, {tests!r})
from cpu.test_system_threads import Windows
from femops_kernels.cpu import thread_pool
windows = Windows()
system = thread_pool.WindowsThreads(windows, lambda: 8)
thread_pool.system_threads = lambda: system
from cpu.test_team import run, meeting
for k in range(2000):
    counts, owners = run(1 + k % 4, k % 30, strict=bool(k % 2))
    assert (counts == 1).all()
arrived = np.zeros(2, np.int64)
with thread_pool.LAUNCH:
    meeting(thread_pool.team_address(3), 3, arrived.ctypes.data)
assert arrived[0] == 3
assert len(windows.started) == 3 and windows.closed == windows.started
numbers = thread_pool.system_numbers(4)
assert len(set(numbers)) == 4
print("all items once")
"""


@posix
def test_loops_on_the_threads_of_windows():
    """Workers sleep and wake by Windows' functions: the C library's, under their names."""
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", LOOPS.format(tests=tests)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "all items once\n", done.stderr


@posix
def test_windows_waits_by_a_function_of_four():
    """The compiled call adds a time, which has no end, and no flags."""
    told: list[Any] = []

    @ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32
    )
    def sleep(*given):
        told.append(given)
        return 1

    windows: Any = Windows()
    windows.SleepConditionVariableSRW = sleep
    address = WindowsThreads(windows, lambda: 0).addresses[layout.WAIT]
    assert address == ctypes.cast(sleep, ctypes.c_void_p).value
    compiled("@function\ndef wait(f, c, l):\n    call_wait(f, c, l)\n").wait(address, 4096, 8192)
    assert told == [(4096, 8192, 0xFFFFFFFF, 0)]


@posix
def test_a_system_that_gives_no_threads_is_reported(monkeypatch):
    class Refuses:
        def __getattr__(self, name):
            return lambda *_: 11 if name == "pthread_create" else 0  # EAGAIN

    system = PosixThreads()
    team = Team(system)
    monkeypatch.setattr(system, "_system", Refuses())
    with pytest.raises(KernelError, match=r"pthread_create: .*fewer threads"):
        team.address(2, strict=False)
    few = Team(WindowsThreads(Windows(most=0), lambda: 8))
    with pytest.raises(KernelError, match="CreateThread: error 8; take fewer threads"):
        few.address(2, strict=False)


@posix
def test_systems(monkeypatch):
    monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: Windows(), raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: 0, raising=False)
    assert isinstance(threads_of("posix"), PosixThreads)
    assert isinstance(threads_of("nt"), WindowsThreads)
    assert threads_of("java") is None
