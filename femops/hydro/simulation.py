"""A run: steps in time whose size follows the flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError, SolverError
from femops.hydro.diagnosis import instability, trouble
from femops.hydro.integrators import method
from femops.hydro.lagrangian import Forces, Lagrangian
from femops.hydro.steps import TimeStep
from femops_meshes.arguments import Count, checked

Floats = NDArray[np.float64]

# How the time step changes: less where a step is repeated, more where far more is allowed.
_REPEAT, _GROW, _ENOUGH = 0.85, 1.02, 1.25

# A step is zero when this many times smaller than the time so far: no run takes as many, and
# much below the position no longer changes, so that it would go on for ever.
_ZERO = 1e-10


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
    _steps: tuple[str, TimeStep] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Copies put their steps down anew: those work on arrays where they are."""
        return self.__dict__ | {"_steps": None}

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
            wrong = trouble(equations, state, state)
            if forces.step == np.inf:
                wrong = "nothing moves: give energy or velocity"
            raise HydroError(f"no step leads on from the state at the beginning: {wrong}")
        return Simulation(equations, state, 0.0, forces.step, 0, ode, forces)

    @property
    def e_norm(self) -> float:
        """Euclidean norm of the Bernstein coefficients of the energy, as Laghos prints it."""
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
            The step goes to zero: elements turn over, numbers are no longer finite, or waves cross
            elements too fast. Or a step is unstable: it leaves energy far below zero. The state is
            the last good one. Or ``dt`` was set to no number above zero.
        """
        if not self.dt > 0.0:
            raise HydroError(f"dt is {self.dt}: give a step above 0")
        one = self._time_step()
        while self.t < t_final and (max_steps is None or self.steps < max_steps):
            self._step(one, t_final)
            if watch is not None:
                watch(self)

    def compile(self) -> None:
        """Compile what steps need, by steps of no length: the state stays as it is."""
        if self._forces is None:
            self._forces = self.equations.forces(self.state)
        for _ in range(2):  # at first Python does what compiled code is to do
            self._time_step().run(self.state, 0.0, self._forces)

    def _time_step(self) -> TimeStep:
        """A step of the integrator, put down at its first use."""
        if self._steps is None or self._steps[0] != self.ode:
            self._steps = self.ode, method(self.ode).step(self.equations)
        return self._steps[1]

    def _step(self, one: TimeStep, t_final: float) -> None:
        """One step, repeated with less until what it leads to allows it."""
        equations = self.equations
        if self._forces is None:
            self._forces = equations.forces(self.state)
        if not self._forces.step > 0.0:
            raise HydroError(self._crash(self.state))
        again, zero = False, _ZERO * max(self.t, self.dt)
        while True:
            last = self.t + self.dt >= t_final
            dt = t_final - self.t if last else self.dt
            try:
                found = one.run(self.state, dt, self._forces)
            except SolverError as error:  # forces are too large for numbers
                raise HydroError(self._crash(self.state)) from error
            if found.forces is not None:
                # in a repeated step the stress of the first stage is computed anew, and counts
                here = self._forces.step if again else np.inf
                allowed = min(found.least, found.forces.step, here)
                if allowed >= dt and found.forces.step >= dt:
                    break
            self.dt, again = _REPEAT * dt, True
            self.repeated += 1
            if self.dt < zero:
                raise HydroError(self._crash(found.state))
        wrong = instability(equations, found.state, self.state)
        if wrong is not None:
            raise HydroError(f"step {self.steps + 1} at t = {self.t:.6g} is unstable: {wrong}")
        self.state, self._forces = found.state, found.forces
        self.t = t_final if last else self.t + dt
        self.dt = _GROW * dt if allowed > _ENOUGH * dt else dt
        self.steps += 1

    def _crash(self, state: Floats) -> str:
        """Message about a state that no step leads beyond. Collective."""
        self.equations.forces(state)  # so that the slowest element is of this state
        return (
            f"the time step has gone to zero in step {self.steps + 1} at t = {self.t:.6g}: "
            f"{trouble(self.equations, state, self.state)}"
        )
