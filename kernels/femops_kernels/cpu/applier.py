"""Operators that compiled code of other libraries calls by address."""

from __future__ import annotations

import os
from functools import cache
from typing import final
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.cpu.sweep import AlignedBuffer, LaunchSum
from femops_kernels.cpu.thread_pool import LAUNCH, Team, system_threads
from femops_kernels.simd import threads
from femops_kernels.skeletons.chunk import applier_table as layout

_PARTS: Parts = ("driver_loops", "driver", "applier_table", "applier"), {}, ""


@final
class Applier:
    """Application of launches, which no other object may use.

    Appliers share a team of threads, apart from the team of Python's calls. A call that finds the
    team claimed by another one works on its own thread. Calls of one applier take turns.
    """

    def __init__(self, launches: LaunchSum) -> None:
        count, work = launches.threads(), AlignedBuffer()
        with LAUNCH:  # one thread makes the team, and starts its threads
            team = _team() if count > 1 else None
            # the number of threads is written by the call that claims the team
            address = 0 if team is None else team[0].started(count)
        words = {
            layout.BUSY: 0,
            layout.ROWS: launches.addresses[0],
            layout.ALPHAS: launches.addresses[1],
            layout.COUNT: launches.addresses[2],
            layout.WORK: work.address(launches.work_bytes * count),
            layout.WORK_BYTES: launches.work_bytes,
            layout.TEAM: address,
            layout.THREADS: count,
            layout.CLAIM: 0 if team is None else team[1].ctypes.data,
        }
        self._table = np.zeros(layout.MUTEX + layout.MUTEX_WORDS, dtype=np.int64)
        for place, value in words.items():
            self._table[place] = value
        self._make_lock()
        self._kept = launches, work, team
        self.address: int = specialize(*_PARTS).addresses["apply_alone"]
        _all.add(self)

    @property
    def state(self) -> int:
        """Address of the table, the first argument of the function at ``address``."""
        return int(self._table.ctypes.data)

    def _make_lock(self) -> None:
        system = system_threads()
        if system is not None:
            self._table[layout.MUTEX :] = 0
            system.prepare(self.state + 8 * layout.MUTEX, [])
            for place, name in ((layout.LOCK, threads.LOCK), (layout.UNLOCK, threads.UNLOCK)):
                self._table[place] = system.addresses[name]

    def alone(self) -> None:
        """Work on the calling thread from now on. A forked process has no other thread."""
        self._table[[layout.BUSY, layout.TEAM]] = 0
        self._make_lock()


@cache  # a team's threads never end
def _team() -> tuple[Team, NDArray[np.int64]] | None:
    """Team of this process, and the word that claims it. None without threads of the system."""
    system = system_threads()
    return None if system is None else (Team(system), np.zeros(1, dtype=np.int64))


_all: WeakSet[Applier] = WeakSet()


def _all_alone() -> None:
    _team.cache_clear()
    for each in [*_all]:
        each.alone()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_all_alone)
