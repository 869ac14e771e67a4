"""Linear equations of adjoints and of tangents."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator, Residual
from femops.solvers.convergence import warn_of_fields, warn_unconverged
from femops.solvers.linear_problem import Info
from femops.solvers.newton_steps import GAVE_UP, Linear, NewtonSteps, Preconditioning

Vector = NDArray[Any]


@final
class LinearEquations:
    """Linear equations with the Jacobian of a residual, zero at its constrained dofs."""

    def __init__(
        self,
        F: Residual | Operator,
        linear: Linear,
        preconditioner: Preconditioning,
        rtol: float,
        level: str,
        caller: str,
    ) -> None:
        self._steps = NewtonSteps(linear, preconditioner, history=False)
        self._space, self._rtol, self._level, self._caller = F.space, rtol, level, caller
        self.fixed = F.space.memory.put(F.constrained_dofs)
        self.info: Info | None = None

    def jacobian(self, F: Residual | Operator, state: Vector) -> Operator:
        """Jacobian of the residual at a state, at the level of the equations."""
        J = F if isinstance(F, Operator) else F.jacobian(state)
        return J.at_level(self._level)

    def solve(
        self, J: Operator, right: Vector, what: str, *, warn: bool = True, strict: bool = False
    ) -> Vector:
        """Solve J x = right with x = 0 at the constrained dofs. Collective.

        Shapes: `right` (size,).
        """
        right[self.fixed] = 0.0
        return self.solve_with_values(J, right, what, warn=warn, strict=strict)

    def solve_with_values(
        self, J: Operator, right: Vector, what: str, *, warn: bool = True, strict: bool = False
    ) -> Vector:
        """Solve J x = right with the values of the right-hand side at constrained dofs.

        Parameters, result and errors are those of `solve`.
        """
        if not self._space.comm.max(int(bool(right.any()))):
            return right
        if right.ndim == 2 and not self._steps.by_cg(J):
            columns = [right[:, j].copy() for j in range(right.shape[1])]
            found = tuple(self.solve_with_values(J, b, what, warn=warn) for b in columns)
            stacked: Vector = self._space.memory.xp.stack(found, axis=1)
            return stacked
        x, failure = self._steps.solve(J, right, self._rtol)
        infos = self._steps.infos
        self.info = infos[-1] if infos else None
        infos.clear()
        broken = failure.startswith(GAVE_UP) or not np.isfinite(float(x.sum()))
        if self._space.comm.max(int(broken)):  # all ranks raise, or none
            raise SolverError(f"the {what} equation: {failure or 'it has no finite solution'}")
        # a solver that only promises a direction of descent reports no failure
        if failure or (self.info is not None and not self.info.converged):
            message = (
                f"{self._caller}: the {what} equation is not solved to {self._rtol:g}. Give "
                "another preconditioner, or a larger rtol."
            )
            if strict:
                raise SolverError(message)
            if warn:
                warn_unconverged(message, self._space.comm)
        elif warn and self.info is not None:
            warn_of_fields(self._caller, J, x, self.info.fields, self._rtol)
        return x
