"""Scaling: operators on one rank and on many, measured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from femops.bench.problems import Progress
from femops.bench.scaling.study import Settings, Task, count_only, measure, rank_memory
from femops.bench.scaling.worlds import check_alone, started
from femops_kernels.cpu import machine

MEMORY_RANKS = (1, 2, 4, 8)
"""Numbers of ranks whose memory is measured."""


def run_scaling(
    settings: Settings,
    *,
    memory_ranks: Sequence[int] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure how operators scale over ranks, each one thread on its own core.

    Ranks are started by ``mpiexec``. Those numbers of ranks for which there are cores take turns;
    a row has the medians of the rounds, ``speedup`` and ``efficiency`` the median of the rounds'
    ratios to the fewest ranks. With more ranks than cores messages are counted and nothing is
    timed. What is counted is compared with the least that the partition allows.

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
        Settings that make no sense, ranks that failed, or counted messages that differ from the
        partition's.
    """
    settings.check()
    check_alone()
    show = progress or (lambda _: None)
    timed = settings.timed()
    found: dict[str, Any] = {"machine": machine.describe(), "rows": [], "memory": []}
    with ExitStack() as stack:
        worlds = [stack.enter_context(started(many)) for many in timed]
        if worlds:
            found["rows"] = measure(worlds, settings, show)
    levels = {
        Task(row["problem"], row["mesh"], row["method"]): row["level"] for row in found["rows"]
    }
    for many in settings.ranks:
        if many not in timed:
            show(f"messages of {many} ranks")
            found["rows"] += count_only(many, settings, levels)
    if memory_ranks:
        found["memory"] = rank_memory(settings, memory_ranks, show)
    return found


__all__ = ["MEMORY_RANKS", "Settings", "run_scaling"]
