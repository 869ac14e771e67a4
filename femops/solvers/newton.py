"""Newton's method for residuals, with matrix-free Jacobians."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import Errors, SolverError
from femops.operators import Operator
from femops.operators.levels.dispatch import check_level
from femops.operators.residual import Residual
from femops.parallel.comm import Communicator
from femops.solvers.convergence import warn_of_fields, warn_of_setup, warn_unconverged
from femops.solvers.inner_products import Sums
from femops.solvers.linear_problem import Info
from femops.solvers.newton_bounds import ActiveSet, Bound
from femops.solvers.newton_equation import NO_PROGRESS, Equation, Globalization, LineSearch
from femops.solvers.newton_steps import GAVE_UP, UNSOLVED, Linear, NewtonSteps, Preconditioning
from femops.solvers.newton_trust import TrustRegion
from femops.solvers.singular import entry_round_off, singular_cause
from femops.solvers.watch import Callback, Progress, Watch, read_only
from femops_common import html
from femops_common.arguments import Count, Fraction, NotNegative, checked
from femops_kernels.compiled import LEAST_NORM

# Eisenstat & Walker (1996), choice 2: how far a step's linear system is solved.
_FORCING, _GAMMA = 0.1, 0.9
_MOST, _MOST_BOUNDED = 30, 200  # steps by default
_SMALL = 1e-12  # a residual that may be rounding, where coefficients are of size 1
_ROUNDING = 4.0  # allowed over the residual that rounding u causes; measured: 1.0 for p to 7
_ROUNDED = "converged to round-off"
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
    active : (k,) integers or None
        With bounds: positions of the dofs that a bound holds, ascending.
    reactions : (size,) array or None
        With bounds: R(u) - b at the active dofs, zero elsewhere. Entries are positive at lower
        bounds and negative at upper ones.
    """

    converged: bool
    reason: str
    iterations: int
    linear_iterations: int
    residuals: tuple[float, ...]
    tolerance: float
    linear_residuals: tuple[tuple[float, ...], ...] = ()
    fields: dict[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    active: NDArray[np.int64] | None = field(default=None, hash=False, compare=False, repr=False)
    reactions: NDArray[Any] | None = field(default=None, hash=False, compare=False, repr=False)

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
        if self.active is not None:
            rows.append(("dofs at bounds", f"{len(self.active):,}"))
        return html.table("NewtonInfo", rows)


@checked(SolverError)
def newton(
    F: Residual | Operator,
    u0: NDArray[Any],
    b: NDArray[Any] | None = None,
    *,
    lower: Bound = None,
    upper: Bound = None,
    rtol: Fraction = 1e-8,
    atol: NotNegative = 0.0,
    maxiter: Count | None = None,
    linear: Linear = "auto",
    level: str = "partial",
    preconditioner: Preconditioning = "jacobi",
    globalization: Literal["line search", "trust region"] = "line search",
    callback: Callback | None = None,
    history: bool = False,
    progress: Progress | None = None,
    warn: bool = True,
) -> tuple[NDArray[Any], NewtonInfo]:
    """Solve R(u; v) = b(v) for all v, or such an inequality, by an inexact Newton method.

    Parameters
    ----------
    F : Residual or Operator
        The residual R, with its constrained dofs (`Residual.constrained`), or an operator.
    u0 : (size,) array
        First guess. Entries at constrained dofs do not change. Of an operator b has these.
    b : (size,) array, optional
        Load vector, zero if omitted. Of an operator A the right-hand side, ``A.rhs(load, values)``.
    lower, upper : float, (size,) array, or dict, optional
        Bounds of the unknowns: at the dofs, lower <= u <= upper. R(u) - b is zero where u is
        between them, at least zero at a lower bound, and at most zero at an upper one. For an
        energy that is its minimum within the bounds. Entries may be infinite. On a product of
        spaces a dict has bounds of some fields by name. In each step the dofs that a bound holds
        are constrained, and the others solve what is left, so that each preconditioner serves: the
        primal-dual active set method (Hintermueller, Ito and Kunisch, 2003). The first guess may be
        beyond the bounds: the first step leads into them.
    rtol, atol : float
        Done when |R(u) - b| <= max(rtol |R(u0) - b|, atol), over the free dofs. Also done when
        |R(u) - b| <= 4 eps |D u|, the effect of rounding u, where D is the Jacobian's diagonal, and
        no entry of R(u) - b is above the round-off of its own terms. D is computed only if the
        residual is below 1e-12, or a step does not halve it.
    maxiter : int, optional
        Maximum number of steps: by default 30, with bounds 200. The dofs at bounds change by about
        a row in a step, so steps grow with refinement.
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
        number of linear iterations has doubled, or with bounds until other dofs are active. A
        preconditioner object serves all Jacobians.
    globalization : {"line search", "trust region"}
        What is done far from the solution. The line search halves steps until the residual
        decreases, or the slope of the energy along the step, or where the Jacobian is not symmetric
        the next step with the same Jacobian. With bounds the energy decreases, or where
        the Jacobian is not symmetric the residual. A trust region bounds each step by where the
        last one was predicted well. With conjugate gradients (see ``linear``) steps minimise the
        energy (Steihaug, 1983), and Jacobians may be indefinite. Else they reduce |R(u) - b| by
        Powell's dogleg (1970). It takes no bounds.
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
        sense, or a function that returns no preconditioner or no solution. Bounds that cross, are
        not numbers, or exclude values at constrained dofs.
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

    A bound from above:

    >>> below, info = femops.newton(F, V.zeros(), b, upper=0.05)
    >>> float(below.max()), bool(info.reactions.max() <= 0.0), len(info.active) > 0
    (0.05, True, True)
    """
    check_level(level)
    sums, bounded = Sums(F.space), lower is not None or upper is not None
    limit = (_MOST_BOUNDED if bounded else _MOST) if maxiter is None else maxiter
    if bounded and globalization != "line search":
        raise SolverError(
            "a trust region takes no bounds: leave globalization out, whose line search does"
        )
    steps = NewtonSteps(linear, preconditioner, history=history)
    equation = Equation(F, u0, b)
    way: Globalization = (
        ActiveSet(equation, steps, sums, lower, upper)
        if bounded
        else _WAYS[globalization](equation, steps, sums)
    )
    norms, first = [_first_norm(F, way.residual, atol, sums)], way.residual
    asked, forcing = max(rtol * norms[0], atol), _FORCING
    reason, watch = "converged", Watch(False, progress, callback, F.space.comm)
    watch.tell(0, norms[0], partial(read_only, F.space, way.u))
    while norms[-1] > (goal := _with_rounding(way, norms, asked)):
        if len(norms) > limit:
            reason = f"not converged in {limit} steps"
            break
        J = equation.jacobian(way.u).at_level(level)
        if warn and len(norms) == 1:
            warn_of_setup(J)
        failure = way.advance(J, forcing)
        level = J.level  # "auto" is chosen once
        if failure:
            reason = failure
            break
        norms.append(sums.norm(way.residual))
        forcing = _next_forcing(forcing, norms, goal)
        watch.tell(len(norms) - 1, norms[-1], partial(read_only, F.space, way.u))
    goal, u = _with_rounding(way, norms, asked, ended=True), way.u
    fields = sums.of_fields(way.residual, first)
    info = _report(norms, asked, goal, reason, steps.infos, fields, history=history)
    if isinstance(way, ActiveSet):
        active, reactions = way.report()
        info = replace(info, active=active, reactions=reactions)
    if warn and info.converged:
        warn_of_fields("femops.newton", lambda: way.reduced(equation.jacobian(u)), u, fields, rtol)
    elif warn:
        _warn(info, _cause(way, goal), F.space.comm)
    return u, info


_WAYS: dict[str, type[LineSearch | TrustRegion]] = {
    "line search": LineSearch,
    "trust region": TrustRegion,
}


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


def _first_norm(F: Residual | Operator, residual: NDArray[Any], atol: float, sums: Sums) -> float:
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


def rounding_of(F: Residual | Equation, u: NDArray[Any]) -> float:
    """Norm that the residual may have by rounding of u alone, whatever the size of u. Collective.

    At a solution the residual does not get smaller. The norm is zero if it is not finite.
    """
    terms = F.jacobian(u).diagonal() * u
    terms[F.space.memory.put(F.constrained_dofs)] = 0.0
    norm = Sums(F.space).norm(terms)
    return _ROUNDING * float(np.finfo(F.dtype).eps) * norm if np.isfinite(norm) else 0.0


def _with_rounding(
    way: Globalization, norms: Sequence[float], asked: float, *, ended: bool = False
) -> float:
    """Return the tolerance, or the norm that rounding of u leaves if larger. Collective.

    That costs the diagonal of a Jacobian. So it is computed only where the norm is small or hardly
    falls, and at the end. An earlier u does not count: it may be far larger than the solution.
    """
    slow = len(norms) > 1 and norms[-1] > 0.5 * norms[-2]
    if norms[-1] <= asked or not (norms[-1] <= _SMALL or slow or ended):
        return asked
    try:
        goal = max(asked, rounding_of(way.equation, way.u))
        if asked < norms[-1] <= goal and _beyond_rounding(way) > asked:
            return asked
        return goal
    except Errors:  # the iteration has a better message
        return asked


def _beyond_rounding(way: Globalization) -> float:
    """Norm of the entries of a residual that rounding of u does not explain. Collective.

    A stiff part may leave round-off that hides the residual of a soft part in the norm of all.
    """
    equation, u = way.equation, way.u
    eps, xp = float(np.finfo(equation.dtype).eps), equation.space.memory.xp
    bounds = entry_round_off(equation.jacobian(u).unconstrained, u)
    bounds = bounds + _ROUNDING * eps * abs(equation.load)
    return way.sums.norm(xp.where(abs(way.residual) > bounds, way.residual, 0.0))


def _cause(way: Globalization, goal: float) -> str:
    """Likely cause of a failed solve. Empty if none is recognized, or J fails. Collective."""
    J: Operator | None = None
    comm = way.equation.space.comm
    with suppress(*Errors):  # the result is worth more than the cause
        J = way.reduced(way.equation.jacobian(way.u))
    if comm.max(int(J is None)) or J is None:
        return ""
    found = singular_cause(J, way.residual, goal, "F")
    if found and isinstance(way, ActiveSet):
        found += " Or begin with a u0 at the bounds that hold the body."
    return found


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
    stalls = info.reason == NO_PROGRESS or info.residual > 0.5 * min(
        info.residuals[:-_STALLED], default=np.inf
    )
    if stalls and info.residual <= _SOLVED * info.residuals[0]:
        return "The residual no longer decreases, as at round-off: give a larger rtol or atol."
    if info.active is not None and info.reason.startswith("not converged in"):
        return "Begin with the solution on a coarser mesh, or give a larger maxiter."
    return "Apply the load in steps, or begin with a better u0."
