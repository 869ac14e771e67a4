"""Newton's method for residuals, with matrix-free Jacobians."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import Errors, LawError, SolverError
from femops.operators import Operator
from femops.operators.levels.dispatch import check_level
from femops.operators.residual import Residual
from femops.parallel.comm import Communicator
from femops.solvers.convergence import warn_of_fields, warn_of_setup, warn_unconverged
from femops.solvers.inner_products import Sums
from femops.solvers.linear_problem import Info
from femops.solvers.newton_steps import GAVE_UP, UNSOLVED, Linear, NewtonSteps, Preconditioning
from femops.solvers.singular import entry_round_off, singular_cause
from femops.solvers.watch import Callback, Progress, Watch, read_only
from femops_common import html
from femops_common.arguments import Count, Fraction, NotNegative, checked
from femops_kernels.compiled import LEAST_NORM

# Eisenstat & Walker (1996), choice 2: how far a step's linear system is solved.
_FORCING, _GAMMA = 0.1, 0.9
_SHORTEST = 2.0**-12  # step length at which the search gives up
_DECREASE = 1e-4  # Armijo's constant
_FLATTER = 0.8  # part of the first slope to which the slope along a step must fall
_SMALL = 1e-12  # a residual that may be rounding, where coefficients are of size 1
_ROUNDING = 4.0  # allowed over the residual that rounding u causes; measured: 1.0 for p to 7
_ROUNDED = "converged to round-off"
_NO_PROGRESS = "no step along the Newton direction makes progress"
_SOLVED, _STALLED = 1e-6, 3  # below this part, if these steps do not halve it, it is round-off


@final
@dataclass(frozen=True)
class NewtonInfo:
    """Report of a nonlinear solve.

    Attributes
    ----------
    converged : bool
    reason : str
        Reason for which the iteration ended.
    iterations : int
        Number of Newton steps.
    linear_iterations : int
        Iterations of the linear solver, all steps together.
    residuals : tuple of float
        Euclidean norm of the residual before the first step and after each.
    tolerance : float
        Bound for the last of the residuals, with that of rounding.
    linear_residuals : tuple of tuples of float
        Residuals of the linear solver in each step (see `Info`). Empty without ``history=True``.
    fields : dict of pairs of float
        On a product of spaces: for each field, by its name, the norms of its part of the residual
        at the end and before the first step. ``converged`` is about all fields together, so a field
        whose numbers are small in its units may be unsolved.
    """

    converged: bool
    reason: str
    iterations: int
    linear_iterations: int
    residuals: tuple[float, ...]
    tolerance: float
    linear_residuals: tuple[tuple[float, ...], ...] = ()
    fields: dict[str, tuple[float, float]] = field(default_factory=dict, hash=False)

    @property
    def residual(self) -> float:
        """Norm of the residual at the end."""
        return self.residuals[-1]

    def _repr_html_(self) -> str:
        rows = [
            ("converged", "yes" if self.converged else f"no: {self.reason}"),
            ("steps", f"{self.iterations}"),
            ("linear iterations", f"{self.linear_iterations}"),
            ("residuals", ", ".join(f"{norm:.3g}" for norm in self.residuals)),
            ("tolerance", f"{self.tolerance:.3g}"),
        ]
        rows += [(f"residual of {name}", f"{r:.3g}") for name, (r, _) in self.fields.items()]
        return html.table("NewtonInfo", rows)


@checked(SolverError)
def newton(
    F: Residual,
    u0: NDArray[Any],
    b: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-8,
    atol: NotNegative = 0.0,
    maxiter: Count = 30,
    linear: Linear = "auto",
    level: str = "partial",
    preconditioner: Preconditioning = "jacobi",
    callback: Callback | None = None,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> tuple[NDArray[Any], NewtonInfo]:
    """Solve R(u; v) = b(v) for all v by an inexact Newton method with backtracking.

    Parameters
    ----------
    F : Residual
        The residual R, with its constrained dofs (`Residual.constrained`).
    u0 : (size,) array
        First guess. Entries at constrained dofs do not change.
    b : (size,) array, optional
        Load vector, zero if omitted.
    rtol, atol : float
        Done when |R(u) - b| <= max(rtol |R(u0) - b|, atol), over the free dofs. Also done when
        |R(u) - b| <= 4 eps |D u|, the effect of rounding u, where D is the Jacobian's diagonal, and
        no entry of R(u) - b is above the round-off of its own terms. D is computed only if the
        residual is below 1e-12, or a step does not halve it.
    maxiter : int
        Maximum number of steps.
    linear : {"auto", "cg", "minres", "gmres", "direct"} or callable
        Solver of the linear problem in each step: cg for a positive definite Jacobian, minres for a
        symmetric one, gmres for any. auto takes cg for a symmetric Jacobian, else gmres. minres
        takes the absolute value of a diagonal preconditioner. direct is gmres with `femops.direct`,
        whose factors serve several steps. A function is called as ``linear(J,
        b, rtol)`` with the Jacobian, an operator, and returns x with |b - J x| <= rtol |b|, or (x,
        info) as femops' solvers do.
    level : {"full", "element", "partial", "matrix-free", "auto"}
        What Jacobians store; see `Operator.at_level`.
    preconditioner : {"jacobi", "multigrid", "auto", "direct"}, callable, or LinearOperator
        Preconditioner of the linear problem in each step: the diagonal of the Jacobian;
        `femops.multigrid` of a Jacobian, which must be positive definite; `femops.preconditioner`,
        for several fields too; or `femops.direct`. The last two are for gmres. A function is called
        as
        ``preconditioner(J)`` and returns a preconditioner that `cg` accepts as M. For several
        fields see `block_triangular`. Newton reuses multigrid, or the function's result, until the
        number of linear iterations has doubled. A preconditioner object serves all Jacobians.
    callback : callable, optional
        Called as ``callback(u)`` after each step. On the host u is read-only.
    history : bool
        Whether to keep ``info.linear_residuals``. ``info.residuals`` is always kept.
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
        A first guess at which the residual is not a number or underflows, arguments that make no
        sense, or a function that returns no preconditioner or no solution.
    OperatorError
        An unknown level, or one that would not fit into memory.
    VectorError
        Vectors of another shape or type.

    Warns
    -----
    ConvergenceWarning
        See ``warn``. The warning contains ``info.reason``.

    Examples
    --------
    >>> import femops
    >>> from scipy.sparse.linalg import spsolve
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> F = femops.residual(lambda u: {"value": u + u**3, "grad": u.grad}, V)
    >>> F, b = F.constrained(V.boundary_dofs()), femops.load(V, 1.0)

    A function that makes a preconditioner, from the diffusion alone:

    >>> D = femops.diffusion(V).constrained(V.boundary_dofs())
    >>> u, info = femops.newton(F, V.zeros(), b, preconditioner=lambda J: femops.multigrid(D))
    >>> info.converged
    True

    A direct solver:

    >>> def direct(J, b, rtol):
    ...     return spsolve(J.assemble().tocsc(), b)
    >>> same, info = femops.newton(F, V.zeros(), b, linear=direct)
    >>> bool(abs(same - u).max() < 1e-8)
    True
    """
    check_level(level)
    sums = Sums(F.space)
    u, load = _start(F, u0, b)
    residual = F.residual(u) - load
    norms, first = [_first_norm(F, residual, atol, sums)], residual
    asked, forcing = max(rtol * norms[0], atol), _FORCING
    steps = NewtonSteps(linear, preconditioner, history=history)
    reason, watch = "converged", Watch(False, progress, callback, F.space.comm)
    watch.tell(0, norms[0], partial(read_only, F.space, u))
    while norms[-1] > (goal := _with_rounding(F, u, residual, load, norms, asked)):
        if len(norms) > maxiter:
            reason = f"not converged in {maxiter} steps"
            break
        J = F.jacobian(u).at_level(level)
        if warn and len(norms) == 1:
            warn_of_setup(J)
        step, failure = steps.solve(J, -residual, forcing)
        failure = failure and (F.failure_of_laws(u) or failure)
        level = J.level  # "auto" is chosen once
        found = None if failure else _search(F, u, step, load, residual, sums)
        if found is None:
            reason = failure or _NO_PROGRESS
            break
        u, residual = found
        norms.append(sums.norm(residual))
        forcing = _next_forcing(forcing, norms, goal)
        watch.tell(len(norms) - 1, norms[-1], partial(read_only, F.space, u))
    goal = _with_rounding(F, u, residual, load, norms, asked, ended=True)
    fields = sums.of_fields(residual, first)
    info = _report(norms, asked, goal, reason, steps.infos, fields, history=history)
    if warn and info.converged:
        warn_of_fields("femops.newton", lambda: F.jacobian(u), u, fields, rtol)
    elif warn:
        _warn(info, _cause(F, u, residual, goal), F.space.comm)
    return u, info


def _next_forcing(forcing: float, norms: Sequence[float], goal: float) -> float:
    """Relative tolerance of the next linear solve: small if the last step has reduced much."""
    if norms[-1] <= goal:  # both may be zero
        return forcing
    least = 0.1 * goal / norms[-1]
    return min(_FORCING, max(_GAMMA * (norms[-1] / norms[-2]) ** 2, least))


def _report(
    norms: list[float],
    asked: float,
    goal: float,
    reason: str,
    infos: Sequence[Info],
    fields: dict[str, tuple[float, float]],
    *,
    history: bool,
) -> NewtonInfo:
    """Report of a solve that ended for ``reason``. The goal is ``asked``, or more by rounding."""
    converged = norms[-1] <= goal
    if converged:
        reason = "converged" if norms[-1] <= asked else _ROUNDED
    spent = sum(info.iterations for info in infos)
    inner = tuple(info.residuals for info in infos) if history else ()
    return NewtonInfo(converged, reason, len(norms) - 1, spent, tuple(norms), goal, inner, fields)


def _start(F: Residual, u0: Any, b: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Copies of the guess and of the load, which is zero at constrained dofs."""
    u = _own(F, u0, "u0")
    load = F.space.memory.xp.zeros_like(u) if b is None else _own(F, b, "b")
    load[F.space.memory.put(F.constrained_dofs)] = 0.0
    return u, load


