"""The program of the ranks, which carries out requests. Each request is a line of JSON.

`femops.bench.scaling.study.World` starts the program. Rank 0 reads requests from standard input
and writes answers to standard output. Between requests all ranks sleep.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.problems import PROBLEMS, shared_mesh
from femops.bench.timing import LEAST, call_seconds
from femops.errors import OperatorError
from femops.fields.multivector import MultiVector
from femops.operators import Operator
from femops.parallel import Communicator, DistributedMesh, cores, world
from femops.parallel.comm import MpiChannel
from femops.spaces.h1_l2 import H1
from femops_kernels.compiled import CompiledOperator, DistributedOperator, Panels
from femops_kernels.cpu import machine

NAP = 0.005
"""Seconds between two checks for a request."""

_AGAIN = 3  # most repetitions of disturbed measurements
_LONG = 5  # times a round's seconds: longer measurements are not repeated
_PROCESS = Path("/proc/self")
_RESET = "5"  # proc(5), clear_refs: the peak resident set size becomes the present one

METHODS = ("at once", "cell matrices", "one by one")
"""Ways to apply an operator to many vectors."""


@final
class Case:
    """An operator on this rank's part, and random vectors for it."""

    def __init__(self, operator: Operator, nvec: int, method: str) -> None:
        width = 1 if method == METHODS[2] else nvec
        self._x = MultiVector.random(operator.space, nvec, width=width)
        self._y = self._x.empty_like()
        self.compiled: CompiledOperator = (
            operator.compiled if width == 1 else operator._compiled_for(Panels(width))
        )

    def apply(self) -> None:
        """Apply the operator to all vectors."""
        for x, y in zip(self._x.panels, self._y.panels, strict=True):
            self.compiled.apply(x, y)

    def channels(self) -> list[MpiChannel]:
        """Channels of the operator's messages; none on a single rank."""
        compiled = self.compiled
        if not isinstance(compiled, DistributedOperator):
            return []
        found = {id(x.channel): x.channel for x, _ in (*compiled.forwards, *compiled.reverses)}
        return [channel for channel in found.values() if isinstance(channel, MpiChannel)]

    def total(self, name: str) -> float:
        """Sum over the channels of ``waited`` (seconds), ``messages`` or ``nbytes`` so far."""
        return float(sum(getattr(channel, name) for channel in self.channels()))


