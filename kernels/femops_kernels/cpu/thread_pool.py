"""Threads of the operating system that share compiled loops and sleep between them.

They belong to this process alone.  OpenMP and the threads of other libraries are not used, and
their settings stay as they are.  A forked process starts its own threads.
"""

from __future__ import annotations

import os
import threading
import time
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.cpu.system_threads import SystemThreads, system_threads
from femops_kernels.errors import KernelValueError
from femops_kernels.exclusive import held_in_forks
from femops_kernels.simd import threads as layout

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
