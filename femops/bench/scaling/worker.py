"""The program that runs on ranks: does what it is told, a line of JSON at a time.

Started by `femops.bench.scaling.worlds.World`. Rank 0 reads what to do from standard input and
writes the answer to standard output. While there is nothing to do, all ranks sleep.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.problems import PROBLEMS, make_space, shared_mesh
from femops.bench.timing import LEAST
from femops.errors import OperatorError
from femops.fields.multivector import MultiVector
from femops.operators import Operator
from femops.parallel import Communicator, DistributedMesh, cores, world
from femops.parallel.channels import MpiChannel
from femops.spaces.h1_l2 import H1
from femops_kernels.compiled import CompiledOperator, DistributedOperator, Panels
from femops_kernels.cpu import machine

NAP = 0.005
"""Seconds between two looks whether there is something to do."""

Measured = NDArray[np.float64]
"""(3, n): seconds, waited, how often a core was taken away."""

_AGAIN = 3  # times at most that disturbed ones are measured again
_LONG = 5  # times what a round should take: what takes so long is not measured again
_PROCESS = Path("/proc/self")
_RESET = "5"  # proc(5), clear_refs: the peak resident set size becomes the present one
_MESSAGES = 8, 2**20  # bytes of those that tell latency and bandwidth


METHODS = ("at once", "cell matrices", "one by one")
"""Ways to apply an operator to many vectors."""


@final
@dataclass
class Case:
    """An operator on this rank's part, and vectors for it.

    Attributes
    ----------
    operator : Operator
    x, y : MultiVector
        Columns, in one panel.
    compiled : CompiledOperator
        What is applied: to all vectors at once, or to one after the other.
    """

    operator: Operator
    x: MultiVector
    y: MultiVector
    compiled: CompiledOperator

    @staticmethod
    def of(operator: Operator, nvec: int, method: str) -> Case:
        """Operator with so many random vectors; ``method`` is one of `METHODS`."""
        width = 1 if method == METHODS[2] else nvec
        x = MultiVector.random(operator.space, nvec, width=width)
        compiled = operator.compiled if width == 1 else operator._compiled_for(Panels(width))
        return Case(operator, x, x.empty_like(), compiled)

    def apply(self) -> None:
        """Apply the operator to all vectors."""
        for x, y in zip(self.x.panels, self.y.panels, strict=True):
            self.compiled.apply(x, y)

    def channels(self) -> list[MpiChannel]:
        """Channels of its messages; none on a single rank."""
        compiled = self.compiled
        if not isinstance(compiled, DistributedOperator):
            return []
        both = [forward.channel for forward, _ in compiled.forwards]
        both += [reverse.channel for reverse, _ in compiled.reverses]
        found = {id(channel): channel for channel in both}
        return [channel for channel in found.values() if isinstance(channel, MpiChannel)]

    def waited(self) -> float:
        """Seconds spent waiting for messages until now."""
        return sum(channel.waited for channel in self.channels())


@final
@dataclass
class Worker:
    """Memory of a rank from one order to the next; its methods are the orders. Collective."""

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
        """Make an operator and vectors for it, remembered under a name."""
        key = (mesh, tuple(counts))
        if key not in self._meshes:
            self._meshes[key] = shared_mesh(mesh, (counts[0], counts[1], counts[2]), self.comm)
        chosen = PROBLEMS[problem]
        V = H1(self._meshes[key], order, chosen.ncomp)
        if level == "auto" and self.comm.size > 1:
            level = self._chosen(V, problem)
        if method == METHODS[1]:
            level = "element"
        operator = chosen.operator(V, level)
        case = self._cases[name] = Case.of(operator, nvec, method)
        case.apply()
        dofs = V.global_ndofs * V.ncomp
        elements = self._meshes[key].num_elements
        return {"dofs": dofs, "elements": elements, "level": operator.level}

    def forget(self) -> dict[str, Any]:
        """Free all operators and vectors."""
        self._cases.clear()
        return {}

    def _chosen(self, V: H1, problem: str) -> str:
        """The level that is fastest on the first rank's part."""
        level = ""
        if self.comm.rank == 0:
            part = H1(V.mesh, V.order, V.ncomp)
            level = PROBLEMS[problem].operator(part, "auto").level
        return str(self.comm.broadcast(level))

    def time(self, name: str, seconds: float, overlap: bool) -> dict[str, float]:
        """Seconds of an application on the slowest rank, medians; and of the wait in it.

        Those that a rank had to share its core in are left out: ``calm`` says how many are left.
        If these are less than three, the three fastest of all count.
        """
        case = self._cases[name]
        if isinstance(case.compiled, DistributedOperator):
            case.compiled.overlap = overlap
        times, waits, lost = self._calmly(case.apply, seconds, case)
        chosen = _calm(times, lost)
        return {
            "seconds": float(np.median(times[chosen])),
            "wait": float(np.median(waits[chosen])),
            "calm": int(np.count_nonzero(lost == 0)),
        }

    def _calmly(
        self, call: Callable[[], object], seconds: float, case: Case | None = None
    ) -> Measured:
        """The same as `_timed`, again and again until enough were undisturbed, or it takes long."""
        found = self._timed(call, seconds, case)
        for _ in range(_AGAIN):
            if np.count_nonzero(found[2] == 0) >= LEAST or found[0].sum() > _LONG * seconds:
                break
            more = self._timed(call, seconds, case)
            found = np.concatenate([found, more], axis=1)
        return found

    def _timed(
        self, call: Callable[[], object], seconds: float, case: Case | None = None
    ) -> Measured:
        """Seconds of each of some calls, waited in it, and how often a core was taken away.

        All ranks begin each together; of all of them the most.
        """
        call()
        self.comm.barrier()
        begin = perf_counter()
        call()
        once = self.comm.max(perf_counter() - begin)
        count = max(LEAST, ceil(seconds / max(once, 1e-6)))
        times, waits, lost = np.zeros((3, count))
        for k in range(count):
            before, losses = case.waited() if case else 0.0, _losses()
            self.comm.barrier()
            begin = perf_counter()
            call()
            times[k] = perf_counter() - begin
            lost[k] = _losses() - losses
            waits[k] = case.waited() - before if case else 0.0
        return self.comm.max(np.stack([times, waits, lost]))

    def count(self, name: str, applications: int) -> dict[str, float]:
        """Messages and bytes of one application, of all ranks together."""
        case = self._cases[name]
        before = _sent(case)
        for _ in range(applications):
            case.apply()
        messages, nbytes = self.comm.sum((_sent(case) - before) / applications).tolist()
        return {"messages": messages, "bytes": nbytes}

    def alone(
        self, problem: str, mesh: str, order: int, sizes: list[int], level: str, seconds: float
    ) -> dict[str, Any]:
        """Seconds on boxes of so many elements a direction that each rank has to itself."""
        found: dict[str, Any] = {"elements": [], "seconds": []}
        chosen = PROBLEMS[problem]
        for n in sizes:
            nodes = (n * order + 1.0) ** 3
            V = make_space(chosen, mesh, order, nodes * chosen.ncomp)
            operator = chosen.operator(V, level)
            x, y = np.random.default_rng(n).standard_normal(V.size), np.empty(V.size)
            times, _, lost = self._calmly(lambda: operator.apply(x, y), seconds)  # noqa: B023
            found["elements"].append(V.mesh.num_elements)
            found["seconds"].append(float(np.median(times[_calm(times, lost)])))
        return found

    def pingpong(self, seconds: float) -> dict[str, float]:
        """Latency (s) and bandwidth (bytes/s) of messages between the first two ranks."""
        small, large = (self._one_way(nbytes, seconds) for nbytes in _MESSAGES)
        more = _MESSAGES[1] - _MESSAGES[0]
        return {"latency": small, "bandwidth": more / max(large - small, 1e-12)}

    def _one_way(self, nbytes: int, seconds: float) -> float:
        """Seconds of a message of so many bytes: half of those there and back."""
        other = {0: 1, 1: 0}.get(self.comm.rank)
        sizes = {} if other is None else {other: nbytes // 8}
        there, back = (
            self.comm.channel(sizes if self.comm.rank == a else {}, sizes if b else {}, _REAL)
            for a, b in ((0, self.comm.rank == 1), (1, self.comm.rank == 0))
        )

        def round_trip() -> None:
            for channel in (there, back):
                channel.start()
                channel.finish()

        times, _, lost = self._calmly(round_trip, seconds)
        return float(np.median(times[_calm(times, lost)])) / 2.0

    def memory(
        self, problem: str, mesh: str, order: int, counts: list[int], level: str
    ) -> dict[str, Any]:
        """Peak of the memory (bytes) that mesh, space and operator take, on the rank with most."""
        arguments = "memory", problem, mesh, order
        self.prepare(*arguments, [2, 2, 2], level)  # code is loaded, and compiled
        self._cases.clear()
        self._meshes.clear()
        with peak_of() as peak:
            facts = self.prepare(*arguments, counts, level)
        return facts | {"bytes": self.comm.max(peak.nbytes), "sum": self.comm.sum(peak.nbytes)}


@final
@dataclass
class Peak:
    """Largest resident memory inside `peak_of`, less that before."""

    nbytes: int = 0


@contextmanager
def peak_of() -> Iterator[Peak]:
    """Measure the most memory of this process inside, less what it had before. Linux only.

    Raises
    ------
    OperatorError
        The kernel does not tell.
    """
    peak = Peak()
    try:
        (_PROCESS / "clear_refs").write_text(_RESET, encoding="ascii")
        before = _kibibytes("VmRSS")
        yield peak
        peak.nbytes = 1024 * (_kibibytes("VmHWM") - before)
    except OSError as error:
        raise OperatorError(
            f"memory is measured by /proc on Linux, this is {sys.platform}: {error}"
        ) from error


def _kibibytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", (_PROCESS / "status").read_text("ascii"), re.M)
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1])


