"""Bounds on the unknowns of Newton's method, by a primal-dual active set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.parallel.comm import check
from femops.solvers.inner_products import Sums
from femops.solvers.newton_equation import (
    DECREASE,
    NO_PROGRESS,
    SHORTEST,
    Equation,
    Globalization,
    positive_diagonal,
)
from femops.solvers.newton_steps import NewtonSteps
from femops.spaces.product import Product
from femops_common.arguments import Kind, number_of

Vector = NDArray[Any]
_HALVED = 0.5  # part of all earlier norms at which a step is taken that does not lower the energy
_MEMORY = 5  # norms with which that of an unsymmetric problem is compared
_PRESCRIBED = 16.0  # times the precision, by which prescribed values may miss a bound


def _is_bound(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_bound(part) for name, part in value.items())
    array = hasattr(value, "dtype") and hasattr(value, "shape") and not hasattr(value, "matvec")
    return value is None or number_of(value) is not None or array


Bound = Annotated[
    Any, Kind(_is_bound, "a number, a vector of the space, or on a product a dict of these")
]
"""Bound of all unknowns, or of those of some fields."""


@final
class ActiveSet(Globalization):
    """Semismooth Newton steps within bounds (Hintermueller, Ito and Kunisch, 2003).

    A dof is active where F(u) - b pushes it into a bound by more than its distance times the
    diagonal D of the Jacobian. Active dofs go to their bounds, and the others solve the system that
    is left. What is beyond a bound is put back to it. The norm is that of D (u - P(u - F'/D)) with
    F' = F(u) - b, where P puts vectors back within the bounds.
    """

    def __init__(
        self, equation: Equation, steps: NewtonSteps, sums: Sums, lower: Any, upper: Any
    ) -> None:
        self._xp, self._comm = equation.space.memory.xp, equation.space.comm
        with check(self._comm):
            self._lower, self._upper = _checked_bounds(equation, lower, upper)
        raw = equation.trial(equation.first)
        if raw is None or not np.isfinite(sums.norm(raw)):  # F may have values within the bounds
            equation.first = self._within(equation.first, equation.first, 1.0)
        super().__init__(equation, steps, sums)
        self._known: NDArray[np.int64] | None = None
        self._diagonal = positive_diagonal(equation.jacobian(self.u))
        self.residual = self._natural(self.u, self.raw)
        self._norms = [sums.norm(self.residual)]

    def _within(self, trial: Vector, u: Vector, length: float) -> Vector:
        """Put a trial state (size,) back within the bounds.

        Where the state u is beyond them, a step shorter than one goes as much shorter a way.
        """
        xp, part, least, most = self._xp, u.dtype.type(length), self._lower, self._upper
        if length < 1.0:
            least = xp.where(u < least, u + part * (least - u), least)
            most = xp.where(u > most, u + part * (most - u), most)
        found: Vector = xp.minimum(xp.maximum(trial, least), most)
        return found

    def _held(self, u: Vector, raw: Vector) -> tuple[Vector, Vector]:
        """Flags (size,) of the dofs at the lower and at the upper bound."""
        low = raw > self._diagonal * (u - self._lower)
        high = -raw > self._diagonal * (self._upper - u)
        return low | (self._lower == self._upper), high & ~low

    def _natural(self, u: Vector, raw: Vector) -> Vector:
        """Residual (size,) that is zero at the solution; NaN where F has no value."""
        low, high = self._held(u, raw)
        xp = self._xp
        found: Vector = xp.where(low, self._diagonal * (u - self._lower), raw)
        found[high] = (self._diagonal * (u - self._upper))[high]
        return found

    def _active(self) -> NDArray[np.int64]:
        low, high = self._held(self.u, self.raw)
        return np.flatnonzero(self.equation.space.memory.get(low | high))

    def report(self) -> tuple[NDArray[np.int64], Vector]:
        """Positions (k,) of the dofs that a bound holds, and F(u) - b (size,) there, else zero."""
        low, high = self._held(self.u, self.raw)
        held = (low & (self.u == self._lower)) | (high & (self.u == self._upper))
        reactions: Vector = self._xp.where(held, self.raw, 0.0).astype(self.u.dtype)
        return np.flatnonzero(self.equation.space.memory.get(held)), reactions

    def reduced(self, J: Operator) -> Operator:
        """See `Globalization.reduced`."""
        active = self._active()
        return J.constrained(active) if self._comm.max(len(active)) else J

    def advance(self, J: Operator, forcing: float) -> str:
        """See `Globalization.advance`."""
        xp = self._xp
        self._diagonal = positive_diagonal(J)
        low, high = self._held(self.u, self.raw)
        ends = xp.where(low, self._lower, self._upper)
        given: Vector = xp.where(low | high, ends - self.u, 0.0).astype(self.u.dtype)
        step, failure = self._solve(J, given, forcing)
        if failure:
            return self.equation.failure_of_laws(self.u) or failure
        step = xp.where(low | high, given, step)
        length = 1.0
        while length >= SHORTEST:
            trial = self._within(self.u + self.u.dtype.type(length) * step, self.u, length)
            if length == 1.0:  # to the last bit
                trial = xp.where(low | high, ends, trial)
            found = self.equation.trial(trial)
            if found is not None and self._accepts(J, trial, found, length):
                self.u, self.raw = trial, found
                self.residual = self._natural(trial, found)
                self._norms.append(self.sums.norm(self.residual))
                return ""
            length *= 0.5
        return NO_PROGRESS

    def _solve(self, J: Operator, given: Vector, forcing: float) -> tuple[Vector, str]:
        """Step (size,) of the free dofs, where active ones take the given steps. Collective."""
        memory = J.space.memory
        active = self._active()
        if self._known is None or self._comm.max(int(not np.array_equal(active, self._known))):
            self._known = active
            self.steps.renew()
        if not self._comm.max(len(active)):
            return self.steps.solve(J, -self.raw, forcing)
        rows = memory.put(active)
        moved = J.apply(given)  # a step given at a constrained dof is zero
        right = -self.raw - moved
        right[rows] = 0.0
        right[self.equation.fixed] = 0.0
        if not self._comm.max(int(bool(right.any()))):
            return right, ""
        return self.steps.solve(J.constrained(active), right, forcing, masked=rows)

    def _accepts(self, J: Operator, trial: Vector, found: Vector, length: float) -> bool:
        """True if a state makes progress. NaN makes none. Collective.

        Half of the sum of the residuals at both ends, times the step, is the change of the energy,
        exactly if F is linear.
        """
        norm = self.sums.norm(self._natural(trial, found))
        beyond = (self.u < self._lower) | (self.u > self._upper)
        if J.symmetric and not self._comm.max(int(bool(beyond.any()))):
            step = trial - self.u
            slope = self.sums.dot(step, self.raw)
            change = 0.5 * (slope + self.sums.dot(step, found))
            return (change <= DECREASE * slope < 0.0) or norm <= _HALVED * min(self._norms)
        return norm <= (1.0 - DECREASE * length) * max(self._norms[-_MEMORY:])


def _checked_bounds(equation: Equation, lower: Any, upper: Any) -> tuple[Vector, Vector]:
    """Vectors (size,) of both bounds, infinite where there is none and at constrained dofs."""
    low = _bound_vector(equation, lower, "lower", -np.inf)
    high = _bound_vector(equation, upper, "upper", np.inf)
    memory, xp = equation.space.memory, equation.space.memory.xp
    for name, bound, wrong in (("lower", low, np.inf), ("upper", high, -np.inf)):
        _refuse(xp.isnan(bound), memory, f"{name} is not a number at")
        _refuse(bound == wrong, memory, f"{name} is {wrong:g} at")
    _refuse(low > high, memory, "lower is above upper at", lambda k: f" ({low[k]:g} > {high[k]:g})")
    u, fixed = equation.first, equation.fixed
    allowed = _PRESCRIBED * xp.finfo(u.dtype).eps * abs(u)
    outside = (u < low - allowed) | (u > high + allowed)
    held = xp.zeros(u.shape, dtype=bool)
    held[fixed] = True
    _refuse(
        outside & held,
        memory,
        "values of u0 at constrained dofs are not within the bounds, at",
        lambda k: f" ({u[k]:g} is not from {low[k]:g} to {high[k]:g})",
    )
    low[fixed], high[fixed] = -np.inf, np.inf
    return low, high


def _refuse(wrong: Vector, memory: Any, text: str, values: Any = lambda _: "") -> None:
    """Raise if flags (size,) are set, with the first position."""
    places = np.flatnonzero(memory.get(wrong))
    if len(places):
        first = int(places[0])
        raise SolverError(
            f"{text} {len(places)} dofs, the first is {first}{values(first)}: correct the bounds"
        )


def _bound_vector(equation: Equation, bound: Any, name: str, without: float) -> Vector:
    """Vector (size,) of a bound that the user gave as a number, a vector or a dict."""
    space, kind = equation.space, equation.first.dtype
    xp = space.memory.xp
    whole: Vector = xp.full(equation.first.shape, without, dtype=kind)
    if isinstance(bound, Mapping):
        if not isinstance(space, Product):
            raise SolverError(f"{name} is a dict, and F has one field: give a number or a vector")
        for field, part in bound.items():
            if field not in space.spaces:
                raise SolverError(f"{name} has a field {field!r}: F has {', '.join(space.spaces)}")
            whole[space.slice(field)] = _of_space(
                space.spaces[field], part, f"{name}[{field!r}]", without
            )
    else:
        whole[:] = _of_space(space, bound, name, without)
    return whole


def _of_space(space: Any, bound: Any, name: str, without: float) -> Any:
    """Return a number, or a checked vector of a space."""
    if bound is None:
        return without
    number = number_of(bound)
    return space.memory.vector_of(space, bound, name) if number is None else number
