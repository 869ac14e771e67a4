"""Continuation of solutions along a parameter, by arc length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.controls import Control, control_of
from femops.adjoint.lagrangian import Lagrangian
from femops.adjoint.pieces import pieces_of
from femops.errors import SolverError
from femops.nonlinear.load_steps import Positive, next_factor
from femops.operators import Operator, Residual
from femops.solvers.convergence import warn_unconverged
from femops.solvers.inner_products import Sums
from femops.solvers.newton import newton, rounding_of
from femops.solvers.newton_equation import Equation
from femops.solvers.newton_steps import GAVE_UP, UNSOLVED, Linear, NewtonSteps, Preconditioning
from femops_common.arguments import Count, Fraction, NotNegative, checked, number_of, shown

Vector = NDArray[Any]

LOAD = "load"
_LINEAR = 1e-8  # relative residual of the linear solves
_ROUGH = 1e-3  # one that serves where round-off ends a linear solve
_GROWN = 1e3  # times the first residual of a step at which it has failed
_SMALLEST = 2.0**-12  # part of the first step at which the path ends


@final
@dataclass(frozen=True)
class PathPoint:
    """Report of a point of a path of `femops.continuation`.

    Attributes
    ----------
    parameter : float
    slope : float
        Change of the parameter along the path: the parameter's part of the tangent, whose length is
        one. It changes its sign at a limit point.
    limit : float or None
        If a limit point lies between this point and the last one: the parameter there, by Hermite's
        cubic between both.
    length : float
        Length of the step to this point, in units of the parameter at the first one.
    iterations : int
        Newton iterations of the step.
    linear_iterations : int
        Iterations of the linear solver in the step.
    tries : int
        Number of tries of the step. Each but the last one has failed, for a longer step.
    residual, tolerance : float
        Norm of the residual over the free dofs, and its bound.
    """

    parameter: float
    slope: float
    limit: float | None
    length: float
    iterations: int
    linear_iterations: int
    tries: int
    residual: float
    tolerance: float


@final
@dataclass(frozen=True)
class _State:
    """Point of a path, with the tangent (along, slope) there."""

    u: Vector
    parameter: float
    along: Vector
    slope: float


@final
class _Family:
    """Equations F(u, parameter) = b, or F(u) = parameter * b."""

    def __init__(self, F: Residual, u0: Any, b: Any, parameter: str) -> None:
        self._name = parameter
        self.equation = Equation(F, u0, b)
        self._F, self._load = F, self.equation.load
        self._lagrangian: Lagrangian | None = None
        self.first = 0.0
        if parameter == LOAD:
            if b is None:
                raise SolverError("the parameter is the factor of the load b: give b, or a name")
            return
        pieces = pieces_of(F)
        self._control: Control = control_of(parameter, pieces, None)
        if self._control.kind != "constant" or self._control.own_shape:
            raise SolverError(
                f"the parameter {parameter!r} has to be a number, and it is a field or an array: "
                "multiply that by a number in F's function"
            )
        self._lagrangian = Lagrangian(pieces, {parameter: self._control}, F.space)
        self.first = float(np.asarray(self._control.given))

    def at(self, value: float) -> tuple[Residual, Vector]:
        """Residual and load at a value of the parameter."""
        if self._lagrangian is None:
            return self._F, self._load.dtype.type(value) * self._load
        return self._F.update(**{self._name: value}), self._load

    def slope(self, u: Vector, value: float) -> Vector:
        """Derivative (size,) of F - b by the parameter, zero at constrained dofs. Collective."""
        L = self._lagrangian
        if L is None:
            return -self._load
        control, kind = self._control, self._F.dtype
        along = {self._name: control.vector(1.0, kind)}
        values = {self._name: control.vector(value, kind)}
        found = L.whole(L.derivative(L.adjoints, u, None, along, values), L.adjoints)
        found[self.equation.fixed] = 0.0
        return found


@final
class Continuation(Iterator[tuple[Vector, PathPoint]]):
    """Iterator over the points of a path. `femops.continuation` makes it.

    Attributes
    ----------
    u : (size,) array
        The last point's state.
    parameter : float
        Its parameter.
    reason : str
        Empty while the path goes on, then the reason for which it has ended.
    """

    def __init__(
        self,
        family: _Family,
        start: float,
        sizes: tuple[float, float],
        linear: tuple[Linear, Preconditioning],
        limits: tuple[float, float, int, int, int],
        *,
        warn: bool,
    ) -> None:
        self._family, self._equation = family, family.equation
        self._step, self._largest = sizes
        self._rtol, self._atol, self._maxiter, self._wanted, self._points = limits
        self._linear, self._warn = linear, warn
        self._sums = Sums(self._equation.space)
        self.u, self.parameter, self.reason = self._equation.first.copy(), start, ""
        self._weight = 0.0  # of squares of u beside those of the parameter
        self._steps: NewtonSteps | None = None
        self._path = self._run()

    def __next__(self) -> tuple[Vector, PathPoint]:
        return next(self._path)

    def __repr__(self) -> str:
        return f"Continuation(parameter {self.parameter:g}{self.reason and ', '}{self.reason})"

    def _run(self) -> Iterator[tuple[Vector, PathPoint]]:
        state, point = self._start()
        yield state.u.copy(), point
        size = abs(self._step) * math.sqrt(2.0)
        largest, smallest, tries, points = self._largest * size, _SMALLEST * size, 0, 1
        while points < self._points:
            tries += 1
            found, failure = self._corrected(state, size)
            if found is None:
                size *= 0.5
                if size < smallest:
                    self._give_up(failure)
                    return
                continue
            new, report = found
            length = self._length(new.u - state.u, new.parameter - state.parameter)
            limit = _limit(state, new, length)
            iterations, linear, residual, tolerance = report
            values = new.parameter, new.slope, limit, length / math.sqrt(2.0)
            point = PathPoint(*values, iterations, linear, tries, residual, tolerance)
            state, tries, points = new, 0, points + 1
            self.u, self.parameter = new.u, new.parameter
            size = min(largest, size * next_factor(iterations, self._wanted))
            yield new.u.copy(), point
        self.reason = f"{self._points} points are found"

    def _give_up(self, failure: str) -> None:
        self.reason = f"the shortest step failed: {failure}"
        if self._warn:
            warn_unconverged(
                f"femops.continuation ends at the parameter {self.parameter:.6g}: {self.reason}. "
                'Give a smaller step, or linear="direct".',
                self._equation.space.comm,
            )

    def _start(self) -> tuple[_State, PathPoint]:
        """First point: the state at the given parameter, with the tangent there."""
        F, b = self._family.at(self.parameter)
        linear, preconditioner = self._linear
        self.u, info = newton(
            F,
            self.u,
            b,
            rtol=self._rtol,
            atol=self._tolerance(self.u, self.parameter),
            linear=linear,
            preconditioner=preconditioner,
            warn=False,
        )
        if not info.converged:
            raise SolverError(
                f"there is no solution near u0 at the parameter {self.parameter:g}: "
                f"{info.reason}. Give another u0, or another start"
            )
        J = F.jacobian(self.u)
        along, failure = self._tangent(J, self._family.slope(self.u, self.parameter))
        if failure:
            raise SolverError(f"the path has no tangent at its first point: {failure}")
        norm = self._sums.norm(along)
        if not norm > 0.0:
            raise SolverError(
                f"the parameter {self._family._name!r} does not change the solution at "
                f"{self.parameter:g}: give another parameter, or another start"
            )
        self._weight = 1.0 / norm**2
        slope = math.copysign(math.sqrt(0.5), self._step)
        state = _State(self.u, self.parameter, along.dtype.type(slope) * along, slope)
        counts = info.iterations, info.linear_iterations
        values = self.parameter, slope, None, 0.0
        return state, PathPoint(*values, *counts, 1, info.residual, info.tolerance)

    def _length(self, du: Vector, dp: float) -> float:
        return math.sqrt(self._weight * self._sums.dot(du, du) + dp * dp)

    def _tolerance(self, u: Vector, parameter: float) -> float:
        """Bound of a point's residual: a part of the residual's change with the parameter."""
        change = self._sums.norm(self._family.slope(u, parameter))
        return max(self._rtol * change * max(abs(parameter), abs(self._step)), self._atol)

    def _solve(self, J: Operator, right: Vector) -> tuple[Vector, str]:
        """Solve with a Jacobian that may be indefinite. Return a reason if that failed."""
        if self._steps is None:
            linear, preconditioner = self._linear
            if linear == "auto":
                positive = J.symmetric and preconditioner not in {"auto", "direct"}
                linear = "minres" if positive else "gmres"
            self._steps = NewtonSteps(linear, preconditioner, history=False)
            self._steps.fall_back()
        if not self._equation.space.comm.max(int(bool(right.any()))):
            return right, ""
        found, failure = self._steps.solve(J, right, _LINEAR)
        if failure:  # a kept preconditioner may be that of another sign
            self._steps.renew()
            found, failure = self._steps.solve(J, right, _LINEAR)
        if failure.startswith(UNSOLVED) and self._steps.infos:
            # near a limit point J is nearly singular, and round-off ends a solve
            left = self._steps.infos[-1].residual
            failure = failure if left > _ROUGH * self._sums.norm(right) else ""
        if not np.isfinite(self._sums.norm(found)):
            failure = failure or f"{GAVE_UP}: its solution is not finite"
        return found, failure

    def _tangent(self, J: Operator, slope: Vector) -> tuple[Vector, str]:
        """Change of u with the parameter."""
        return self._solve(J, -slope)

    def _corrected(
        self, state: _State, size: float
    ) -> tuple[tuple[_State, tuple[int, int, float, float]] | None, str]:
        """Next point by Newton's method in the plane through the predicted one (Riks, 1979).

        Each iteration solves with two right-hand sides: the residual, and its derivative by the
        parameter.
        """
        kind, dot = state.u.dtype.type, self._sums.dot
        u, p = state.u + kind(size) * state.along, state.parameter + size * state.slope
        norms: list[float] = []
        spent = 0 if self._steps is None else len(self._steps.infos)
        for k in range(self._maxiter + 1):
            F, b = self._family.at(p)
            equation = Equation(F, u, b)
            raw = equation.trial(u)
            norms.append(math.nan if raw is None else self._sums.norm(raw))
            if raw is None or not norms[-1] <= _GROWN * max(norms[0], self._tolerance(u, p)):
                return None, "the residual grows, or is not a number"
            goal = self._tolerance(u, p)
            if norms[-1] > goal and (norms[-1] > 0.5 * norms[k - 1] or k == self._maxiter):
                goal = max(goal, rounding_of(equation, u))
            J, slope = equation.jacobian(u), self._family.slope(u, p)
            v, failure = self._tangent(J, slope)
            if failure:
                return None, failure
            if norms[-1] <= goal:
                new = self._turned(state, u, p, v)
                done = self._steps.infos[spent:] if self._steps else []
                return (new, (k, sum(i.iterations for i in done), norms[-1], goal)), ""
            a, failure = self._solve(J, -raw)
            if failure:
                return None, failure
            off = self._weight * dot(state.along, u - state.u)
            off += state.slope * (p - state.parameter) - size
            down = state.slope + self._weight * dot(state.along, v)
            if down == 0.0:
                return None, "the path is at right angles to its last direction"
            change = -(off + self._weight * dot(state.along, a)) / down
            u, p = u + a + kind(change) * v, p + change
        return None, f"not converged in {self._maxiter} iterations"

    def _turned(self, state: _State, u: Vector, p: float, v: Vector) -> _State:
        """Point with its tangent, of length one, in the direction of the last one."""
        norm = self._length(v, 1.0)
        along_last = self._weight * self._sums.dot(state.along, v) + state.slope
        slope = math.copysign(1.0 / norm, along_last)
        return _State(u, p, u.dtype.type(slope) * v, slope)


def _limit(one: _State, other: _State, length: float) -> float | None:
    """Extreme value of the parameter between two points, if the slopes differ in sign."""
    if not one.slope * other.slope < 0.0:
        return None
    start, end = length * one.slope, length * other.slope
    rise = other.parameter - one.parameter
    # derivative of Hermite's cubic: start + 2 q t + 3 c t^2
    c, q = start + end - 2.0 * rise, 3.0 * rise - 2.0 * start - end
    roots = np.roots([3.0 * c, 2.0 * q, start])
    inside = [float(t.real) for t in roots if abs(t.imag) < 1e-12 and -1e-9 <= t.real <= 1.0 + 1e-9]
    t = inside[0] if inside else start / (start - end)
    return one.parameter + t * (start + t * (q + t * c))


@checked(SolverError)
def continuation(
    F: Residual,
    u0: NDArray[Any],
    b: NDArray[Any] | None = None,
    *,
    parameter: str = LOAD,
    start: float | None = None,
    step: float = 0.1,
    largest: Positive = 10.0,
    rtol: Fraction = 1e-8,
    atol: NotNegative = 0.0,
    maxiter: Count = 10,
    wanted: Count = 4,
    points: Count = 1000,
    linear: Linear = "auto",
    preconditioner: Preconditioning = "jacobi",
    warn: bool = True,
) -> Continuation:
    r"""Follow the solutions of F(u) = b along a parameter, past limit points, by arc length.

    Each step goes along the tangent, and Newton's method leads back to the path in the plane at
    right angles to it (Riks, 1979; Keller, 1977). Its length is :math:`\sqrt{w |du|^2 + dp^2}`,
    where w makes both parts equal at the first point. It grows and shrinks as the root of
    ``wanted`` over the last step's iterations (Crisfield, 1981). A step that fails is halved.

    Parameters
    ----------
    F : Residual
        The residual, with its constrained dofs.
    u0 : (size,) array
        State near the path at the value ``start``. Newton's method solves there first.
    b : (size,) array, optional
        Load vector.
    parameter : str
        A coefficient of F that is a number; or ``"load"``, for F(u) = parameter * b.
    start : float, optional
        First value: by default 0 for the load, else the coefficient's value in F.
    step : float
        Change of the parameter by the first step. Its sign is the first direction.
    largest : float
        Longest step, in first steps.
    rtol, atol : float
        A point is on the path if its residual is at most rtol times the norm of the parameter's
        derivative, times the parameter or the first step, whichever is larger, or at most atol.
        Round-off is allowed as in `femops.newton`.
    maxiter : int
        Newton iterations after which a step has failed.
    wanted : int
        Newton iterations of a good step.
    points : int
        The path ends after so many points.
    linear, preconditioner
        See `femops.newton`. "auto" is minres for a symmetric Jacobian, which is indefinite past a
        limit point, else gmres. Where multigrid refuses a Jacobian, that of an earlier one stays.
        "direct" serves small problems best.
    warn : bool
        Whether to issue a `ConvergenceWarning` if the shortest step fails.

    Returns
    -------
    Continuation
        An iterator over ``(u, point)``, with a `PathPoint`, from the first point on. Its ``reason``
        tells how it has ended.

    Raises
    ------
    SolverError
        No solution at the first point, or a parameter that does not change it.
    OperatorError
        F has no such coefficient.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning contains ``reason``.

    Examples
    --------
    Bratu's problem has two solutions for each parameter up to 3.513830719:

    >>> import numpy as np, femops
    >>> V = femops.H1(femops.box((4,)), order=4)
    >>> F = femops.residual(lambda u, k: {"grad": u.grad, "value": -k * np.exp(u)}, V, k=3.0)
    >>> F = F.constrained(V.boundary_dofs())
    >>> path = femops.continuation(F, V.zeros(), parameter="k", linear="direct", largest=5.0)
    >>> round(next(point.limit for u, point in path if point.limit), 3)
    3.514
    """
    family = _Family(F, u0, b, parameter)
    if number_of(step) == 0.0:
        raise SolverError(f"step is {shown(step)}: give the first change of the parameter")
    limits = rtol, atol, maxiter, wanted, points
    sizes, first = (step, largest), family.first if start is None else start
    return Continuation(family, first, sizes, (linear, preconditioner), limits, warn=warn)