def _own(F: Residual, vector: Any, what: str) -> NDArray[Any]:
    """Check a vector of the residual's space, and return a copy (size,)."""
    copy: NDArray[Any] = F.space.memory.vector_of(F.space, vector, what).copy()
    return copy


def _first_norm(F: Residual, residual: NDArray[Any], atol: float, sums: Sums) -> float:
    """Norm of the residual of the first guess. Raise if it is not finite or underflows."""
    norm = sums.norm(residual)
    if not np.isfinite(norm):
        raise SolverError(
            "the residual of the first guess is not a number, as where an element is inverted: "
            "begin with another u0, or change prescribed values in smaller steps that the tangent "
            "spreads (docs/solids.md)"
        )
    if max(norm, atol) < LEAST_NORM and F.space.comm.max(int(bool(residual.any()))):
        raise SolverError(
            "the residual of the first guess has entries other than zero, but their squares "
            "underflow: multiply F and b by a large number"
        )
    return norm


def rounding_of(F: Residual, u: NDArray[Any]) -> float:
    """Norm that the residual may have by rounding of u alone, whatever the size of u. Collective.

    At a solution the residual does not get smaller. The norm is zero if it is not finite.
    """
    terms = F.jacobian(u).diagonal() * u
    terms[F.space.memory.put(F.constrained_dofs)] = 0.0
    norm = Sums(F.space).norm(terms)
    return _ROUNDING * float(np.finfo(F.dtype).eps) * norm if np.isfinite(norm) else 0.0


