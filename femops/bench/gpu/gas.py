"""Gas dynamics on a GPU: seconds of forces and of whole steps, beside the CPU's states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.bench.gpu.record import Row
from femops.bench.gpu.run import Run, relative_difference
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

    def compared(self, device: Device | None) -> NDArray[Any]:
        """State after a few steps on a small mesh."""
        run = self.run(0, device)
        run.run(_END, max_steps=_COMPARED)
        return np.concatenate([*run.equations.parts(run.state).values()])


GAS = (GasCase(2, 4), GasCase(3, 3), GasCase(4, 3))
"""Cases, the most important first: 32,768 elements, then 4,096."""


def gas_rows(case: GasCase, run: Run) -> None:
    """Measure the forces and the steps of a blast."""
    run.measure("gas", case.name, partial(_rows, case, run))


def _rows(case: GasCase, run: Run) -> list[Row]:
    off = relative_difference(case.compared(run.device), case.compared(None))
    gas = case.run(case.refine, run.device)
    equations = gas.equations
    gas.run(_END, max_steps=1)  # what is bound or compiled at first is so now

    def forces() -> None:
        equations.forces(gas.state)  # the host looks at its time step

    seconds = float(np.median(repeated(partial(call_seconds, forces), run.seconds)))
    step = call_seconds(lambda: gas.run(_END, max_steps=gas.steps + _STEPS)) / _STEPS
    elements = equations.part.num_elements
    return [
        {
            "name": case.name,
            "order": case.order,
            "elements": elements,
            "dofs": equations.V.size + equations.E.size,
            "seconds_forces": seconds,
            "seconds_step": step,
            "forces_points_per_second": elements * equations.quadrature.q1d**3 / seconds,
            "off_cpu": off,
        }
    ]
