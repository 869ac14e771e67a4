"""Whole solves on a GPU, with multigrid and with Jacobi."""

from __future__ import annotations

from functools import partial

from femops.bench.gpu.record import Record, Row
from femops.bench.problems import Progress
from femops.bench.solvers.multigrid import prepared
from femops_kernels.cpu import machine
from femops_kernels.cuda.device.device import Device

Case = tuple[str, int, float, str]
"""Mesh, order, about how many dofs, level."""


def solve_rows(
    device: Device, case: Case, seconds: float, found: Record, progress: Progress
) -> None:
    """Add the rows of one problem to a record, one for each preconditioner."""
    mesh, order, _, level = case
    name = f"solves, {mesh}, order {order}, {level}"
    if name in found.done:
        return
    for row in found.measure(name, partial(_rows, device, case, seconds)) or ():
        words = f"{row['preconditioner']}, {row['iterations']} iterations"
        progress(f"{name}, {words}: {row['seconds_solve']:.3g} s")
        found.solves.append({"name": f"{name}, {row['preconditioner']}"} | row)
    found.done.append(name)
    found.keep()


def _rows(device: Device, case: Case, seconds: float) -> list[Row]:
    solves = prepared(*case, device)
    solves.round(seconds)
    return solves.rows(machine.get_threads())
