"""A run: steps in time whose size follows the flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.hydro.integrators import Method, method
from femops.hydro.lagrangian import Forces, Lagrangian
from femops_meshes.arguments import Count, checked

Floats = NDArray[np.float64]

# How the time step changes: less where a step is repeated, more where far more is allowed.
_REPEAT, _GROW, _ENOUGH = 0.85, 1.02, 1.25


@final
@dataclass
class Simulation:
    """A run of a problem: its state, and the step that is to be taken next.

    Attributes
    ----------
    equations : Lagrangian
    state : (size,) array
    t, dt : float
        Time, and size of the next step.
    steps : int
        Steps done; repeated ones count once.
    ode : str
        Name of the integrator, see `femops.hydro.METHODS`.
    """

    _given_as: ClassVar[str] = "a run, as femops.hydro.Simulation.begin(equations)"

    equations: Lagrangian
    state: Floats
    t: float
    dt: float
    steps: int
    ode: str = "rk4"
    _forces: Forces | None = None
    repeated: int = 0

    @staticmethod
    @checked(HydroError)
    def begin(equations: Lagrangian, ode: str = "rk4") -> Simulation:
        """A run from the beginning.

        Raises
        ------
        HydroError
            There is no such integrator, or the state has no finite time step.
        """
        method(ode)
        state = equations.initial()
        forces = equations.forces(state)
        if not 0.0 < forces.step < np.inf:
            raise HydroError(
                f"the state at the beginning allows a time step of {forces.step}: are elements "
                "inverted, or is there nothing that moves?"
            )
        return Simulation(equations, state, 0.0, forces.step, 0, ode, forces)

    @property
    def e_norm(self) -> float:
        """Euclidean norm of the coefficients of the energy, as Laghos prints it."""
        return self.equations.e_norm(self.state)

    @checked(HydroError)
    def run(
        self,
        t_final: float,
        max_steps: Count | None = None,
        watch: Callable[[Simulation], Any] | None = None,
    ) -> None:
        """Go on until a time, or for some steps in all.

        Parameters
        ----------
        t_final : float
        max_steps : int, optional
        watch : callable, optional
            Called after each step.

        Raises
        ------
        HydroError
            The step goes to zero; the state is the last good one.
        """
        one = method(self.ode)
        while self.t < t_final and (max_steps is None or self.steps < max_steps):
            self._step(one, t_final)
            if watch is not None:
                watch(self)

    def _step(self, one: Method, t_final: float) -> None:
        """One step, repeated with less until what it leads to allows it."""
        equations = self.equations
        if self._forces is None:
            self._forces = equations.forces(self.state)
        if not self._forces.step > 0.0:
            raise HydroError(self._crash(self.state))
        again, zero = False, np.finfo(np.float64).eps * max(self.t, self.dt)
        while True:
            last = self.t + self.dt >= t_final
            dt = t_final - self.t if last else self.dt
            state, least = one.step(equations, self.state, dt, self._forces)
            if least >= dt:
                forces = equations.forces(state)
                # in a repeated step the stress of the first stage is computed anew, and counts
                allowed = min(least, forces.step, self._forces.step if again else np.inf)
                if allowed >= dt and forces.step >= dt:
                    break
            self.dt, again = _REPEAT * dt, True
            self.repeated += 1
            if self.dt < zero:
                raise HydroError(self._crash(state))
        self.state, self._forces = state, forces
        self.t = t_final if last else self.t + dt
        self.dt = _GROW * dt if allowed > _ENOUGH * dt else dt
        self.steps += 1

    def _crash(self, state: Floats) -> str:
        """Message about a state that no step leads beyond. Collective."""
        forces = self.equations.forces(state)
        what = "elements turn over" if forces.step == 0.0 else "the state is not finite"
        if forces.step > 0.0:
            what = "waves cross elements too fast"
        return (
            f"the time step has gone to zero in step {self.steps + 1} at t = {self.t:.6g}: {what} "
            f"{self._where()}; try a smaller cfl, a finer mesh, lower orders or viscosity"
        )

    def _where(self) -> str:
        """Element that allowed the least step, and its place; any rank may have it."""
        V, position = self.equations.V, self.equations.space.split(self.state)[0]
        if V.comm.size > 1:
            return "in an element of one of the ranks"
        element = self.equations.slowest()
        nodes = V.restriction.gather(V.l_vec(position)).reshape(V.mesh.num_elements, -1, V.dim)
        where = ", ".join(f"{x:.4g}" for x in nodes[element].mean(axis=0))
        return f"in element {element} at ({where})"
