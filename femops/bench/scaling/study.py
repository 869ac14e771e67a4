"""Study of scaling: times of operators on one rank and on several, messages, memory per rank."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, product
from typing import Any, NamedTuple, final

import numpy as np

from femops import launchers
from femops.bench.child import Child
from femops.bench.problems import FOOTPRINTS, PROBLEMS, Progress, check_asked, per_direction
from femops.bench.scaling.worker import METHODS
from femops.bench.timing import LEAST, in_turns
from femops.errors import OperatorError
from femops.parallel import cores, launch
from femops_kernels.cpu import machine
from femops_meshes import box, partition

_WORKER = "femops.bench.scaling.worker"
_ENVIRONMENT = {
    # Open MPI starts more ranks than cores only if told to
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # one thread for each rank, also in BLAS
    **dict.fromkeys(
        ("FEMOPS_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"
    ),
}

MOST_RANKS = 4096
"""Largest number of ranks: all processes are on one machine."""

MEMORY_RANKS = (1, 2, 4, 8)
"""Numbers of ranks whose memory is measured."""

Counts = tuple[int, int, int]
"""Elements of a box in each direction."""

Round = dict[str, float]


@final
class Task(NamedTuple):
    """One problem on one kind of mesh, and how it is applied to many vectors."""

    problem: str
    mesh: str
    method: str = METHODS[0]

    @property
    def name(self) -> str:
        """Name by which ranks remember the task."""
        return f"{self.problem} {self.mesh} {self.method}"


@final
@dataclass(frozen=True)
class Settings:
    """Settings of the study of scaling.

    Attributes
    ----------
    ranks : sequence of int
    order : int
    dofs : float
        Approximate number of dofs.  For weak scaling, that of each rank.
    problems, meshes : sequence of str
    level : str
    weak : bool
        True for weak scaling, where the problem grows with the ranks.
    rounds : int
    seconds : float
        Time of a round for one problem.
    nvec : int
        Number of vectors. With several, three methods take turns (`METHODS` of the worker).
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
        """Check the settings, before ranks are started.

        Raises
        ------
        OperatorError
            A name is unknown, a number is out of range, or there is nothing to measure.
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
        """Make the tasks: all problems on all meshes, by all methods if there are many vectors."""
        methods = METHODS if self.nvec > 1 else METHODS[:1]
        return [
            Task(problem, mesh, method)
            for mesh, problem, method in product(self.meshes, self.problems, methods)
        ]

    def counts(self, task: Task, ranks: int) -> Counts:
        """Number of elements of the box in each direction, on ``ranks`` ranks."""
        dofs = self.dofs * (ranks if self.weak else 1)
        n = per_direction(self.order, dofs / PROBLEMS[task.problem].ncomp)
        return n, n, n

    def timed(self) -> list[int]:
        """Numbers of ranks for which the machine has enough cores, ascending."""
        return [many for many in sorted(self.ranks) if many <= len(cores.own())]


def check_alone() -> str:
    """Check that ranks can be started, and return the command; see `World`."""
    mpiexec, (count, name) = launch.mpiexec(), launchers.launched()
    if count > 1:
        raise OperatorError(
            f"'bench scaling' starts its ranks itself, but is one of {count} ({name}): "
            "run it without mpiexec"
        )
    return mpiexec


@final
class World:
    """Ranks with one thread each, pinned to its own core, which sleep between requests."""

    def __init__(self, ranks: int) -> None:
        command = [check_alone(), "-n", str(ranks), sys.executable, "-m", _WORKER]
        failed = f"{ranks} ranks failed, mpiexec ended with"
        self.ranks, self._child = ranks, Child(failed, command, _ENVIRONMENT)
        self.close = self._child.close

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Let all ranks call a method of `worker.Worker`, and return the answer."""
        return self._child.ask({"do": do} | arguments)


def started(ranks: int) -> AbstractContextManager[World]:
    """Start a world, which ends with the ``with`` block."""
    return closing(World(ranks))


