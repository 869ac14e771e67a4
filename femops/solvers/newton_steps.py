"""Linear solves of Newton's method: their solvers and preconditioners."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import ConvergenceWarning, RankError, SolverError
from femops.operators import Operator
from femops.solvers.any_preconditioner import as_preconditioner, named
from femops.solvers.cg import cg
from femops.solvers.gmres import gmres
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi, jacobi
from femops.solvers.linear_problem import Info
from femops.solvers.minres import minres
from femops.solvers.preconditioner import Preconditioner
from femops_common.arguments import check_takes, shown

Vector = NDArray[Any]
Linear = (
    Literal["auto", "cg", "minres", "gmres", "direct"] | Callable[[Operator, Vector, float], Any]
)
Preconditioning = Literal["jacobi", "multigrid", "auto", "direct"] | Callable[[Operator], Any]
GAVE_UP = "the linear solver gave up"
UNSOLVED = "a step's linear problem is not solved"
_MOST = 3000  # iterations of MINRES or GMRES in a step
_STALE = 2.0  # times the iterations that a new preconditioner takes, of the same reduction
_SPARE = 10  # iterations that take less time than a new preconditioner
_LATE = 2.0  # times the iterations at which a kept one is dropped: then a new one tries again


@final
class NewtonSteps:
    """Linear solves of one run of Newton's method. A preconditioner may be kept between steps."""

    def __init__(self, linear: Linear, preconditioner: Preconditioning, *, history: bool) -> None:
        if callable(linear) and preconditioner != "jacobi":
            raise SolverError(
                "linear is a function, which has a preconditioner of its own: leave "
                "preconditioner out"
            )
        if linear == "direct":
            if preconditioner not in {"jacobi", "direct"}:
                raise SolverError("linear='direct' has factors for M: leave preconditioner out")
            linear, preconditioner = "gmres", "direct"
        if callable(linear):
            check_takes(linear, (None, None, 0.0), partial(_refused, "linear(J, b, rtol)"))
        elif callable(preconditioner):
            check_takes(preconditioner, (None,), partial(_refused, "preconditioner(J)"))
        self._linear, self._history = linear, history
        self._preconditioner = _KeptPreconditioner(preconditioner)
        self.infos: list[Info] = []

    def solve(
        self, J: Operator, right: Vector, rtol: float, masked: Vector | None = None
    ) -> tuple[Vector, str]:
        """Solve J step = right (size,). Return the step, and a message if it failed. Collective.

        ``masked`` (k,) are positions where J has the identity, and a preconditioner of the user's
        may have not.
        """
        if callable(self._linear):
            try:
                given = self._linear(J, right.copy(), rtol)
            except SolverError as error:
                return right, f"{GAVE_UP}: {error}"
            return self._taken(J, given)
        spent = 0
        while True:  # a kept preconditioner that is too slow gives way to a new one
            try:
                M = self._preconditioner.of(J)
            except SolverError as error:
                return right, f"{GAVE_UP}: {error}"
            own, most = self._own(J, M, masked), self._preconditioner.most(rtol)
            try:
                step, info = self._krylov(J, right, rtol, own, most)
            except SolverError as error:
                return right, f"{GAVE_UP}: {error}"
            if most is None or info.converged:
                break
            spent += info.iterations
            self.renew()
        info = replace(info, iterations=spent + info.iterations)
        self.infos.append(info)
        self._preconditioner.took(info.iterations, rtol)
        # an unconverged iterate of conjugate gradients is still a direction of descent
        return step, "" if info.converged or self.by_cg(J) else _unsolved(info)

    def further(self, J: Operator, right: Vector, rtol: float) -> tuple[Vector, str]:
        """As `solve`, once more in the same step, to which its iterations are added."""
        count = len(self.infos)
        step, failure = self.solve(J, right, rtol)
        for info in self.infos[count:]:
            last = self.infos[count - 1]
            self.infos[count - 1] = replace(last, iterations=last.iterations + info.iterations)
        del self.infos[max(count, 1) :]
        return step, failure

    def _own(self, J: Operator, M: Any, masked: Vector | None) -> Preconditioner | None:
        own = as_preconditioner(M, J.space, J.dtype, "preconditioner(J)")
        if masked is not None and own is not None and self._preconditioner.of_user:
            own = Masked(own, masked)
        return own

    def renew(self) -> None:
        """Make the preconditioner anew for the next solve: other dofs are free."""
        self._preconditioner.drop()

    def fall_back(self) -> None:
        """Keep a preconditioner where that of a later Jacobian cannot be made."""
        self._preconditioner.falls_back = True

    def positive_preconditioner(self, J: Operator) -> Preconditioner | None:
        """Preconditioner of a Jacobian, or of an earlier one if J is found not to be positive."""
        self.fall_back()
        try:
            M = self._preconditioner.of(J)
        except SolverError:
            M = jacobi(J)
        own = as_preconditioner(M, J.space, J.dtype, "preconditioner(J)")
        return abs(own) if isinstance(own, Jacobi) else own

    def by_cg(self, J: Operator) -> bool:
        """True if conjugate gradients solve for the step."""
        auto = self._linear == "auto" and J.symmetric and self._preconditioner.positive
        return self._linear == "cg" or auto

    def _krylov(
        self, J: Operator, right: Vector, rtol: float, M: Preconditioner | None, most: int | None
    ) -> tuple[Vector, Info]:
        """Solve with a solver of femops, in at most ``most`` iterations."""
        options: dict[str, Any] = {"rtol": rtol, "history": self._history, "warn": False}
        if self.by_cg(J):
            return cg(J, right, M=M, maxiter=most, **options)
        if self._linear == "minres":  # takes a positive preconditioner, whatever the Jacobian is
            positive = abs(M) if isinstance(M, Jacobi) else M
            return minres(J, right, maxiter=most or _MOST, M=positive, **options)
        return gmres(J, right, maxiter=most or _MOST, M=M, **options)

    def _taken(self, J: Operator, given: Any) -> tuple[Vector, str]:
        """Check the result of a user's function. Return the step and a message. Collective."""
        x, info = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if isinstance(given, tuple) and not isinstance(info, Info):
            raise SolverError(
                f"linear(J, b, rtol) returned {shown(given)}: return x, or (x, info) as "
                "femops.gmres does; of SciPy's solvers return the first alone"
            )
        if x is None:
            raise SolverError(
                "linear(J, b, rtol) returned no solution, but None: end it with return x"
            )
        memory = J.space.memory
        found = memory.factor(x, "linear(J, b, rtol)")
        if (
            found.shape not in {(J.space.size,), (J.space.size, 1)}
            or found.dtype.kind not in "biuf"
        ):
            raise SolverError(
                f"linear(J, b, rtol) returned an array of {found.dtype} and shape {found.shape}: "
                f"return x, a real vector of shape ({J.space.size},)"
            )
        if info is not None:
            self.infos.append(info)
        step = found.astype(J.dtype, copy=False).reshape(-1)
        if not np.isfinite(Sums(J.space).norm(step)):
            return step, "linear(J, b, rtol) returned entries that are not finite"
        return step, "" if info is None or info.converged else _unsolved(info)


