"""Time steps of explicit methods, recorded once as sequences of operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.hydro.lagrangian import Forces, Lagrangian
from femops.hydro.sequence import OperationSequence, Scalar

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Stepped:
    """Result of a step."""

    # (size,): state at the end of the step, or at the stage that does not allow the step size
    state: Floats
    least: float  # least of the time steps that the stages after the first allow
    # forces of the state at the end. None if a stage does not allow the step size.
    forces: Forces | None = None


class TimeStep(ABC):
    """Recorded time step of some equations. It runs from any state and with any size."""

    def __init__(self, equations: Lagrangian) -> None:
        self._equations = equations
        self._sequence = OperationSequence(equations.space)
        self._dt = self._sequence.scalar()
        self._stages: list[tuple[Floats, Scalar]] = []
        self._state, self._end = self._vector(), self._vector()
        self._result, self._last = self._forces_vector(), self._forces_vector()
        self._put_down()
        self._allowed = equations.put_forces(self._sequence, self._end, self._last)
        equations.sequences.append(self._sequence)

    @abstractmethod
    def _put_down(self) -> None:
        """Record the operations from a state and its forces to the state at the end."""

    def _vector(self) -> Floats:
        """Return a new vector (size,) for a state, or for the rate of a state."""
        space = self._equations.space
        return space.memory.put(np.zeros(space.size))

    def _forces_vector(self) -> Floats:
        """Return a new vector (n,) for the forces of a state."""
        equations = self._equations
        return equations.space.memory.put(np.zeros(equations.force.size))

    def _put_stage(self, state: Floats, result: Floats) -> None:
        """Record the forces of a stage. The step ends there if the forces do not allow its size."""
        allowed = self._equations.put_forces(self._sequence, state, result)
        self._sequence.require(allowed, self._dt)
        self._stages.append((state, allowed))

    def run(self, state: Floats, dt: float, forces: Forces) -> Stepped:
        """Run the step.

        Shapes: `state` (size,).
        """
        self._state[:], self._result[:] = state, forces.result
        self._dt.set(dt)
        over = self._sequence.run()
        least = np.inf
        for k, (stage, allowed) in enumerate(self._stages):
            if not allowed.value >= dt:
                self._equations.count(sweeps=k + 1, solves=k + 1)
                return Stepped(stage.copy(), allowed.value)
            least = min(least, allowed.value)
        assert over
        done = len(self._stages) + 1
        self._equations.count(sweeps=done, solves=done)
        found = Forces(self._last.copy(), self._allowed.value)
        return Stepped(self._end.copy(), least, found)


@final
class RungeKuttaStep(TimeStep):
    """Step of an explicit Runge-Kutta method."""

    def __init__(
        self,
        equations: Lagrangian,
        rows: tuple[tuple[float, ...], ...],
        weights: tuple[float, ...],
    ) -> None:
        self._rows, self._weights = rows, weights
        super().__init__(equations)

    def _put_down(self) -> None:
        rates: list[Floats] = []
        state, result = self._state, self._result
        for row in (*self._rows, self._weights):
            rates.append(self._vector())
            self._equations.put_rate(self._sequence, state, result, rates[-1])
            last = row is self._weights
            state = self._end if last else self._vector()
            moves = [(a * self._dt, rate) for a, rate in zip(row, rates, strict=True) if a]
            self._sequence.add(state, (1.0, self._state), *moves)
            if not last:
                result = self._forces_vector()
                self._put_stage(state, result)


@final
class AveragedStep(TimeStep):
    """Step of two midpoint stages. The gas moves by the mean of old and new velocity.

    So the work of the forces equals the gain of kinetic energy up to round-off.
    """

    def _put_down(self) -> None:
        equations, sequence = self._equations, self._sequence
        velocity = equations.space.slice("velocity")
        state, result = self._state, self._result
        for part, end in ((0.5, self._vector()), (1.0, self._end)):
            rate = self._vector()
            position, acceleration, heating = equations.space.split(rate)
            equations.put_acceleration(sequence, result, acceleration)
            before = self._state[velocity]
            sequence.add(position, (1.0, before), (0.5 * self._dt, acceleration))
            work = equations.force.put_work(sequence, state, result, position)
            equations.put_heating(sequence, work, heating)
            sequence.add(end, (1.0, self._state), (part * self._dt, rate))
            if part < 1.0:
                state, result = end, self._forces_vector()
                self._put_stage(state, result)