def _with_rounding(
    F: Residual,
    u: NDArray[Any],
    residual: NDArray[Any],
    load: NDArray[Any],
    norms: Sequence[float],
    asked: float,
    *,
    ended: bool = False,
) -> float:
    """Return the tolerance, or the norm that rounding of u leaves if larger. Collective.

    That costs the diagonal of a Jacobian. So it is computed only where the norm is small or hardly
    falls, and at the end. An earlier u does not count: it may be far larger than the solution.
    """
    slow = len(norms) > 1 and norms[-1] > 0.5 * norms[-2]
    if norms[-1] <= asked or not (norms[-1] <= _SMALL or slow or ended):
        return asked
    try:
        goal = max(asked, rounding_of(F, u))
        if asked < norms[-1] <= goal and _beyond_rounding(F, u, residual, load) > asked:
            return asked
        return goal
    except Errors:  # the iteration has a better message
        return asked


def _beyond_rounding(
    F: Residual, u: NDArray[Any], residual: NDArray[Any], load: NDArray[Any]
) -> float:
    """Norm of the entries of a residual that rounding of u does not explain. Collective.

    A stiff part may leave round-off that hides the residual of a soft part in the norm of all.
    """
    eps, xp = float(np.finfo(F.dtype).eps), F.space.memory.xp
    bounds = entry_round_off(F.jacobian(u).unconstrained, u) + _ROUNDING * eps * abs(load)
    return Sums(F.space).norm(xp.where(abs(residual) > bounds, residual, 0.0))


