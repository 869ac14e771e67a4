"""Gas dynamics on a GPU: seconds of forces and of whole steps, beside the CPU's states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.gpu.record import Record, Row
from femops.bench.gpu.validation import relative_difference
from femops.bench.problems import Progress
from femops.bench.timing import call_seconds, repeated
from femops.hydro import Lagrangian, Simulation, problem
from femops.hydro.meshes import built_in
from femops_kernels.cuda.device.device import Device

OFF = 1e-7
"""By how much states may differ from the CPU's: solves end at 1e-8."""

_COMPARED = 2  # steps, on a mesh of 8 elements
_STEPS, _END = 5, 1e3  # nothing runs so long


@final
@dataclass(frozen=True)
class GasCase:
    """A blast in three dimensions.

    Attributes
    ----------
    order : int
        Of position and velocity; the energy has one less.
    refine : int
        Times that a mesh of 8 elements is refined.
    """

    order: int
    refine: int

    @property
    def name(self) -> str:
        """Name of the case in words."""
        return f"gas, orders {self.order} and {self.order - 1}, refined {self.refine} times"

    def run(self, refine: int, device: Device | None) -> Simulation:
        """The blast at its beginning."""
        mesh, orders = built_in("cube01_hex").refine(refine), (self.order, self.order - 1)
        return Simulation.begin(Lagrangian(problem("sedov"), mesh, *orders, device=device))


GAS = (GasCase(2, 4), GasCase(3, 3), GasCase(4, 3))
"""Cases, the most important first: 32,768 elements, then 4,096."""


def gas_rows(
    device: Device, case: GasCase, seconds: float, found: Record, progress: Progress
) -> None:
    """Add the row of a case to a record."""
    row = found.measure(case.name, partial(_row, device, case, seconds))
    if row is not None:
        rate = row["forces_points_per_second"] * 1e-9
        progress(f"{case.name}: {row['seconds_step']:.3g} s a step, {rate:.3g} Gpoints/s")
        found.gas.append(row)


def _row(device: Device, case: GasCase, seconds: float) -> Row:
    states = _compared(case, device), _compared(case, None)
    off = relative_difference(*states)
    run = case.run(case.refine, device)
    equations = run.equations
    run.run(_END, max_steps=1)  # what is bound or compiled at first is so now

    def forces() -> None:
        equations.forces(run.state)  # the host looks at its time step

    forces_seconds = float(np.median(repeated(lambda: call_seconds(forces), seconds)))
    step = call_seconds(lambda: run.run(_END, max_steps=run.steps + _STEPS)) / _STEPS
    points = equations.part.num_elements * equations.quadrature.q1d**3
    return {
        "name": case.name,
        "order": case.order,
        "elements": equations.part.num_elements,
        "dofs": equations.V.size + equations.E.size,
        "seconds_forces": forces_seconds,
        "seconds_step": step,
        "forces_points_per_second": points / forces_seconds,
        "off_cpu": off,
    }


def _compared(case: GasCase, place: Device | None) -> NDArray[Any]:
    """State after a few steps on a small mesh."""
    run = case.run(0, place)
    run.run(_END, max_steps=_COMPARED)
    return np.concatenate([*run.equations.parts(run.state).values()])