@final
@dataclass
class Worker:
    """State of a rank between requests; its methods are the requests. Collective."""

    comm: Communicator
    _meshes: dict[Any, DistributedMesh] = field(default_factory=dict)
    _cases: dict[str, Case] = field(default_factory=dict)

    def prepare(
        self,
        name: str,
        problem: str,
        mesh: str,
        order: int,
        counts: list[int],
        level: str,
        method: str = METHODS[0],
        nvec: int = 1,
    ) -> dict[str, Any]:
        """Make an operator and vectors for it, and keep them under a name."""
        key = (mesh, tuple(counts))
        if key not in self._meshes:
            self._meshes[key] = shared_mesh(mesh, (counts[0], counts[1], counts[2]), self.comm)
        chosen = PROBLEMS[problem]
        V = H1(self._meshes[key], order, chosen.ncomp)
        if method == METHODS[1]:
            level = "element"
        elif level == "auto" and self.comm.size > 1:  # the choice for the first rank's part
            if self.comm.rank == 0:
                level = chosen.operator(H1(V.mesh, order, chosen.ncomp), "auto").level
            level = str(self.comm.broadcast(level))
        operator = chosen.operator(V, level)
        case = self._cases[name] = Case(operator, nvec, method)
        case.apply()
        dofs, elements = V.global_ndofs * V.ncomp, self._meshes[key].num_elements
        return {"dofs": dofs, "elements": elements, "level": operator.level}

    def forget(self) -> dict[str, Any]:
        """Free all operators and vectors."""
        self._cases.clear()
        return {}

    def time(self, name: str, seconds: float, overlap: bool) -> dict[str, float]:
        """Median ``seconds`` of an application on the slowest rank, and of the ``wait`` in it.

        An application is calm if no rank lost its core. Only calm applications count; ``calm`` is
        their number. If there are fewer than three, the three fastest applications count.
        """
        case = self._cases[name]
        if isinstance(case.compiled, DistributedOperator):
            case.compiled.overlap = overlap
        found = np.empty((3, 0))
        for _ in range(1 + _AGAIN):
            found = np.concatenate([found, self._applications(case, seconds)], axis=1)
            calm = np.flatnonzero(found[2] == 0)
            if len(calm) >= LEAST or found[0].sum() > _LONG * seconds:
                break
        chosen = calm if len(calm) >= LEAST else np.argsort(found[0])[:LEAST]
        taken, waited = np.median(found[:2, chosen], axis=1).tolist()
        return {"seconds": taken, "wait": waited, "calm": len(calm)}

    def _applications(self, case: Case, seconds: float) -> NDArray[np.float64]:
        """Time applications that all ranks begin together: array (3, applications).

        Rows are the seconds, the seconds of waiting, and the number of times that a rank lost its
        core. Each is the maximum over ranks.
        """
        case.apply()
        self.comm.barrier()
        once = self.comm.max(call_seconds(case.apply))
        columns = []
        for _ in range(max(LEAST, ceil(seconds / max(once, 1e-6)))):
            before, losses = case.total("waited"), _losses()
            self.comm.barrier()
            taken = call_seconds(case.apply)
            waited = case.total("waited") - before
            columns.append((taken, waited, _losses() - losses))
        return self.comm.max(np.array(columns, float).T)

    def count(self, name: str, applications: int) -> dict[str, float]:
        """Number of messages and bytes of all ranks in one application."""
        case, names = self._cases[name], ("messages", "nbytes")
        before = np.array([case.total(what) for what in names])
        for _ in range(applications):
            case.apply()
        sent = np.array([case.total(what) for what in names]) - before
        messages, nbytes = self.comm.sum(sent / applications).tolist()
        return {"messages": messages, "bytes": nbytes}

    def memory(
        self, problem: str, mesh: str, order: int, counts: list[int], level: str
    ) -> dict[str, Any]:
        """Measure the peak memory of mesh, space and operator.

        ``bytes`` is the memory of the rank with most, ``sum`` that of all ranks together.
        """
        arguments = "memory", problem, mesh, order
        self.prepare(*arguments, [2, 2, 2], level)  # code is loaded, and compiled
        self._cases.clear()
        self._meshes.clear()
        with peak_of() as peak:
            facts = self.prepare(*arguments, counts, level)
        return facts | {"bytes": self.comm.max(peak[0]), "sum": self.comm.sum(peak[0])}


@contextmanager
def peak_of() -> Iterator[list[int]]:
    """Measure how much peak memory this process needs inside the block. Linux only."""
    peak: list[int] = []
    gc.collect()
    with suppress(AttributeError):  # only the GNU C library gives freed memory back
        ctypes.CDLL(None).malloc_trim(0)
    try:
        (_PROCESS / "clear_refs").write_text(_RESET, encoding="ascii")
        before = _kibibytes("VmRSS")
        yield peak
        peak.append(1024 * (_kibibytes("VmHWM") - before))
    except OSError as error:
        raise OperatorError(
            f"memory is measured by /proc on Linux, this is {sys.platform}: {error}"
        ) from error


def _kibibytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", (_PROCESS / "status").read_text("ascii"), re.M)
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1])


def _losses() -> int:
    """Number of times that the system has given this process' core to another."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def pin(comm: Communicator) -> None:
    """Pin this process to a core of its own, which ranks share if there are more than cores."""
    firsts = comm.gather_all(np.array([comm.node.first]))[:, 0]
    before = int(np.count_nonzero(firsts[: comm.rank] == comm.node.first))
    mine = cores.own()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {mine[before % len(mine)]})


def main() -> None:
    """Carry out the requests that rank 0 reads, until standard input ends."""
    comm = world()
    machine.set_threads(1)
    pin(comm)
    worker = Worker(comm)
    while True:
        line = sys.stdin.readline() if comm.rank == 0 else ""
        comm.barrier(NAP)
        line = comm.broadcast(line)
        if not line.strip():
            return
        order = json.loads(line)
        answer = getattr(worker, order.pop("do"))(**order)
        if comm.rank == 0:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