def _cause(F: Residual, u: NDArray[Any], residual: NDArray[Any], goal: float) -> str:
    """Likely cause of a failed solve. Empty if none is recognized, or J fails. Collective."""
    J: Operator | None = None
    with suppress(*Errors):  # the result is worth more than the cause
        J = F.jacobian(u)
    if F.space.comm.max(int(J is None)) or J is None:
        return ""
    return singular_cause(J, residual, goal, "F")


def _warn(info: NewtonInfo, cause: str, comm: Communicator) -> None:
    """Warn that a Newton solve has not converged. Collective."""
    # the linear solver's own words on a singular Jacobian would speak of A
    told = GAVE_UP if cause and " is singular" in info.reason else info.reason
    warn_unconverged(
        f"femops.newton has not converged: |R(u) - b| is {info.residual:.2g} after "
        f"{info.iterations} steps, not {info.tolerance:.2g} ({told}). "
        f"{cause or _advice(info)}",
        comm,
    )


def _advice(info: NewtonInfo) -> str:
    """Advice for a solve whose Jacobian does not look singular."""
    if info.reason.startswith((GAVE_UP, UNSOLVED)):
        other = "Give another preconditioner, or linear=, a solver for such Jacobians."
        if "femops.block_diagonal" in info.reason:
            other = (
                'Give linear="gmres" and preconditioner=, a function of J that returns '
                "femops.block_triangular(J, ...) (docs/solvers.md)."
            )
        steps = "Apply the load in steps: far from the solution Jacobians may be indefinite. "
        return steps * ("not to be positive" in info.reason) + other
    stalls = info.reason == _NO_PROGRESS or info.residual > 0.5 * min(
        info.residuals[:-_STALLED], default=np.inf
    )
    if stalls and info.residual <= _SOLVED * info.residuals[0]:
        return "The residual no longer decreases, as at round-off: give a larger rtol or atol."
    return "Apply the load in steps, or begin with a better u0."


def _search(
    F: Residual,
    u: NDArray[Any],
    step: NDArray[Any],
    load: NDArray[Any],
    residual: NDArray[Any],
    sums: Sums,
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return u and its residual after the first of the steps 1, 1/2, 1/4, ... that makes progress.

    Return None if no step does. Progress means that the residual decreases, or its component along
    the step. If the form is the derivative of an energy, this component is the slope of the energy
    (Bonet and Wood, section 9.6). Large rotations need steps that reduce the slope while the norm
    of the residual grows.
    """
    norm, slope = sums.norm(residual), abs(sums.dot(step, residual))
    length = 1.0
    while length >= _SHORTEST:
        trial = u + u.dtype.type(length) * step
        try:
            found = F.residual(trial) - load
        except LawError:  # the step is too long for a law
            length *= 0.5
            continue
        # NaN fails both comparisons
        smaller = sums.norm(found) <= (1.0 - _DECREASE * length) * norm
        if smaller or abs(sums.dot(step, found)) <= _FLATTER * slope:
            return trial, found
        length *= 0.5
    return None
