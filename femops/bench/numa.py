"""Benchmark of the placement of data on several memories (NUMA nodes).

Figure 6 of Abdelfattah et al., High-performance tensor contractions for GPUs (2016), for an
operator: all data where one thread has touched them, page by page in turns, and each part in the
memory of the thread that works on it, as `femops_kernels.cpu.first_touch` leaves them. Linux only:
pages are moved by the system call ``mbind``, whatever thread has touched them first.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.cases import Case
from femops.bench.problems import (
    FOOTPRINTS,
    PROBLEMS,
    Progress,
    check_asked,
    make_mesh,
)
from femops.bench.timing import median_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.spaces.h1_l2 import H1
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed, placed_array
from femops_kernels.cpu.sweep import Sweep

NODES = Path("/sys/devices/system/node")
_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259}
_BIND, _INTERLEAVE = 2, 3  # MPOL_BIND, MPOL_INTERLEAVE of linux/mempolicy.h
_MOVE = 2  # MPOL_MF_MOVE
_MASK_BITS = 1024

PLACEMENTS = ("serial", "interleaved", "first touch")
PROBLEM, MESH = PROBLEMS["bp3"], "multilinear"
"""Much data at every point, so that memory decides."""

ONE_MEMORY = (
    "there is one memory (NUMA node): placement makes no difference, nothing is measured or drawn"
)


def ranges(text: str) -> list[int]:
    """Numbers of a kernel's list, as '0-3,8'."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def memories(folder: Path = NODES) -> dict[int, list[int]]:
    """The nodes that have memory and cores of this process, and those cores; none if not told."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    found: dict[int, list[int]] = {}
    for path in folder.glob("node[0-9]*"):
        listed = (path / "cpulist").read_text(encoding="ascii")
        cores = sorted(usable.intersection(ranges(listed)))
        if cores:
            found[int(path.name[4:])] = cores
    return dict(sorted(found.items()))


def bind(array: NDArray[Any], nodes: Sequence[int], interleave: bool = False) -> None:
    """Move the pages that lie within an array, no part of another's, to nodes.

    Page by page in turns, or else to any of them (so give one).

    Raises
    ------
    OperatorError
        The system call is not known here, or refuses.
    """
    start = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (array.ctypes.data + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    number = _MBIND.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        raise OperatorError("pages cannot be placed on this system: it takes Linux on 64 bits")
    if stop <= start:
        return
    mask = np.zeros(_MASK_BITS // 64, dtype=np.uint64)
    for node in nodes:
        mask[node // 64] |= np.uint64(1) << np.uint64(node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    pages = ctypes.c_ulong(start), ctypes.c_ulong(stop - start)
    mode = ctypes.c_int(_INTERLEAVE if interleave else _BIND)
    words = ctypes.c_void_p(mask.ctypes.data), ctypes.c_ulong(_MASK_BITS)
    if libc.syscall(ctypes.c_long(number), *pages, mode, *words, ctypes.c_uint(_MOVE)):
        reason = os.strerror(ctypes.get_errno())
        raise OperatorError(f"pages cannot be moved to nodes {list(nodes)}: {reason}")


@final
@dataclass
class _Placed(Case):
    """An operator with all its data placed in one way."""

    placement: str
    operator: Operator
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    def place(self, nodes: Sequence[int]) -> None:
        """Move everything, unless it is to stay with who touched it; ``nodes`` are the threads'."""
        for array in self._arrays() if self.placement != "first touch" else ():
            if self.placement == "serial":
                bind(array, nodes[:1])
            else:
                bind(array, sorted(set(nodes)), interleave=True)

    def _arrays(self) -> list[NDArray[Any]]:
        """Arrays that an application reads and writes."""
        found = [self.x, self.y]
        for sweep in self.operator.compiled.sweeps:
            assert isinstance(sweep, Sweep)  # of the level "partial"
            found += [sweep.data.points, sweep.dofs[0].source.starts]
        return found

    def round(self, seconds: float) -> None:
        """Time applications."""
        self.seconds.append(median_seconds(lambda: self.operator.apply(self.x, self.y), seconds))

    def row(self) -> dict[str, Any]:
        """Speed, and the bandwidth that it takes."""
        facts = {"placement": self.placement} | self.facts(self.operator.level)
        moved = self.operator.cost().bytes_moved
        return facts | {"gbytes_per_second": moved / facts["seconds_median"] * 1e-9}


def run_numa(
    orders: Sequence[int] = tuple(range(1, 9)),
    dofs: float = FOOTPRINTS["ram"],
    *,
    rounds: int = 5,
    seconds: float = 0.3,
    nodes: Path = NODES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure diffusion (bp3, level "partial") with its data placed in three ways.

    All threads work, each pinned to a core, the first ones to those of the first memory. The
    placements take turns. Arguments and errors are those of `femops.bench.run`; and the folder in
    which the kernel describes memories.

    Returns
    -------
    dict
        ``machine``; ``nodes``: cores of each memory; ``rows``, none where there is one memory;
        ``notes``: a line that says so.
    """
    check_asked(orders=orders, dofs=(dofs,), rounds=rounds)
    found = memories(nodes)
    result: dict[str, Any] = {"machine": machine.describe(), "nodes": found, "rows": []}
    if len(found) < 2:
        return result | {"notes": [ONE_MEMORY]}
    threads = min(machine.max_threads(), sum(map(len, found.values())))
    with _spread(found, threads) as places:
        for order in dict.fromkeys(orders):
            if progress:
                progress(f"{PROBLEM.name}, order {order}")
            result["rows"] += _order(order, dofs, places, rounds, seconds)
    return result | {"notes": []}


def _order(
    order: int, dofs: float, places: list[int], rounds: int, seconds: float
) -> list[dict[str, Any]]:
    mesh = make_mesh(MESH, order, dofs)
    cases = []
    for placement in PLACEMENTS:
        V = H1(mesh, order)  # a space of its own, so that no indices are shared
        x = placed(np.random.default_rng(order).standard_normal(V.size))
        y = placed_array((V.size,), np.float64)
        operator = PROBLEM.operator(V, "partial")
        case = _Placed(PROBLEM, MESH, "given", V, len(places), placement, operator, x, y)
        case.place(places)
        cases.append(case)
    for _ in range(rounds):
        for case in cases:
            case.round(seconds)
    return [case.row() for case in cases]


@contextmanager
def _spread(found: dict[int, list[int]], threads: int) -> Iterator[list[int]]:
    """Pin the threads to cores, an equal share to each memory; yields the memory of each."""
    before, count = os.sched_getaffinity(0), machine.get_threads()
    machine.set_threads(threads)
    nodes = list(found)
    places = sorted(nodes[k % len(nodes)] for k in range(threads))
    ids = machine.thread_ids()
    try:
        for k, (thread, node) in enumerate(zip(ids, places, strict=True)):
            cores = found[node]
            os.sched_setaffinity(thread, {cores[(k - places.index(node)) % len(cores)]})
        yield places
    finally:
        for thread in ids:
            os.sched_setaffinity(thread, before)
        machine.set_threads(count)
