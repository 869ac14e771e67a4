"""Whole solves on a GPU, with multigrid and with Jacobi."""

from __future__ import annotations

from femops.bench.gpu.record import Row
from femops.bench.gpu.run import Run
from femops.bench.solvers.multigrid import prepared
from femops_kernels.cpu import machine


def solve_rows(name: str, case: tuple[str, int, float, str], run: Run) -> None:
    """Measure one problem (mesh, order, about how many dofs, level) with each preconditioner."""

    def rows() -> list[Row]:
        solves = prepared(*case, run.device)
        solves.round(run.seconds)
        return [
            {"name": f"{name}, {row['preconditioner']}"} | row
            for row in solves.rows(machine.get_threads())
        ]

    run.measure("solves", name, rows)
