"""The model with the figures of this machine, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from femops.bench.problems import PROBLEMS, Progress, per_direction
from femops.bench.scaling.halos import Counts, halo
from femops.bench.scaling.model import Model
from femops.bench.scaling.study import Settings, Task
from femops.bench.scaling.worlds import World
from femops.errors import OperatorError

DECADES = tuple(10**k for k in range(6))
"""Numbers of ranks of the model, those that were measured besides."""

LARGER = 1000
"""The second problem of the model has so many times the dofs."""


def _network(
    world: World, given: tuple[float | None, float | None], seconds: float
) -> tuple[float, float]:
    """Latency and bandwidth: what is given, and else what a ping-pong between two ranks says.

    Raises
    ------
    OperatorError
        Something is not given, and there are no two cores to measure it.
    """
    latency, bandwidth = given
    if latency is not None and bandwidth is not None:
        return latency, bandwidth
    if world.ranks < 2:
        raise OperatorError(
            "messages are timed between two ranks on two cores, and there are none: give "
            "--latency and --bandwidth, or --ranks 1,2 on more cores"
        )
    found = world.ask("pingpong", seconds=seconds)
    return latency or found["latency"], bandwidth or found["bandwidth"]


def _fitted(
    world: World, task: Task, level: str, links: tuple[float, float], settings: Settings
) -> Model:
    """The model of a task, with speeds of ranks measured while all ranks of a world work."""
    same = task.case | {"order": settings.order, "level": level}
    n = settings.counts(task, 1)[0]
    # half the elements of the largest too: there caches end
    sizes = sorted({min(n, 2**k) for k in range(12)} | {max(1, round(n * 0.5 ** (1.0 / 3.0)))})
    found = world.ask("alone", **same, sizes=sizes, seconds=settings.seconds / 3)
    overhead = 0.0
    if world.ranks > 1:  # an element a rank: what is left is no work and hardly messages
        world.ask("prepare", **same, name="line", counts=[world.ranks, 1, 1])
        least = world.ask("time", name="line", seconds=settings.seconds / 3, overlap=True)
        overhead = max(0.0, least["seconds"] - found["seconds"][0] - 2 * links[0])
    speed, ncomp = (found["elements"], found["seconds"]), PROBLEMS[task.problem].ncomp
    return Model(*links, *speed, overhead, settings.order, ncomp, halo)


def predict(
    worlds: Sequence[World],
    settings: Settings,
    rows: Sequence[dict[str, Any]],
    given: tuple[float | None, float | None],
    progress: Progress,
) -> list[dict[str, Any]]:
    """The model of each task: its figures, and tables of strong and weak scaling.

    Speeds are measured on the last and largest of the worlds; latency and bandwidth are ``given``,
    or measured.
    """
    links = _network(worlds[-1], given, settings.seconds)
    ranks = sorted({*DECADES, *settings.ranks})
    found = []
    for task in settings.tasks():
        progress(f"{task.name}: speed of a rank")
        mine = [row for row in rows if (row["problem"], row["mesh"]) == (task.problem, task.mesh)]
        model = _fitted(worlds[-1], task, mine[0]["level"], links, settings)
        found.append(_tables(model, task, settings, ranks, mine))
    return found


def _tables(
    model: Model, task: Task, settings: Settings, ranks: list[int], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    one = next((row for row in rows if row["ranks"] == 1 and row["timed"]), None)
    an_element = one["seconds"] / one["elements"] if one else None

    def sized(times: float) -> Counts:
        n = per_direction(model.order, settings.dofs * times / model.ncomp)
        return n, n, n

    strong = []
    for times in (1, LARGER):
        counts = sized(times)
        elements = counts[0] ** 3
        first = None if an_element is None else an_element * elements
        table = model.strong(counts, ranks, first)
        dofs = model.ncomp * (counts[0] * model.order + 1) ** 3
        strong.append({"elements": elements, "dofs": dofs, "rows": table})
    return {
        **task.case,
        "latency": model.latency,
        "bandwidth": model.bandwidth,
        "overhead": model.overhead,
        "speed": {"elements": model.elements, "seconds": model.measured},
        "strong": strong,
        "weak": model.weak(sized, ranks, an_element),
    }