def run_scaling(
    settings: Settings,
    *,
    memory_ranks: Sequence[int] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure how operators scale over ranks, each one thread on its own core.

    ``mpiexec`` starts the ranks. All numbers of ranks for which there are cores take turns. A row
    has the medians of the rounds; ``speedup`` and ``efficiency`` are medians of the rounds' ratios
    to the fewest ranks. With more ranks than cores messages are counted, but nothing is timed. The
    counts must be the least that the partition allows.

    Parameters
    ----------
    settings : Settings
    memory_ranks : sequence of int
        Numbers of ranks whose memory is measured.
    progress : callable, optional
        Called with a line of text before each step.

    Returns
    -------
    dict
        ``machine``, ``rows``, ``memory``: see `docs/parallel.md`.

    Raises
    ------
    MissingExtraError
        mpi4py or mpiexec is missing.
    OperatorError
        Settings that make no sense, ranks that failed, or counts that are not the least.
    """
    settings.check()
    check_alone()
    show = progress or (lambda _: None)
    timed = settings.timed()
    with ExitStack() as stack:
        worlds = [stack.enter_context(started(many)) for many in timed]
        rows = measure(worlds, settings, show) if worlds else []
    levels = {Task(row["problem"], row["mesh"], row["method"]): row["level"] for row in rows}
    for many in settings.ranks:
        if many not in timed:
            show(f"messages of {many} ranks")
            rows += count_only(many, settings, levels)
    memory = rank_memory(settings, memory_ranks, show) if memory_ranks else []
    return {"machine": machine.describe(), "rows": rows, "memory": memory}


def prepare(world: World, task: Task, settings: Settings, level: str) -> dict[str, Any]:
    """Let ranks make the operator of a task. Return its ``dofs``, ``elements`` and ``level``."""
    counts = settings.counts(task, world.ranks)
    given = {"order": settings.order, "counts": counts, "level": level, "nvec": settings.nvec}
    return world.ask("prepare", name=task.name, **task._asdict(), **given)


def time_once(world: World, task: Task, seconds: float) -> Round:
    """Time one round, on several ranks also without overlap; see `Worker.time` for the result."""
    found = world.ask("time", name=task.name, seconds=seconds, overlap=True)
    if world.ranks > 1:
        other = world.ask("time", name=task.name, seconds=seconds, overlap=False)
        found |= {f"{name}_without_overlap": value for name, value in other.items()}
    return found


def measure(
    worlds: Sequence[World], settings: Settings, progress: Progress
) -> list[dict[str, Any]]:
    """Measure all tasks on all worlds, which take turns, and return the rows.

    Problems are measured one after the other, because many vectors of several problems would not
    fit into memory.
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
    facts: dict[tuple[Task, World], dict[str, Any]] = {}
    for task in tasks:
        level = settings.level
        for world in worlds:
            progress(f"{task.name}, {world.ranks} ranks: set up")
            facts[task, world] = prepare(world, task, settings, level)
            level = facts[task, world]["level"]  # "auto" chooses with the fewest ranks
    measures = {
        (task, world): partial(time_once, world, task, settings.seconds) for task, world in facts
    }
    show = partial(progress, f"{tasks[0].name}: a round of {settings.rounds}")
    rounds, base, rows = in_turns(measures, settings.rounds, show), worlds[0], []
    for (task, world), fact in facts.items():
        found = speeds(rounds[task, world], rounds[task, base])
        found["speedup"] *= fact["dofs"] / facts[task, base]["dofs"]
        found["efficiency"] = found["speedup"] * base.ranks / world.ranks
        found["dofs_per_second"] = fact["dofs"] * settings.nvec / found["seconds"]
        rows.append(_row(world, task, settings, fact, UNTIMED | found))
    return rows


def _row(
    world: World, task: Task, settings: Settings, facts: dict[str, Any], times: dict[str, Any]
) -> dict[str, Any]:
    kind = "weak" if settings.weak else "strong"
    asked = {"nvec": settings.nvec, "order": settings.order, "scaling": kind, "ranks": world.ranks}
    return task._asdict() | asked | facts | times | messages(world, task, settings, facts["level"])


def speeds(rounds: Sequence[Round], base: Sequence[Round]) -> dict[str, Any]:
    """Medians of times, and of the rounds' ratios to the times on the fewest ranks (``base``).

    Only rounds count in which both measurements were undisturbed. If there are none, all count.
    """
    calm = [k for k, both in enumerate(zip(rounds, base, strict=True)) if all(map(_calm, both))]
    chosen = calm or range(len(rounds))
    names = ("seconds", *_WAITS) if "wait_without_overlap" in rounds[0] else ("seconds",)
    medians = {name: float(np.median([rounds[k][name] for k in chosen])) for name in names}
    ratios = [base[k]["seconds"] / rounds[k]["seconds"] for k in chosen]
    least = min(each["seconds"] for each in rounds)
    found = {"timed": True, "calm_rounds": len(calm), "seconds_min": least}
    return found | medians | {"speedup": float(np.median(ratios))}


def _calm(found: Round) -> bool:
    """True if there were enough undisturbed applications."""
    return all(value >= LEAST for name, value in found.items() if name.startswith("calm"))


_WAITS = ("wait", "wait_without_overlap", "seconds_without_overlap")
_TIMES = ("calm_rounds", "seconds", "seconds_min", "dofs_per_second", "speedup", "efficiency")
UNTIMED: dict[str, Any] = {"timed": False} | dict.fromkeys((*_TIMES, *_WAITS))
"""Entries of a row that stay empty on more ranks than cores."""


def messages(world: World, task: Task, settings: Settings, level: str) -> dict[str, Any]:
    """Count messages and bytes of an application, and compare them with `least_exchange`."""
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
    """Return the least numbers of messages and values for the two exchanges of an application."""
    messages, dofs = partition(box(counts), ranks).exchange(order)
    return 2 * messages, 2 * dofs


def count_only(ranks: int, settings: Settings, levels: dict[Task, str]) -> list[dict[str, Any]]:
    """Make the rows of more ranks than cores: messages are counted, nothing is timed."""
    rows = []
    with started(ranks) as world:
        for task in settings.tasks():
            facts = prepare(world, task, settings, levels.get(task, "partial"))
            rows.append(_row(world, task, settings, facts, UNTIMED))
    return rows


def rank_memory(
    settings: Settings, ranks: Sequence[int], progress: Progress
) -> list[dict[str, Any]]:
    """Peak memory of a rank while mesh, space and operator are made, for each number of ranks.

    Rows are for the first problem and mesh: ``bytes`` on the rank with most memory, ``sum`` over
    ranks, and ``times_share``, which is 1 if the bytes fall as 1/ranks: bytes times ranks, relative
    to the row with the fewest ranks.
    """
    task, rows = settings.tasks()[0], list[dict[str, Any]]()
    level = "partial" if settings.level == "auto" else settings.level
    case = {"problem": task.problem, "mesh": task.mesh}
    asked = {"order": settings.order, "counts": settings.counts(task, 1), "level": level}
    for many in ranks:
        progress(f"memory of {many} ranks")
        with started(many) as world:
            row = case | {"ranks": many} | world.ask("memory", **case, **asked)
        first = rows[0] if rows else row
        more = many / first["ranks"]
        rows.append(row | {"times_share": row["bytes"] * more / first["bytes"]})
    return rows
