"""All problems, orders, meshes, footprints and numbers of threads in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from femops.bench.machine import Meter
from femops.bench.problems import FOOTPRINTS, PROBLEMS, check_names
from femops.bench.run import Progress, Settings, check_dofs, check_orders, document, measure
from femops.operators.execution.host import LEVELS
from femops.operators.levels.auto import flush_memory
from femops_kernels.cpu import machine


def default_dofs(footprint: str, order: int) -> float:
    """About how many dofs stand for a footprint.

    Out of cache an eighth at p = 1 and half at p = 2: setting up a mesh costs by the element, and
    a dof moves several times the bytes there.
    """
    part = {1: 1 / 8, 2: 1 / 2}.get(order, 1.0) if footprint == "ram" else 1.0
    return part * FOOTPRINTS[footprint]


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

    At p = 1 all levels are measured on one core, beside "auto".

    Parameters
    ----------
    orders : sequence of int
    threads : int, optional
        Only that many; if omitted one, and as many as `femops_kernels.cpu.machine.get_threads`
        says.
    dofs : dict, optional
        About how many of each footprint; `default_dofs` if omitted.
    peers, rounds, seconds, progress
        See `femops.bench.run`.

    Returns
    -------
    dict
        See `femops.bench.run`.

    Raises
    ------
    OperatorError
        An unknown peer or footprint, no order, fewer than one dof or round.
    femops_kernels.errors.KernelValueError
        More threads than there can be, or none.
    """
    counts = sorted({1, machine.get_threads()}) if threads is None else [threads]
    settings = Settings(tuple(counts), peers=peers, rounds=rounds, seconds=seconds)
    settings.check()
    check_orders(orders)
    if dofs is not None:
        check_names((), (), dofs)
        for many in dofs.values():
            check_dofs(many)
    meter, _held = Meter(settings.threads), flush_memory()  # made once for all that is chosen
    rows: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    for footprint in FOOTPRINTS if dofs is None else dofs:
        for order in dict.fromkeys(orders):
            count = default_dofs(footprint, order) if dofs is None else dofs[footprint]
            for problem in sorted(PROBLEMS.values(), key=lambda p: p.ncomp):
                if progress:
                    progress(f"{problem.name}, order {order}, {footprint}")
                given = replace(settings, beside=LEVELS) if order == 1 else settings
                rows += measure(problem, order, (count, footprint), given, meter, notes)
    rows.sort(key=lambda row: (row["footprint"] != "ram", row["threads"], row["problem"]))
    return document(meter, rows, notes)