_REAL = np.dtype(np.float64)


def _losses() -> int:
    """Number of times that the system has given this process' core to another."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _calm(times: NDArray[np.float64], lost: NDArray[np.float64]) -> NDArray[np.intp]:
    """Those in which all ranks kept their cores; the fastest, if these are too few for a median."""
    calm = np.flatnonzero(lost == 0)
    return calm if len(calm) >= LEAST else np.argsort(times)[:LEAST]


def _sent(case: Case) -> NDArray[np.float64]:
    channels = case.channels()
    return np.array([sum(c.messages for c in channels), sum(c.nbytes for c in channels)], float)


def pin(comm: Communicator) -> None:
    """Keep this process to one core, no other rank's unless there are more ranks than cores."""
    firsts = comm.gather_all(np.array([comm.node.first]))[:, 0]
    before = int(np.count_nonzero(firsts[: comm.rank] == comm.node.first))
    mine = cores.own()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {mine[before % len(mine)]})


def orders(comm: Communicator) -> Iterator[dict[str, Any]]:
    """Yield on all ranks the orders that rank 0 reads, until there are no more."""
    while True:
        line = sys.stdin.readline() if comm.rank == 0 else ""
        comm.barrier(NAP)
        line = comm.broadcast(line)
        if not line.strip():
            return
        yield json.loads(line)


def main() -> None:
    """Obey until standard input ends."""
    comm = world()
    machine.set_threads(1)
    pin(comm)
    worker = Worker(comm)
    for order in orders(comm):
        answer = getattr(worker, order.pop("do"))(**order)
        if comm.rank == 0:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
