"""Benchmark of operators, which take turns in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, final

import numpy as np

from femops.bench.bounds import Traffic, host_bound, least_traffic
from femops.bench.machine import Meter, several_memories, using
from femops.bench.peers import interface as peer
from femops.bench.problems import (
    FOOTPRINTS,
    MESHES,
    PROBLEMS,
    REPRODUCIBLE,
    Problem,
    Progress,
    check_asked,
    choose,
    default_dofs,
    make_space,
)
from femops.bench.timing import median_seconds
from femops.errors import OperatorError
from femops.operators import Operator
from femops.operators.levels.auto import flush_memory
from femops.operators.levels.dispatch import LEVELS
from femops.spaces.h1_l2 import H1
from femops_kernels.cpu import machine
from femops_kernels.cpu.first_touch import placed

CLOSE = 0.05
"""Largest relative loss of the level "auto" against the best level."""

Row = dict[str, Any]
Size = tuple[float, str]
"""Approximate number of dofs, and the name of the footprint."""


@final
@dataclass
class Case:
    """An operator of femops, or of a peer, that is timed in rounds."""

    facts: Row  # first entries of the row
    time: Callable[[], float]  # measures the median seconds of an application in a round
    more: Callable[[float], Row]  # last entries of the row, from the median of the rounds
    seconds: list[float] = field(default_factory=list)  # median of each round
    fault: str = ""  # reason why a peer has failed

    def row(self) -> Row:
        """Return the row of the result."""
        median = float(np.median(self.seconds))
        times = {"seconds_min": min(self.seconds), "seconds_median": median}
        speed = {"dofs_per_second": self.facts["dofs"] / median}
        return self.facts | times | speed | self.more(median)


def _facts(problem: Problem, kind: str, V: H1, level: str, threads: int) -> Row:
    facts: Row = {"problem": problem.name, "mesh": kind, "order": V.order}
    facts |= {"q1d": problem.rule(V.order).q1d, "dofs": V.size}
    return facts | {"level": level, "threads": threads}


@final
@dataclass
class Bench:
    """Benchmark that measures operators in turns with the machine's limits and other libraries."""

    threads: tuple[int, ...]
    meshes: Sequence[str] = MESHES
    levels: Sequence[str] = ("auto",)
    peers: Sequence[str] = ()
    rounds: int = 5
    seconds: float = 0.3  # time of a round for one case
    rows: list[dict[str, Any]] = field(default_factory=list, init=False)  # rows of the result
    # lines about cases that were not measured, as keys
    notes: dict[str, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Check the choice of cases, and prepare to measure the machine's limits."""
        plain = [kind.removesuffix(REPRODUCIBLE) for kind in self.meshes]
        check_asked(meshes=plain, levels=self.levels, rounds=self.rounds)
        choose("peer", self.peers, peer.PEERS, none=True)
        self._meter = Meter(self.threads)

    def levels_of(self, threads: int, beside: Sequence[str]) -> Sequence[str]:
        """Levels to measure on ``threads`` threads: those chosen; on the fewest also ``beside``."""
        return (*self.levels, *(beside if threads == min(self.threads) else ()))

    def measure(self, problem: Problem, order: int, size: Size, beside: Sequence[str] = ()) -> None:
        """Measure one problem at one order, all cases in turns, and add the rows."""
        with ExitStack() as stack:
            cases: list[Case] = []
            for kind in self.meshes:
                cases += self._operators(problem, kind, order, size, beside)
            cases += self._peers(problem, order, size, stack)
            for _ in range(self.rounds):
                self._meter.round()
                for case in cases:
                    if not case.fault:
                        case.seconds.append(case.time())
        self.notes.update((case.fault, None) for case in cases if case.fault)
        rows = [case.row() for case in cases if not case.fault]
        # operators come first: their rows have all keys
        self.rows += [{key: row.get(key) for key in rows[0]} for row in rows]

    def _operators(
        self, problem: Problem, kind: str, order: int, size: Size, beside: Sequence[str]
    ) -> Iterator[Case]:
        """Make the cases of femops on one mesh; see `measure`."""
        V = make_space(problem, kind, order, size[0])
        traffic = least_traffic(problem, V)
        random = np.random.default_rng(order).standard_normal(V.size)
        known: dict[str, Operator] = {}
        chosen: dict[str, str] = {}
        several = several_memories()
        for threads in self.threads:
            with using(threads):
                if several or not known:  # arrays near many threads are far from a single thread
                    V = H1(V.distributed or V.mesh, V.order, V.ncomp) if several else V
                    known = {"matrix-free": problem.operator(V, "matrix-free")}
                x, y = placed(random), np.empty(V.size)
            for level in self.levels_of(threads, beside):
                with using(threads):
                    # "auto" chooses with the fewest threads, so that more do the same work
                    operator = known["matrix-free"].at_level(chosen.get(level, level))
                    chosen[level] = operator.level
                    # an operator of this level may have been made before, with its data
                    operator = known.setdefault(operator.level, operator)
                    operator.apply(x, y)
                facts = _facts(problem, kind, V, operator.level, threads)
                asked = {"implementation": "femops", "asked": level, "footprint": size[1]}
                call = partial(operator.apply, x, y)
                yield self._case(operator, facts, asked, traffic, call)

    def _case(
        self, operator: Operator, facts: Row, asked: Row, traffic: Traffic, call: partial[Any]
    ) -> Case:
        """Make a case whose limits are measured in the same rounds."""
        cost, dofs, threads = operator.cost(), facts["dofs"], facts["threads"]
        bandwidths: list[float] = []

        def time() -> float:
            bandwidths.append(self._meter.bandwidth(threads, traffic))
            with using(threads):
                return median_seconds(call, self.seconds)

        def more(seconds: float) -> Row:
            triad = self._meter.triad(threads, self.rounds) * 1e9
            peak = self._meter.peak(threads, self.rounds)
            bandwidth = float(np.median(bandwidths))
            bound = host_bound(traffic.total, cost.flops, bandwidth, peak)
            speed = bound.speed(dofs, seconds)
            return {
                "bytes_per_dof": cost.bytes_moved / dofs,
                "flops_per_dof": cost.flops / dofs,
                "roofline": dofs / max(cost.bytes_moved / triad, cost.flops / (peak * 1e9)),
                **asked,
                "least_bytes_per_dof": traffic.total / dofs,
                "least_level": traffic.level,
                "bandwidth_gbytes_per_second": bandwidth,
                "fma_gflops_per_second": peak,
                **{name: speed[name] for name in ("limit", "bound", "fraction_of_limit")},
                "fraction_of_fma_peak": cost.flops / seconds / (peak * 1e9),
            }

        return Case(facts, time, more)

    def _peers(self, problem: Problem, order: int, size: Size, stack: ExitStack) -> Iterator[Case]:
        """Make the cases of peers that are installed, have the problem, and agree with femops."""
        meshes = [kind for kind in self.meshes if kind in peer.PEER_MESHES]
        if self.peers and (problem.name not in peer.PEER_PROBLEMS or not meshes):
            known = f"{' and '.join(peer.PEER_PROBLEMS)}, {' and '.join(peer.PEER_MESHES)}"
            self.notes[f"peers: only on {known}"] = None
            return
        for kind, name in product(meshes, self.peers):
            if fault := peer.why_not(name, order):
                self.notes[fault] = None
                continue
            V = make_space(problem, kind, order, peer.peer_dofs(name, order, size[0]))
            try:  # if a peer fails, the results of others are kept
                other = stack.enter_context(closing(peer.Peer(name, problem, kind, V)))
            except OperatorError as error:
                self.notes[str(error)] = None
                continue
            off = other.difference(problem, V)
            if not off <= peer.PEER_TOLERANCE:
                case = f"{name}, {problem.name}, {kind}, order {order}"
                self.notes[f"{case}: off by {off:.1e}, not reported"] = None
                continue
            yield self._beside(other, _facts(problem, kind, V, other.level, 1), size[1])

    def _beside(self, other: peer.Peer, facts: Row, footprint: str) -> Case:
        """Make the case of a peer, whose row has no bytes, operations and limit."""
        more = {"implementation": other.label, "asked": other.level, "footprint": footprint}

        def time() -> float:
            try:
                return other.time(self.seconds)
            except OperatorError as error:
                case.fault = str(error)
                return 0.0

        case = Case(facts, time, lambda _: more)
        return case

    def result(self) -> dict[str, Any]:
        """Return the benchmark's result; see `run`."""
        return {
            "machine": self._meter.describe(),
            "limits": self._meter.limits(),
            "rows": self.rows,
            "auto": auto_check(self.rows),
            "notes": list(self.notes),
        }


def run(
    problem: str,
    orders: Sequence[int] = tuple(range(1, 9)),
    dofs: float | None = None,
    threads: int | None = None,
    *,
    footprint: str = "ram",
    meshes: Sequence[str] = MESHES,
    levels: Sequence[str] = ("auto",),
    peers: Sequence[str] = (),
    rounds: int = 5,
    seconds: float = 0.3,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure an operator's speed on this machine.

    For each order, all meshes and levels take turns with the machine's own limits for a number of
    rounds.  A row reports the median (and least) of the rounds' medians.  A mesh or level that is
    named twice is measured once.

    Parameters
    ----------
    problem : {"bp1", "bp2", "bp3", "bp4", "bp5", "bp6"}
        See `femops.bench.PROBLEMS`.
    orders : sequence of int
    dofs : float, optional
        Approximate number of unknowns; that of the footprint if omitted.
    threads : int, optional
        Number of threads; that of `femops_kernels.cpu.machine.get_threads` if omitted.  A single
        thread is pinned to its core.
    footprint : {"ram", "cache"}
        See `femops.bench.FOOTPRINTS`.
    meshes : sequence of {"cartesian", "multilinear", "curved"}
    levels : sequence of str
        See `Operator.at_level`.
    peers : sequence of str
        Names in `femops.bench.peers.interface.PEERS`. Libraries to measure too, with one thread
        each, on Cartesian and multilinear meshes (bp1 and bp3). Those that assemble matrices have
        fewer dofs.
    rounds : int
    seconds : float
        Time of a round for one mesh and level.
    progress : callable, optional
        Called with a line of text before each order.

    Returns
    -------
    dict
        ``machine``: `femops_kernels.cpu.machine.describe` with ``triad_gbytes_per_second`` and
        ``fma_gflops_per_second`` (medians); ``limits`` of each number of threads; ``rows``: see
        `docs/measurements.md` for the keys; ``auto``: see `auto_check`; ``notes``: lines about
        cases that are not measured.

    Raises
    ------
    OperatorError
        An unknown problem, mesh, level, footprint or peer, no order, fewer than one dof or round.
    femops_kernels.errors.KernelValueError
        More threads than there can be, or none.
    """
    count = machine.get_threads() if threads is None else threads
    size, name = (FOOTPRINTS.get(footprint, 1.0), footprint) if dofs is None else (dofs, "given")
    check_asked(problems=(problem,), footprints=(footprint,), orders=orders, dofs=(size,))
    meshes, levels, peers = (tuple(dict.fromkeys(given)) for given in (meshes, levels, peers))
    bench = Bench((count,), meshes, levels, peers, rounds, seconds)
    for order in dict.fromkeys(orders):
        if progress:
            progress(f"{problem}, order {order}")
        bench.measure(PROBLEMS[problem], order, (size, name))
    return bench.result()


def run_all(
    orders: Sequence[int] = tuple(range(1, 9)),
    threads: int | None = None,
    *,
    dofs: dict[str, float] | None = None,
    peers: Sequence[str] = (),
    rounds: int = 3,
    seconds: float = 0.03,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure every problem on every mesh, in and out of cache, on one core and on all.

    At p = 1 all levels are measured on one core, besides "auto".

    Other arguments, the result and errors are as in `femops.bench.run`.

    Parameters
    ----------
    threads : int, optional
        Number of threads.  If omitted, one thread and `femops_kernels.cpu.machine.get_threads`
        threads.
    dofs : dict, optional
        Approximate number of dofs for each footprint; `default_dofs` if omitted.
    """
    counts = sorted({1, machine.get_threads()}) if threads is None else [threads]
    check_asked(orders=orders, footprints=dofs, dofs=(dofs or {}).values())
    bench = Bench(tuple(counts), peers=peers, rounds=rounds, seconds=seconds)
    _held = flush_memory()  # allocated once for all choices of levels
    for footprint in FOOTPRINTS if dofs is None else dofs:
        for order in dict.fromkeys(orders):
            count = default_dofs(footprint, order) if dofs is None else dofs[footprint]
            for problem in sorted(PROBLEMS.values(), key=lambda p: p.ncomp):
                if progress:
                    progress(f"{problem.name}, order {order}, {footprint}")
                beside = LEVELS if order == 1 else ()
                bench.measure(problem, order, (count, footprint), beside)
    bench.rows.sort(key=lambda row: (row["footprint"] != "ram", row["threads"], row["problem"]))
    return bench.result()


def auto_check(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the level "auto" with the best of the levels measured beside it.

    Parameters
    ----------
    rows : list of dict
        Rows in the result of `run`.

    Returns
    -------
    list of dict
        An entry for each case with "auto" and other levels: the ``chosen`` level, the ``best``
        level, ``seconds`` of all levels, ``loss`` (time over the time of the best level, minus 1)
        and ``close``, True if the loss is at most 5 %.
    """
    same = ("problem", "mesh", "order", "dofs", "threads", "footprint")
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["implementation"] == "femops":
            groups.setdefault(tuple(row[key] for key in same), {})[row["asked"]] = row
    checks = []
    for key, group in groups.items():
        times = {name: group[name]["seconds_median"] for name in LEVELS if name in group}
        if "auto" not in group or not times:
            continue
        chosen, best = group["auto"]["level"], min(times, key=lambda name: times[name])
        # prefer the row of the chosen level, because other levels were timed in the same way
        loss = times.get(chosen, group["auto"]["seconds_median"]) / times[best] - 1.0
        found = {"chosen": chosen, "best": best, "loss": loss, "close": loss <= CLOSE}
        checks.append(dict(zip(same, key, strict=True)) | found | {"seconds": times})
    return checks
