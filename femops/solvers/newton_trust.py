"""A trust region for Newton's method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.solvers.inner_products import Sums
from femops.solvers.linear_problem import Info
from femops.solvers.newton_equation import DECREASE, Equation, Globalization, positive_diagonal
from femops.solvers.newton_steps import GAVE_UP, NewtonSteps
from femops.solvers.preconditioner import Preconditioner

Vector = NDArray[Any]

_TRIALS = 40  # steps of smaller and smaller regions, after which the method gives up
_POOR, _GOOD = 0.25, 0.75  # ratios of achieved and predicted decrease that change the radius
_SHRINK, _GROW = 0.25, 2.0
_HALVED = 0.5  # part of the norm at which a step is taken whose decrease is round-off
_MOST = 3000  # iterations for a step
_STUCK = "no step within the trust region makes progress"


@final
@dataclass(frozen=True)
class _Step:
    """Step within a region: its length, the change that the model predicts, and where it ends."""

    step: Vector
    length: float
    predicted: float
    inside: bool  # the model has its minimum within the region, and the step leads there


@final
class TrustRegion(Globalization):
    """Steps that minimise a quadratic model within a region where the model holds.

    Where conjugate gradients solve, the model is that of the energy, minimised by Steihaug's method
    (1983), which follows directions of negative curvature to the edge of the region. The change of
    the energy is the work of F(u) - b along the step, by Simpson's rule. Else the model is
    |F(u) - b + J s|^2 / 2, and steps follow Powell's dogleg (1970).
    """

    def __init__(self, equation: Equation, steps: NewtonSteps, sums: Sums) -> None:
        super().__init__(equation, steps, sums)
        self._radius = math.inf

    def advance(self, J: Operator, forcing: float) -> str:
        """See `Globalization.advance`."""
        by_energy = self.steps.by_cg(J)
        model: _Energy | _Squares
        try:
            if by_energy:
                M = self.steps.positive_preconditioner(J)
                model = _Energy(J, self.raw, M, forcing, self.sums, self.steps.infos)
            else:
                model = _Squares(J, self.raw, self.steps, forcing, self.sums)
        except SolverError as error:
            return self.equation.failure_of_laws(self.u) or str(error)
        norm = self.sums.norm(self.raw)
        for _ in range(_TRIALS):
            found = model.step(self._radius)
            if not found.length > 0.0:
                break
            trial = self.u + found.step
            raw = self.equation.trial(trial)
            change = math.nan
            if raw is not None:
                change = self._change(found.step, raw, by_energy=by_energy)
            ratio = change / found.predicted if found.predicted < 0.0 else math.nan
            if not ratio >= _POOR:  # NaN, too
                self._radius = _SHRINK * found.length
            elif (ratio > _GOOD and not found.inside) or math.isinf(self._radius):
                self._radius = _GROW * found.length
            if raw is None:
                continue
            halved = found.inside and self.sums.norm(raw) <= _HALVED * norm
            if ratio > DECREASE or halved:
                self.u, self.raw, self.residual = trial, raw, raw
                return ""
        return _STUCK

    def _change(self, step: Vector, raw: Vector, *, by_energy: bool) -> float:
        """Change of the energy, or of the squares, along a step. NaN if F has no value there."""
        if not by_energy:
            return 0.5 * (self.sums.dot(raw, raw) - self.sums.dot(self.raw, self.raw))
        middle = self.equation.trial(self.u + self.u.dtype.type(0.5) * step)
        if middle is None:
            return math.nan
        return self.sums.dot(step, self.raw + 4.0 * middle + raw) / 6.0


@final
class _Energy:
    """Model r . s + s . J s / 2, in the norm of the inverse of a preconditioner."""

    def __init__(
        self,
        J: Operator,
        raw: Vector,
        M: Preconditioner | None,
        rtol: float,
        sums: Sums,
        infos: list[Info],
    ) -> None:
        self._J, self._raw, self._M, self._rtol, self._sums = J, raw, M, rtol, sums
        self._infos = infos

    def _preconditioned(self, g: Vector) -> Vector:
        return g.copy() if self._M is None else self._M.apply(g)

    def step(self, radius: float) -> _Step:
        """Minimise the model within a radius by truncated conjugate gradients. Collective."""
        dot, number = self._sums.dot, self._raw.dtype.type
        s, g = self._raw * 0, self._raw.copy()
        z = self._preconditioned(g)
        p, gz = -z, dot(g, z)
        first = self._sums.norm(g)
        ss, sp, pp, predicted, residual = 0.0, 0.0, gz, 0.0, first
        inside, k = True, 0
        while k < _MOST and gz > 0.0 and residual > self._rtol * first:
            k += 1
            Jp = self._J.apply(p)
            curvature, slope = dot(p, Jp), dot(g, p)
            if curvature <= 0.0 and math.isinf(radius):
                radius = math.sqrt(max(ss, pp))
            length = gz / curvature if curvature > 0.0 else math.inf
            inside = ss + length * (2.0 * sp + length * pp) < radius**2
            if not inside:
                rest = max(radius**2 - ss, 0.0)
                length = rest / (sp + math.sqrt(sp * sp + pp * rest)) if rest else 0.0
            predicted += length * slope + 0.5 * length**2 * curvature
            s += number(length) * p
            g += number(length) * Jp
            ss += length * (2.0 * sp + length * pp)
            residual = self._sums.norm(g)
            if not inside:
                break
            z = self._preconditioned(g)
            new = dot(g, z)
            sp, pp = new / gz * (sp + length * pp), new + (new / gz) ** 2 * pp
            p, gz = -z + number(new / gz) * p, new
        told = self._rtol * first
        self._infos.append(Info(residual <= told, k, residual, told))
        return _Step(s, math.sqrt(max(ss, 0.0)), predicted, inside)


@final
class _Squares:
    """Model |r + J s|^2 / 2, in the norm of the diagonal of J."""

    def __init__(
        self, J: Operator, raw: Vector, steps: NewtonSteps, rtol: float, sums: Sums
    ) -> None:
        self._raw, self._sums = raw, sums
        self._newton, failure = steps.solve(J, -raw, rtol)
        if failure.startswith(GAVE_UP) or not np.isfinite(sums.norm(self._newton)):
            raise SolverError(failure or f"{GAVE_UP}: its solution is not finite")
        self._along_newton = J.apply(self._newton)
        self._scale = positive_diagonal(J)
        down = -(J.T.apply(raw) / self._scale) / self._scale
        along = J.apply(down)
        squares = sums.dot(along, along)
        length = -sums.dot(raw, along) / squares if squares > 0.0 else 0.0
        self._cauchy, self._along_cauchy = (raw.dtype.type(length) * v for v in (down, along))

    def _length(self, step: Vector) -> float:
        return self._sums.norm(self._scale * step)

    def step(self, radius: float) -> _Step:
        """Step of the dogleg within a radius. Collective."""
        number = self._raw.dtype.type
        whole, short = self._length(self._newton), self._length(self._cauchy)
        if whole <= radius:
            return self._made(self._newton, self._along_newton, whole, inside=True)
        if short >= radius:
            part = number(radius / short)
            return self._made(part * self._cauchy, part * self._along_cauchy, radius, inside=False)
        leg = self._newton - self._cauchy
        squares = self._length(leg) ** 2
        slope = self._sums.dot(self._scale * self._cauchy, self._scale * leg)
        rest = radius**2 - short**2
        root = math.sqrt(slope**2 + squares * rest)
        part = number(rest / (slope + root) if slope > 0.0 else (root - slope) / squares)
        step = self._cauchy + part * leg
        along = self._along_cauchy + part * (self._along_newton - self._along_cauchy)
        return self._made(step, along, radius, inside=False)

    def _made(self, step: Vector, along: Vector, length: float, *, inside: bool) -> _Step:
        predicted = self._sums.dot(along, self._raw + along.dtype.type(0.5) * along)
        return _Step(step, length, predicted, inside)
