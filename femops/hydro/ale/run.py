"""Runs whose mesh is relaxed, and whose fields are remapped, every few steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, final

from femops.errors import HydroError
from femops.hydro.ale.relaxation import Relaxation, quality
from femops.hydro.ale.transfer import PointFields, transferred
from femops.hydro.ale.walls import check_flat
from femops.hydro.problems import POSITIVE
from femops.hydro.simulation import Simulation
from femops_meshes.arguments import Count, checked, whole_numbers


@final
@checked(HydroError)
class ArbitraryLagrangianEulerian:
    """Lagrangian steps, and after some of them a relaxation of the mesh and a remap.

    Parameters
    ----------
    run : Simulation
        Run on the host. All its ranks take part. Its equations and its state change at a remap.
        Its ``options`` get the options of the remaps.
    every : int
        Number of steps between remaps.
    length : float
        Length over which a relaxation smooths, in sizes of an element. The larger it is, the
        nearer the mesh stays to the initial mesh.
    least : float
        Quality of the mesh below which it is relaxed at once, see `quality`.

    Attributes
    ----------
    remaps : list of dict
        For each remap ``step``, ``t``, ``pseudo_steps``, ``quality`` before and after, and
        ``before`` and ``after``: mass, momentum, internal, kinetic and potential energy.

    Raises
    ------
    HydroError
        The run is on a device, or a wall of its initial mesh is bent or oblique.
    """

    def __init__(
        self,
        run: Simulation,
        every: Annotated[int, whole_numbers(1)] = 20,
        *,
        length: Annotated[float, POSITIVE] = 1.0,
        least: Annotated[float, POSITIVE] = 0.1,
    ) -> None:
        equations = run.equations
        if equations.space.device is not None:
            raise HydroError("remaps work on the host only: give --ale 0, or leave out the device")
        check_flat(equations)
        self.run, self._every, self._least = run, every, least
        self._relaxation = Relaxation(equations, length)
        own = {"ale": every, "ale_length": length, "ale_quality": least}
        run.options = run.options | own  # a copy of the run keeps its own
        self.remaps: list[dict[str, Any]] = []

    def advance(
        self,
        t_final: float,
        max_steps: Count | None = None,
        watch: Callable[[Simulation], Any] | None = None,
    ) -> None:
        """Run until a time, or until the total number of steps is ``max_steps``.

        Parameters
        ----------
        t_final : float
        max_steps : int, optional
        watch : callable, optional
            Called after each step, and after the remap that follows the step.

        Raises
        ------
        HydroError
            See `Simulation.run`. The relaxation or the remap fails. The state of ``run`` is the
            last good one.
        """
        run = self.run
        while run.t < t_final and (max_steps is None or run.steps < max_steps):
            run.run(t_final, run.steps + 1)
            if run.t < t_final and self._due():
                self.remap()
            if watch is not None:
                watch(run)

    def _due(self) -> bool:
        """True if a remap follows the last step."""
        if self.run.steps % self._every == 0:
            return True
        equations = self.run.equations
        position = equations.parts(self.run.state)["position"]
        return quality(equations.V, position) < self._least

    def remap(self) -> None:
        """Relax the mesh, and remap the fields."""
        run, equations = self.run, self.run.equations
        before = equations.parts(run.state)["position"]
        position = self._relaxation.relaxed(before)
        after, state, steps = transferred(equations, run.state, position)
        self.remaps.append(
            {
                "step": run.steps,
                "t": run.t,
                "pseudo_steps": steps,
                "quality": [quality(equations.V, x) for x in (before, position)],
                "before": PointFields.of(equations, run.state).totals(equations.comm),
                "after": PointFields.of(after, state).totals(equations.comm),
            }
        )
        run.continue_with(after, state)
