"""The equation that Newton's method solves, and the ways to go on from a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import LawError, RankError, SolverError
from femops.operators import Operator
from femops.operators.residual import Residual
from femops.solvers.inner_products import Sums
from femops.solvers.linear_problem import checked_right, without_held
from femops.solvers.newton_steps import NewtonSteps

Vector = NDArray[Any]

SHORTEST = 2.0**-12  # step length at which a search gives up
DECREASE = 1e-4  # Armijo's constant
_NATURAL = 0.1  # residual of the linear solve of the natural test
_FLATTER = 0.8  # part of the first slope to which the slope along a step must fall
NO_PROGRESS = "no step along the Newton direction makes progress"


@final
class Equation:
    """F(u) = b for a residual or an operator F, with the first guess."""

    def __init__(self, F: Residual | Operator, u0: Any, b: Any) -> None:
        self.F, self.space, self.dtype = F, F.space, F.dtype
        memory = F.space.memory
        self.constrained_dofs = F.constrained_dofs
        self.fixed = memory.put(self.constrained_dofs)
        self.first: Vector = memory.vector_of(F.space, u0, "u0").copy()
        self.load: Vector = memory.xp.zeros_like(self.first)
        if b is not None:
            self.load = memory.vector_of(F.space, b, "b").copy()
        if isinstance(F, Operator):
            self._take_operator(F)
        self.load[self.fixed] = 0.0

    def _take_operator(self, A: Operator) -> None:
        """Check an operator. The right-hand side has the values at its constrained dofs."""
        if A.space is not A.test_space:
            raise SolverError(f"{A!r} goes from one space to another: its system has no solution")
        if len(A.constraints.rows) and not A.constraints.identity:
            raise SolverError(f"{A!r} has eliminated rows: give A.unconstrained.constrained(dofs)")
        self.first, self.load = checked_right(A, self.first, "u0"), checked_right(A, self.load, "b")
        self.first[self.fixed] = 0.0
        self.first = without_held(A, self.load)[1].put_into(self.first)

    def residual(self, u: Vector) -> Vector:
        """Evaluate F(u) - b (size,), zero at constrained dofs."""
        if isinstance(self.F, Residual):
            found: Vector = self.F.residual(u) - self.load
        else:
            found = self.F.apply(u) - self.load
            found[self.fixed] = 0.0
        return found

    def trial(self, u: Vector) -> Vector | None:
        """Evaluate F(u) - b (size,). None where a law of F has no value."""
        try:
            return self.residual(u)
        except LawError:
            return None
        except RankError as error:
            if not is_of_ranks(error, LawError):
                raise
            return None

    def jacobian(self, u: Vector) -> Operator:
        """Derivative of F at u."""
        return self.F.jacobian(u) if isinstance(self.F, Residual) else self.F

    def failure_of_laws(self, u: Vector) -> str:
        """Words about a law of F that fails at u, or none. Collective."""
        return self.F.failure_of_laws(u) if isinstance(self.F, Residual) else ""


class Globalization(ABC):
    """State of Newton's method, and the way from one state to the next.

    `residual` (size,) is the vector whose norm falls to the tolerance, and `raw` is F(u) - b.
    """

    def __init__(self, equation: Equation, steps: NewtonSteps, sums: Sums) -> None:
        self.equation, self.steps, self.sums = equation, steps, sums
        self.u = equation.first
        self.raw = self.residual = equation.residual(self.u)

    @abstractmethod
    def advance(self, J: Operator, forcing: float) -> str:
        """Go to the next state. Return the reason if there is none. Collective."""

    def reduced(self, J: Operator) -> Operator:
        """Jacobian of the unknowns that are free."""
        return J


@final
class LineSearch(Globalization):
    """Steps of length 1, 1/2, 1/4, ..., of which the first is taken that makes progress.

    Progress means that the residual decreases, or, if the form is the derivative of an energy, its
    component along the step, which is then the slope of the energy (Bonet and Wood, section 9.6).
    Large rotations need steps that reduce the slope while the norm of the residual grows. Of other
    forms the next step with the same Jacobian may become shorter instead: the natural test of
    Deuflhard, Newton Methods for Nonlinear Problems, 2004, section 3.1.
    """

    def advance(self, J: Operator, forcing: float) -> str:
        """See `Globalization.advance`."""
        step, failure = self.steps.solve(J, -self.raw, forcing)
        if failure:
            return self.equation.failure_of_laws(self.u) or failure
        norm = self.sums.norm(self.raw)
        length = 1.0
        while length >= SHORTEST:
            trial = self.u + self.u.dtype.type(length) * step
            found = self.equation.trial(trial)
            if found is not None:  # NaN fails both comparisons
                smaller = self.sums.norm(found) <= (1.0 - DECREASE * length) * norm
                if smaller or self._closer(J, step, found, length):
                    self.u, self.raw, self.residual = trial, found, found
                    return ""
            length *= 0.5
        return NO_PROGRESS

    def _closer(self, J: Operator, step: Vector, found: Vector, length: float) -> bool:
        """True if a residual (size,) at a part of a step makes progress though its norm grew."""
        if J.symmetric:
            slope = abs(self.sums.dot(step, self.raw))
            return abs(self.sums.dot(step, found)) <= _FLATTER * slope
        following, failure = self.steps.further(J, -found, _NATURAL)
        shorter = (1.0 - 0.25 * length) * self.sums.norm(step)
        return not failure and self.sums.norm(following) <= shorter


def is_of_ranks(error: RankError, *kinds: type[Exception]) -> bool:
    """True if the error says that another rank raised one of these kinds of errors."""
    return any(f"failed: {kind.__name__}: " in str(error) for kind in kinds)


def positive_diagonal(J: Operator) -> Vector:
    """Absolute values of a Jacobian's diagonal (size,), with the largest for zeros. Collective."""
    xp, found = J.space.memory.xp, abs(J.diagonal())
    usable = xp.isfinite(found) & (found > 0.0)
    mine = float(xp.where(usable, found, 0.0).max()) if found.size else 0.0
    largest = float(J.space.comm.max(np.array([mine]))[0]) or 1.0
    result: Vector = xp.where(usable, found, found.dtype.type(largest))
    return result
