"""Newton's method for residuals, with matrix-free Jacobians."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import Errors, SolverError
from femops.operators import Operator
from femops.operators.levels.level_data import check_level
from femops.operators.residual import Residual
from femops.parallel.comm import Communicator
from femops.solvers.cg import cg
from femops.solvers.convergence import warn_unconverged
from femops.solvers.gmres import gmres
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi, jacobi
from femops.solvers.linear_problem import Info
from femops.solvers.minres import minres
from femops.solvers.multigrid import Multigrid, multigrid
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Callback, Progress, Watch
from femops_meshes.arguments import Count, Fraction, NotNegative, checked

Linear = Literal["auto", "cg", "minres", "gmres"]
Kind = Literal["jacobi", "multigrid"]
# Eisenstat & Walker (1996), choice 2: how far a step's linear system is solved.
_FORCING, _GAMMA = 0.1, 0.9
_SHORTEST = 2.0**-12  # step length at which the search gives up
_DECREASE = 1e-4  # Armijo's constant
_MOST = 3000  # iterations of MINRES or GMRES in a step
_FLATTER = 0.8  # what the slope along a step must fall to
_STALE = 2.0  # times the iterations that a new preconditioner takes, of the same reduction


@final
@dataclass(frozen=True)
class NewtonInfo:
    """Report of a nonlinear solve.

    Attributes
    ----------
    converged : bool
    reason : str
        Why it ended.
    iterations : int
        Newton steps taken.
    linear_iterations : int
        Of the Krylov solver, all steps together.
    residuals : tuple of float
        Euclidean norm of the residual before the first step and after each.
    linear_residuals : tuple of tuples of float
        With ``history=True`` those of the Krylov solver, for each step (see `Info`); else empty.
    """

    converged: bool
    reason: str
    iterations: int
    linear_iterations: int
    residuals: tuple[float, ...]
    linear_residuals: tuple[tuple[float, ...], ...] = ()


@checked(SolverError)
def newton(
    F: Residual,
    u0: NDArray[Any],
    b: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-8,
    atol: NotNegative = 1e-12,
    maxiter: Count = 30,
    linear: Linear = "auto",
    level: str = "partial",
    preconditioner: Kind = "jacobi",
    callback: Callback | None = None,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> tuple[NDArray[Any], NewtonInfo]:
    """Solve R(u; v) = b(v) for all v by an inexact Newton method with backtracking.

    Parameters
    ----------
    F : Residual
        With its constrained dofs (`Residual.constrained`).
    u0 : (size,) array
        First guess; its entries at constrained dofs are kept.
    b : (size,) array, optional
        Load vector, zero if omitted.
    rtol, atol : float
        Done when |R(u) - b| <= max(rtol |R(u0) - b|, atol), over the free dofs.
    maxiter : int
        Most steps.
    linear : {"auto", "cg", "minres", "gmres"}
        Krylov solver for the steps (preconditioned by the diagonal, minres takes its absolute
        value): cg for a positive definite Jacobian, minres for a symmetric, gmres for
        any; auto is cg for a symmetric Jacobian, else gmres.
    level : {"full", "element", "decomposed", "partial", "matrix-free", "auto"}
        What Jacobians keep; see `Operator.at_level`.
    preconditioner : {"jacobi", "multigrid"}
        Of the steps, instead of the diagonal alone: `femops.multigrid` of a Jacobian, which is
        kept until later ones take twice the iterations. Jacobians must be positive definite.
    callback : callable, optional
        Called as ``callback(u)`` after each step.
    history : bool
        Whether ``info.linear_residuals`` is kept; ``info.residuals`` always is.
    progress : callable, optional
        Called as ``progress(steps, residual)`` before the first step and after each, with the norm
        of the residual.
    warn : bool
        Whether to issue a `ConvergenceWarning` if the solve has not converged.

    Returns
    -------
    u : (size,) array
        The last state whose residual was a number; the solution if ``info.converged``.
    info : NewtonInfo

    Raises
    ------
    SolverError
        A first guess at which the residual is not a number, or arguments that make no sense.
    OperatorError
        An unknown level, or one that would not fit into memory.
    VectorError
        Vectors of another shape or type.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning contains ``info.reason``.
    """
    check_level(level)
    sums = Sums(F.space)
    u = _own(F, u0, "u0")
    load = sums.arrays.zeros_like(u) if b is None else _own(F, b, "b")
    load[F.space.memory.put(F.constrained_dofs)] = 0.0
    residual = F.residual(u) - load
    norms = [sums.norm(residual)]
    if not np.isfinite(norms[0]):
        raise SolverError("the residual of the first guess is not a number: begin with another")
    goal, forcing, solves = max(rtol * norms[0], atol), _FORCING, list[Info]()
    reason, watch = "converged", Watch(False, progress, callback)
    made = _Preconditioner(preconditioner)
    watch.tell(0, norms[0], u.view)
    while norms[-1] > goal:
        if len(norms) > maxiter:
            reason = f"not converged in {maxiter} steps"
            break
        J = F.jacobian(u).at_level(level)
        step, failure = _solve(J, -residual, forcing, linear, made, solves, history)
        level = J.level  # "auto" is chosen once
        found = None if failure else _search(F, u, step, load, residual, sums)
        if found is None:
            reason = failure or "no step along the Newton direction makes progress"
            break
        u, residual = found
        norms.append(sums.norm(residual))
        if norms[-1] > goal:  # which may be zero, and the norm too
            least = 0.1 * goal / norms[-1]
            forcing = min(_FORCING, max(_GAMMA * (norms[-1] / norms[-2]) ** 2, least))
        watch.tell(len(norms) - 1, norms[-1], u.view)
    spent = sum(info.iterations for info in solves)
    inner = tuple(info.residuals for info in solves) if history else ()
    info = NewtonInfo(norms[-1] <= goal, reason, len(norms) - 1, spent, tuple(norms), inner)
    if warn and not info.converged:
        _warn(info, goal, _cause(F, u, residual, goal), F.space.comm)
    return u, info


def _cause(F: Residual, u: NDArray[Any], residual: NDArray[Any], goal: float) -> str:
    """The likely cause; empty if there is none, or no Jacobian at u to look for it. Collective."""
    J: Operator | None = None
    with suppress(*Errors):  # the result is worth more than the cause
        J = F.jacobian(u)
    if F.space.comm.max(int(J is None)) or J is None:
        return ""
    return singular_cause(J, residual, goal, "F")


def _warn(info: NewtonInfo, goal: float, cause: str, comm: Communicator) -> None:
    """Warn of a solve that has not converged. Collective."""
    warn_unconverged(
        f"femops.newton has not converged: |R(u) - b| is {info.residuals[-1]:.2g} after "
        f"{info.iterations} steps, not {goal:.2g} ({info.reason}). "
        f"{cause or 'Apply the load in steps, or begin with a better u0.'}",
        comm,
    )


@final
class _Preconditioner:
    """Preconditioner of the steps: made anew for each Jacobian, or kept while it does.

    Parameters
    ----------
    kind : {"jacobi", "multigrid"}
    """

    def __init__(self, kind: Kind) -> None:
        self._kind, self._kept = kind, None
        self._new, self._rate = True, 0.0

    _kept: Multigrid | None

    def of(self, J: Operator) -> Jacobi | Multigrid:
        """The preconditioner for a Jacobian."""
        if self._kind == "jacobi":
            return jacobi(J)
        self._new = self._kept is None
        if self._kept is None:
            self._kept = multigrid(J)
        return self._kept

    def took(self, iterations: int, rtol: float) -> None:
        """Note the iterations to a relative residual; what has become too slow is thrown away."""
        rate = iterations / -np.log(rtol)
        self._rate = rate if self._new else self._rate
        if rate > _STALE * self._rate:
            self._kept = None


def _positive(M: Jacobi | Multigrid) -> Jacobi | Multigrid:
    """The preconditioner, or the absolute value of a diagonal."""
    return abs(M) if isinstance(M, Jacobi) else M


def _own(F: Residual, vector: Any, what: str) -> NDArray[Any]:
    """A copy of a vector, where the vectors of the form are."""
    copy: NDArray[Any] = F.space.memory.vector_of(F.space, vector, what).copy()
    return copy


def _solve(
    J: Operator,
    right: NDArray[Any],
    rtol: float,
    linear: Linear,
    made: _Preconditioner,
    solves: list[Info],
    history: bool,
) -> tuple[NDArray[Any], str]:
    """Step, and what went wrong if anything did; the report is added to those of before."""
    failure = "a step's linear problem is not solved in {} iterations"
    try:
        M = made.of(J)
        if linear == "cg" or (linear == "auto" and J.symmetric):
            step, info = cg(J, right, rtol=rtol, M=M, history=history, warn=False)
            failure = ""  # what it has come to is a direction of descent
        elif linear == "minres":  # takes a positive preconditioner, whatever the Jacobian is
            step, info = minres(
                J, right, rtol=rtol, maxiter=_MOST, M=_positive(M), history=history, warn=False
            )
        else:
            step, info = gmres(J, right, rtol=rtol, maxiter=_MOST, M=M, history=history, warn=False)
    except SolverError as error:
        return right, f"the linear solver gave up: {error}"
    solves.append(info)
    made.took(info.iterations, rtol)
    return step, "" if info.converged else failure.format(info.iterations)


def _search(
    F: Residual,
    u: NDArray[Any],
    step: NDArray[Any],
    load: NDArray[Any],
    residual: NDArray[Any],
    sums: Sums,
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """First of the steps 1, 1/2, 1/4, ... that makes progress; None if none does.

    Progress is a smaller residual, or a smaller component of it along the step: where a form is the
    derivative of an energy, that is the energy's slope (Bonet and Wood, section 9.6), and large
    rotations need steps that reduce it while the residual's norm grows.
    """
    norm, slope = sums.norm(residual), abs(sums.dot(step, residual))
    length = 1.0
    while length >= _SHORTEST:
        trial = u + u.dtype.type(length) * step
        found = F.residual(trial) - load
        # what is not a number fails both comparisons
        smaller = sums.norm(found) <= (1.0 - _DECREASE * length) * norm
        if smaller or abs(sums.dot(step, found)) <= _FLATTER * slope:
            return trial, found
        length *= 0.5
    return None