@final
class Masked(Preconditioner):
    """A preconditioner of the unknowns that are left when some are held; these it takes to zero."""

    _given_as = "a preconditioner of the free unknowns"

    def __init__(self, M: Preconditioner, rows: Vector) -> None:
        self._M, self._rows, self.symmetric = M, rows, M.symmetric
        super().__init__(M.dtype, M.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        free = x.copy()
        free[self._rows] = 0.0
        self._M.apply(free, result)
        result[self._rows] = 0.0

    def _adjoint(self) -> Preconditioner:
        return Masked(self._M.T, self._rows)


def _refused(call: str, reason: str) -> SolverError:
    return SolverError(f"newton calls {call}: {reason}")


def _unsolved(info: Info) -> str:
    return f"{UNSOLVED} in {info.iterations} iterations"


@final
class _KeptPreconditioner:
    """Preconditioner of the steps. Jacobi's is new in each step, others stay while they work."""

    def __init__(self, kind: Preconditioning) -> None:
        self._make: Callable[[Operator], Any] = partial(named, kind, positive=False)
        self._fixed = hasattr(kind, "matvec")
        if self._fixed:  # SciPy's operators can be called: that is a product
            self._make = lambda _: kind
        elif callable(kind):
            self._make = kind
        self.positive = kind not in {"auto", "direct"}  # as far as its name tells
        self._keeps = kind != "jacobi"
        self.of_user = not isinstance(kind, str)
        self.falls_back = False
        self._last: Any = None
        self._kept: Any = None
        self._new, self._rate = True, 0.0

    def of(self, J: Operator) -> Any:
        """Return the preconditioner for a Jacobian: a new one, or the kept one."""
        if not self._keeps:
            return self._make(J)
        self._new = self._kept is None
        if self._kept is None:
            self._kept = self._made(J)
        return self._kept

    def _made(self, J: Operator) -> Any:
        if not self.falls_back or self._last is None:
            self._last = self._make(J)
            return self._last
        with warnings.catch_warnings(), suppress(SolverError, ConvergenceWarning, RankError):
            warnings.simplefilter("error", ConvergenceWarning)  # cycles that diverge
            self._last = self._make(J)
        return self._last

    def drop(self) -> None:
        """Make another one for the next Jacobian."""
        self._kept = None

    def most(self, rtol: float) -> int | None:
        """Most iterations with a kept preconditioner; None for a new one, or one of the user's."""
        if self._new or not self._keeps or self._fixed:
            return None
        return round(_LATE * (_SPARE - _STALE * self._rate * float(np.log(rtol))))

    def took(self, iterations: int, rtol: float) -> None:
        """Record a step's iterations. Drop a kept preconditioner that has become too slow."""
        rate = iterations / -np.log(rtol)
        self._rate = rate if self._new else self._rate
        if iterations > _SPARE + _STALE * self._rate * -np.log(rtol):
            self._kept = None
