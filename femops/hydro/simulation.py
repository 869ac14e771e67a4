"""A run: time steps whose size adapts to the flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError, SolverError
from femops.hydro.diagnosis import instability, trouble
from femops.hydro.integrators import method
from femops.hydro.lagrangian import Forces, Lagrangian
from femops.hydro.steps import Stepped, TimeStep
from femops.solvers.watch import read_only
from femops_common.arguments import Count, checked

Floats = NDArray[np.float64]

# Factors of the time step: when a step is repeated, and when the flow allows more than the third.
_REPEAT, _GROW, _ENOUGH = 0.85, 1.02, 1.25

# A step below this part of the time so far counts as zero. No run takes 10^10 steps. Much smaller
# steps do not change the position any more, so the run would never end.
_ZERO = 1e-10

# The sum of the weighted squares of larger forces may overflow.
_LARGE = 1e140

# Part of the energy by which the time steps of a run may change it.
_DRIFT = 0.1

# Most steps of a run: at 10 microseconds each they take a day.
_MOST_STEPS = 1e10


@final
@dataclass
class Simulation:
    """Run of a problem: its state, its time, and the size of its next step.

    Attributes
    ----------
    equations : Lagrangian
    state : (size,) array
        Read-only on the host. To change it set it, on all ranks, also in a ``watch``:
        ``run.state = changed``.
    t, dt : float
        Time, and size of the next step.
    steps : int
        Number of completed steps. A repeated step counts once.
    ode : str
        Name of the integrator, see `femops.hydro.METHODS`.
    options : dict
        Options of the run beside those of its equations, see `femops.hydro.RUN`. Checkpoints have
        them.
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
    _drift: float = 0.0  # what time steps have added to the sum of the energies
    options: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Forces are those of one state, so that is not changed in place."""
        if name == "state":
            self.__dict__["_forces"] = None
            value = read_only(self.equations.space, value)
        self.__dict__[name] = value

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes for copies. A copy makes new time steps for its own arrays."""
        return self.__dict__ | {"_steps": None}

    def __setstate__(self, attributes: dict[str, object]) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    @staticmethod
    @checked(HydroError)
    def begin(equations: Lagrangian, ode: str = "rk4") -> Simulation:
        """Start a run from the initial state.

        Raises
        ------
        HydroError
            The integrator does not exist, or the state has no finite time step.
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
        """Run until a time, or until the total number of steps is ``max_steps``.

        Parameters
        ----------
        t_final : float
        max_steps : int, optional
        watch : callable, optional
            Called after each step.

        Raises
        ------
        HydroError
            The step size goes to zero, because elements are inverted, numbers are not finite, or
            waves cross elements too fast. Or a step is unstable, so that the energy is far below
            zero. In both cases ``state`` is the last good state. Or the steps have changed the sum
            of the energies by more than a tenth, without a source of heat. Or ``dt`` is not above
            zero, or the run would take more than 1e10 steps of this size.
        """
        if not self.dt > 0.0:
            raise HydroError(f"dt is {self.dt}: give a step above 0")
        self._check_count(t_final, max_steps)
        with np.errstate(over="ignore"):  # the first step says what is too large
            begun = self.equations.energies(self.state)
        while self.t < t_final and (max_steps is None or self.steps < max_steps):
            self._step(t_final)
            if watch is not None:
                equations, state = self.equations, self.state
                watch(self)
                if self.state is not state:  # what users change is no error of the steps
                    self._drift += equations.energies(state)[0] - begun[0]
                    begun = self.equations.energies(self.state)
        self._check_energy(begun)

    def _check_energy(self, begun: tuple[float, float]) -> None:
        """Raise if the time steps, which keep the sum of the energies, have changed it. Collective.

        An unstable run may go on for long without an energy far below zero, the more so as remaps
        limit energies.
        """
        now = self.equations.energies(self.state)
        self._drift += now[0] - begun[0]
        size = max(abs(begun[1]), abs(now[1]))
        if self.equations.problem.heating is None and not abs(self._drift) <= _DRIFT * size:
            raise HydroError(
                f"the time steps have changed the sum of the energies from "
                f"{now[0] - self._drift:.4g} to {now[0]:.4g} until step {self.steps}: they are "
                "unstable or too long; try a smaller cfl, lower orders, or another integrator"
            )

    def _check_count(self, t_final: float, max_steps: int | None) -> None:
        """Raise if the run would take too many steps of the present size."""
        if max_steps is None and t_final - self.t > _MOST_STEPS * self.dt:
            raise HydroError(
                f"steps of {self.dt:.3g} from t = {self.t:.6g} to {t_final:.6g} are more than "
                f"{_MOST_STEPS:.0e}: give a larger cfl, an earlier t_final, or max_steps"
            )

    def continue_with(self, equations: Lagrangian, state: Floats) -> None:
        """Go on with other equations from another state (size,), at the same time."""
        self.equations, self.state, self._steps = equations, state, None

    def compile(self) -> None:
        """Compile the kernels of a step by running steps of length zero. The state does not change.

        Raises
        ------
        HydroError
            The squares of forces overflow.
        """
        if self._forces is None:
            self._forces = self.equations.forces(self.state)
        for _ in range(2):  # the first run of a step is in Python, the second is compiled
            self._try(self._time_step(), 0.0, self._forces)

    def _try(self, one: TimeStep, dt: float, forces: Forces) -> Stepped:
        """Do a step of size dt. If the step fails, raise a HydroError with the reason."""
        try:
            with np.errstate(over="ignore"):  # an overflow of squares of forces is an error below
                return one.run(self.state, dt, forces)
        except SolverError as error:
            space = self.equations.space
            own = np.abs(space.memory.get(forces.result)[: space.size]).max(initial=0.0)
            if not _LARGE < float(self.equations.comm.max(float(own))) < np.inf:
                raise HydroError(self._crash(self.state)) from error
            raise HydroError(
                f"the forces are too large to compute with in step {self.steps + 1} at t = "
                f"{self.t:.6g}, as their squares overflow: take larger units, or a smaller "
                f"{'blast' if self.equations.problem.blast else 'energy'}"
            ) from error

    def _time_step(self) -> TimeStep:
        """Return the integrator's time step, made at first use."""
        if self._steps is None or self._steps[0] != self.ode:
            self._steps = self.ode, method(self.ode).step(self.equations)
        return self._steps[1]

    def _step(self, t_final: float) -> None:
        """Do one step. Repeat it with smaller sizes until its stages and its end allow it."""
        equations, one = self.equations, self._time_step()
        if self._forces is None:
            self._forces = equations.forces(self.state)
        if not self._forces.step > 0.0:
            raise HydroError(self._crash(self.state))
        again, zero = False, _ZERO * max(self.t, self.dt)
        while True:
            last = self.t + self.dt >= t_final
            dt = t_final - self.t if last else self.dt
            found = self._try(one, dt, self._forces)
            if found.forces is not None:
                # in a repeated step the limit of the first stage counts too
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
        """Message for a state that allows no further step. Collective."""
        self.equations.forces(state)  # the message names the slowest element of this state
        return (
            f"the time step has gone to zero in step {self.steps + 1} at t = {self.t:.6g}: "
            f"{trouble(self.equations, state, self.state)}"
        )
