"""Operators timed on one rank and on several, in turns; messages counted; memory a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, product
from typing import Any, final

import numpy as np

from femops.bench.problems import FOOTPRINTS, PROBLEMS, Progress, check_asked, per_direction
from femops.bench.scaling.worker import METHODS
from femops.bench.scaling.worlds import World, started
from femops.bench.timing import LEAST
from femops.errors import OperatorError
from femops.parallel import cores
from femops_meshes import box, partition

MOST_RANKS = 4096
"""More processes are no use on the machine that this is started on."""

Counts = tuple[int, int, int]
"""Elements of a box in each direction."""


@final
@dataclass(frozen=True)
class Task:
    """One problem on one kind of mesh, and how it is applied to many vectors."""

    problem: str
    mesh: str
    method: str = METHODS[0]

    @property
    def name(self) -> str:
        """Name by which ranks remember the task."""
        return f"{self.problem} {self.mesh} {self.method}"

    @property
    def case(self) -> dict[str, str]:
        """Problem and mesh by name."""
        return {"problem": self.problem, "mesh": self.mesh}


@final
@dataclass(frozen=True)
class Settings:
    """Choice of what is measured, and for how long.

    Attributes
    ----------
    ranks : sequence of int
    order : int
    dofs : float
        About how many; of each rank if weak.
    problems, meshes : sequence of str
    level : str
    weak : bool
        Whether the problem grows with the ranks.
    rounds : int
    seconds : float
        Of a round for one problem.
    nvec : int
        Vectors: with several, three methods take turns (`METHODS` of the worker).
    """

    ranks: Sequence[int] = (1, 2)
    order: int = 4
    dofs: float = FOOTPRINTS["ram"]
    problems: Sequence[str] = ("bp1", "bp3")
    meshes: Sequence[str] = ("cartesian", "multilinear")
    level: str = "auto"
    weak: bool = False
    rounds: int = 5
    seconds: float = 0.3
    nvec: int = 1

    def check(self) -> None:
        """Check all of it, before anything is started.

        Raises
        ------
        OperatorError
            An unknown name, nothing to measure, or too much.
        """
        named = {"problems": self.problems, "meshes": self.meshes, "levels": (self.level,)}
        check_asked(**named, orders=(self.order,), dofs=(self.dofs,), rounds=self.rounds)
        if not self.ranks or not 1 <= min(self.ranks) <= max(self.ranks) <= MOST_RANKS:
            raise OperatorError(
                f"ranks are {list(self.ranks)}: give at least one, all from 1 to {MOST_RANKS}"
            )
        if self.nvec < 1:
            raise OperatorError(f"{self.nvec} vectors: give at least one")

    def tasks(self) -> list[Task]:
        """All problems on all meshes, by all methods that differ."""
        methods = METHODS if self.nvec > 1 else METHODS[:1]
        return [
            Task(problem, mesh, method)
            for mesh, problem, method in product(self.meshes, self.problems, methods)
        ]

    def counts(self, task: Task, ranks: int) -> Counts:
        """Elements of the box in each direction."""
        dofs = self.dofs * (ranks if self.weak else 1)
        n = per_direction(self.order, dofs / PROBLEMS[task.problem].ncomp)
        return n, n, n

    def timed(self) -> list[int]:
        """The numbers of ranks for which there are cores, ascending."""
        return [many for many in sorted(self.ranks) if many <= len(cores.own())]


@final
@dataclass
class Timing:
    """One task on one number of ranks.

    Attributes
    ----------
    facts : dict
        What the ranks say of it: ``dofs``, ``elements``, ``level``.
    rounds : list of dict
        ``seconds``, ``wait``, ``calm`` of each round, and the same ``_without_overlap``.
    """

    task: Task
    ranks: int
    facts: dict[str, Any]
    rounds: list[dict[str, float]] = field(default_factory=list)

    def measure(self, world: World, seconds: float) -> None:
        """One round."""
        found = world.ask("time", name=self.task.name, seconds=seconds, overlap=True)
        if self.ranks > 1:
            other = world.ask("time", name=self.task.name, seconds=seconds, overlap=False)
            found |= {f"{name}_without_overlap": value for name, value in other.items()}
        self.rounds.append(found)

    def calm(self) -> list[bool]:
        """True for each round that had enough undisturbed applications."""
        names = [name for name in self.rounds[0] if name.startswith("calm")]
        return [min(each[name] for name in names) >= LEAST for each in self.rounds]


def prepare(world: World, task: Task, settings: Settings, level: str) -> Timing:
    """Let ranks make the operator of a task."""
    counts = settings.counts(task, world.ranks)
    given = {"order": settings.order, "counts": counts, "level": level, "nvec": settings.nvec}
    facts = world.ask("prepare", name=task.name, **vars(task), **given)
    return Timing(task, world.ranks, facts)


def measure(
    worlds: Sequence[World], settings: Settings, progress: Progress
) -> list[dict[str, Any]]:
    """Rows of all tasks on all worlds, which take turns, and what their messages are.

    Problems are measured one after the other, as those of many vectors would not fit beside each
    other.
    """
    rows = []
    for _, group in groupby(settings.tasks(), key=lambda task: (task.mesh, task.problem)):
        rows += _measure_together(list(group), worlds, settings, progress)
        for world in worlds:
            world.ask("forget")
    return rows


def _measure_together(
    tasks: Sequence[Task], worlds: Sequence[World], settings: Settings, progress: Progress
) -> list[dict[str, Any]]:
    timings: list[tuple[World, Timing]] = []
    for task in tasks:
        level = settings.level
        for world in worlds:
            progress(f"{task.name}, {world.ranks} ranks: set up")
            timing = prepare(world, task, settings, level)
            level = timing.facts["level"]  # "auto" chooses with the fewest ranks
            timings.append((world, timing))
    for k in range(settings.rounds):
        progress(f"{tasks[0].name}: round {k + 1} of {settings.rounds}")
        for world, timing in timings:
            timing.measure(world, settings.seconds)
    fewest = {timing.task: timing for _, timing in reversed(timings)}
    return [
        _row(world, timing, settings, _speeds(timing, fewest[timing.task], settings.nvec))
        for world, timing in timings
    ]


def _row(
    world: World, timing: Timing, settings: Settings, speeds: dict[str, Any]
) -> dict[str, Any]:
    kind = "weak" if settings.weak else "strong"
    facts = {"nvec": settings.nvec, "order": settings.order, "scaling": kind}
    sent = messages(world, timing.task, settings, timing.facts["level"])
    return vars(timing.task) | facts | {"ranks": timing.ranks} | timing.facts | speeds | sent


def _speeds(timing: Timing, base: Timing, nvec: int = 1) -> dict[str, Any]:
    """Times, and their ratio to those on the fewest ranks, the median of the rounds' ratios.

    Of the rounds in which neither was disturbed; of all, if there is none.
    """
    both = [one and many for one, many in zip(base.calm(), timing.calm(), strict=True)]
    calm = [k for k, quiet in enumerate(both) if quiet]
    chosen = calm or list(range(len(both)))

    def median(name: str) -> float:
        return float(np.median([timing.rounds[k][name] for k in chosen]))

    ratios = [base.rounds[k]["seconds"] / timing.rounds[k]["seconds"] for k in chosen]
    speedup = float(np.median(ratios)) * timing.facts["dofs"] / base.facts["dofs"]
    waits = _WAITS if timing.ranks > 1 else ()
    found = {
        "timed": True,
        "calm_rounds": len(calm),
        "seconds": median("seconds"),
        "seconds_min": min(each["seconds"] for each in timing.rounds),
        "dofs_per_second": timing.facts["dofs"] * nvec / median("seconds"),
        "speedup": speedup,
        "efficiency": speedup * base.ranks / timing.ranks,
    }
    return UNTIMED | found | {name: median(name) for name in waits}


_WAITS = ("wait", "wait_without_overlap", "seconds_without_overlap")
UNTIMED: dict[str, Any] = {"timed": False} | dict.fromkeys(
    (
        *("calm_rounds", "seconds", "seconds_min", "dofs_per_second", "speedup", "efficiency"),
        *_WAITS,
    )
)
"""Entries of a row that stay empty on more ranks than cores."""


def messages(world: World, task: Task, settings: Settings, level: str) -> dict[str, Any]:
    """Messages and bytes of an application, counted, beside the least that the partition allows.

    Raises
    ------
    OperatorError
        They differ.
    """
    sent = world.ask("count", name=task.name, applications=3)
    if level == "full":  # a matrix needs columns that its rows' elements do not have
        return sent | {"least_messages": None, "least_bytes": None}
    each = settings.nvec if task.method == METHODS[2] else 1  # one message a neighbour, or many
    shared = least_exchange(settings.counts(task, world.ranks), world.ranks, settings.order)
    nbytes = np.dtype(np.float64).itemsize * PROBLEMS[task.problem].ncomp * settings.nvec
    least = shared[0] * each, shared[1] * nbytes
    if (sent["messages"], sent["bytes"]) != least:
        raise OperatorError(
            f"{task.name} on {world.ranks} ranks sends {sent['messages']:g} messages of "
            f"{sent['bytes']:g} bytes, the partition asks for {least[0]} of {least[1]}: a defect "
            "of femops, please report it"
        )
    return sent | {"least_messages": least[0], "least_bytes": least[1]}


@lru_cache(maxsize=8)
def least_exchange(counts: Counts, ranks: int, order: int) -> tuple[int, int]:
    """Return the least messages and values of an application: shared dofs to ghosts, and back."""
    messages, dofs = partition(box(counts), ranks).exchange(order)
    return 2 * messages, 2 * dofs


def count_only(ranks: int, settings: Settings, levels: dict[Task, str]) -> list[dict[str, Any]]:
    """Rows of more ranks than cores: messages, nothing timed."""
    rows = []
    with started(ranks) as world:
        for task in settings.tasks():
            timing = prepare(world, task, settings, levels.get(task, "partial"))
            rows.append(_row(world, timing, settings, UNTIMED))
    return rows


def rank_memory(
    settings: Settings, ranks: Sequence[int], progress: Progress
) -> list[dict[str, Any]]:
    """Memory that mesh, space and operator take on a rank at most while they are made.

    For each number of ranks, of the first problem and mesh: ``bytes`` on the rank with most,
    ``sum`` over ranks, and ``times_share``: bytes over those on the fewest ranks, times ranks over
    fewest ranks (1 if it falls as 1/ranks).
    """
    task = settings.tasks()[0]
    rows: list[dict[str, Any]] = []
    level = "partial" if settings.level == "auto" else settings.level
    asked = {"order": settings.order, "counts": settings.counts(task, 1), "level": level}
    for many in ranks:
        progress(f"memory of {many} ranks")
        with started(many) as world:
            facts = world.ask("memory", **task.case, **asked)
        rows.append(task.case | {"ranks": many} | facts)
    for row in rows:
        more = row["ranks"] / rows[0]["ranks"]
        row["times_share"] = row["bytes"] * more / rows[0]["bytes"]
    return rows
