"""The adaptive loop: solve, estimate, mark, refine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.adapt.enriched import AnySpace, check_host, mesh_of, parts_of, vector_of
from femops.adapt.goals import goal as goal_estimate
from femops.adapt.marking import among_all, checked_estimates, least
from femops.adapt.marking import mark as marked_by
from femops.adapt.recovery import recovered
from femops.adapt.residuals import residual
from femops.adapt.solving import Preconditioning, preconditioning, solved
from femops.adapt.transfer import Pairs, transfer
from femops.errors import OperatorError, SolverError, SpaceError
from femops.operators import Functional, Operator, Residual
from femops.parallel.comm import check, check_same
from femops.parallel.mesh import DistributedMesh, ranks_of
from femops.solvers.inner_products import Sums
from femops.solvers.newton import newton
from femops.solvers.newton_steps import Linear
from femops.spaces.base import AnyMesh
from femops_common.arguments import Count, Fraction, NotNegative, checked, shown
from femops_meshes.checks import array
from femops_meshes.errors import MeshArgumentError
from femops_meshes.mesh import Mesh
from femops_meshes.names import chosen_elements

Flags = NDArray[np.bool_]


@checked(MeshArgumentError)
def change(mesh: AnyMesh, refine: ArrayLike = (), coarsen: ArrayLike = ()) -> Any:
    """Refine some elements of a mesh, and coarsen others.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
        The call is collective if ranks share the mesh. Then elements are those of this rank.
    refine : (k,) integers or (ne,) booleans
        Elements to halve, as for `Mesh.refined`.
    coarsen : (k,) integers or (ne,) booleans
        Elements that may give way to their parents, as for `Mesh.coarsened`. Elements to halve, and
        those that were never halved, stay.

    Returns
    -------
    Mesh or DistributedMesh
        On the trees of the mesh, so that `transfer` takes fields to it.

    Raises
    ------
    MeshArgumentError
        If there are no such elements.

    Examples
    --------
    >>> import femops
    >>> mesh = femops.box((2, 2)).refined([0])
    >>> femops.adapt.change(mesh, refine=[6], coarsen=range(4)).forest.level.tolist()
    [0, 0, 0, 1, 1, 1, 1]
    """
    with check(ranks_of(mesh)):
        refine, coarsen = array(refine, "refine"), array(coarsen, "coarsen")
    if isinstance(mesh, DistributedMesh):
        return mesh.changed(_changed, mesh.chosen(refine, None), mesh.chosen(coarsen, None))
    return _changed(mesh, chosen_elements(mesh, refine, None), chosen_elements(mesh, coarsen, None))


def _changed(mesh: Mesh, more: Flags, less: Flags) -> Mesh:
    """Mesh in which elements are halved, and others give way to their parents; see `change`."""
    less = less & ~more
    if less.any() and mesh.trees.depth:
        coarse = mesh.coarsened(less)
        if coarse is not mesh:
            pairs = Pairs.of(mesh.trees, coarse.trees)
            stays = (pairs.levels == 0) & more[pairs.around]
            more = np.zeros(coarse.num_elements, dtype=np.bool_)
            more[pairs.inside[stays]] = True
            mesh = coarse
    return mesh.refine() if more.all() else mesh.refined(np.flatnonzero(more))


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vector = NDArray[np.float64]
Estimator = Literal["recovered", "residual"] | Callable[[Any, Vector], Any]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Result of one cycle of `loop`.

    Attributes
    ----------
    eta : (ne,) float64
        Estimate in each element.
    total : float
        Root of the sum of squares: the estimate of the error.
    error : float or None
        With a goal, the estimate with its sign: the exact value less that of u.
    effectivity : float or None
        The estimate divided by the error, if `loop` was given ``exact``.
    marked : (k,) int64
        Elements that are halved for the next cycle. Empty in the last one.
    space : Space or Product
        Space of the solution.
    cycle : int
        Number of the cycle, from 0.
    iterations : int or None
        Iterations of the linear solver; None if a user's function solves.
    """

    eta: Floats
    total: float
    error: float | None
    effectivity: float | None
    marked: Ints
    space: AnySpace
    cycle: int
    iterations: int | None

    def __repr__(self) -> str:
        facts = [f"{self.space.size:,} dofs", f"{len(self.eta):,} elements"]
        if self.iterations is not None:
            facts.append(f"{self.iterations} iterations")
        facts.append(f"estimate {self.total:.3g}")
        if self.effectivity is not None:
            facts.append(f"effectivity {self.effectivity:.2f}")
        facts.append(f"{len(self.marked):,} elements marked")
        return f"Estimate(cycle {self.cycle}: {', '.join(facts)})"


@checked(OperatorError)
def loop(
    problem: Callable[[Any], Any],
    mesh: AnyMesh,
    tol: NotNegative = 0.0,
    *,
    estimate: Estimator = "recovered",
    goal: Callable[[Any], Any] | None = None,
    mark: Fraction | Callable[[Floats], Any] = 0.5,
    coarsen: Fraction | None = None,
    max_dofs: Count | None = None,
    max_cycles: Count | None = None,
    exact: float | Callable[[Any, Vector], float] | None = None,
    linear: Linear = "auto",
    preconditioner: Preconditioning = "auto",
    rtol: Fraction = 1e-10,
) -> Iterator[tuple[Any, Vector, Estimate]]:
    """Solve a problem, estimate the error, refine the mesh where it is, and begin again.

    Each cycle begins with the solution of the previous one. The loop ends when the estimate is
    small enough, at a limit, or when no element is marked that can be halved.

    Parameters
    ----------
    problem : callable
        ``problem(mesh)`` discretises the problem on a mesh, and returns one of

        - ``(A, b)``: a constrained operator and its right-hand side, ``A.rhs(load, values)``;
        - ``(A, load)`` or ``(A, load, values)``: the operator and functions of a space that return
          the load, and the prescribed values, as ``lambda V: femops.load(V, f)`` and
          ``lambda V: V.interpolate(g)``;
        - ``(F, u0)``: a constrained residual, which contains its load, and a first guess with the
          prescribed values, or a function of a space that returns it.

        Residual estimates and goals need functions, because they work in a space of a higher order.
    mesh : Mesh or DistributedMesh
        The first mesh. If ranks share it, the loop is collective, and estimates and numbers of
        elements are this rank's.
    tol : float
        The loop ends when the estimate is at most ``tol``.
    estimate : {"recovered", "residual"} or callable
        See `recovered` and `residual`. A function is called as ``estimate(equation, u)``, with what
        the problem returned, and returns (ne,) numbers.
    goal : callable, optional
        ``goal(V)`` returns what matters: a `femops.functional` on the space V, or a vector of V
        whose product with u it is. The estimate is that of `femops.adapt.goal`.
    mark : float or callable
        Fraction of the sum of squares for Doerfler's bulk criterion, see `femops.adapt.mark`; or a
        function of the estimates (ne,) that returns numbers of elements.
    coarsen : float, optional
        Elements with the least estimates, whose squares have at most this part of the sum, may give
        way to their parents.
    max_dofs : int, optional
        The loop ends with the first solution of at least so many dofs.
    max_cycles : int, optional
        Most cycles.
    exact : callable or float, optional
        ``exact(V, u)`` returns the true error. With a goal, its exact value.
    linear, preconditioner : optional
        See `femops.newton`. "auto" is multigrid for a symmetric operator that has it, else Jacobi.
    rtol : float
        Relative residual of the algebraic equations, with regard to the right-hand side, or to the
        problem's first guess.

    Yields
    ------
    mesh : Mesh
    u : (size,) array
        Solution, a vector of ``estimate.space``.
    estimate : Estimate

    Raises
    ------
    OperatorError
        If the problem returns something else, or the estimate needs functions of the space.
    SolverError
        If a problem is not solved.

    Examples
    --------
    >>> import femops
    >>> def problem(mesh):
    ...     V = femops.H1(mesh, order=2)
    ...     A = femops.diffusion(V).constrained(V.boundary_dofs())
    ...     return A, A.rhs(femops.load(V, 1.0))
    >>> for mesh, u, estimate in femops.adapt.loop(problem, femops.l_shape(), tol=0.02):
    ...     pass
    >>> bool(estimate.total <= 0.02), mesh.forest is not None
    (True, True)
    """
    if isinstance(estimate, str) and estimate not in ("recovered", "residual"):
        raise OperatorError(f'estimate is {estimate!r}: take "recovered", "residual" or a function')
    options = linear, preconditioner, rtol
    ends = tol, max_dofs, max_cycles
    return _cycles(problem, mesh, (estimate, goal, exact), (mark, coarsen), ends, options)


def _cycles(
    problem: Callable[[Any], Any],
    mesh: AnyMesh,
    wanted: tuple[Estimator, Callable[[Any], Any] | None, Any],
    marking: tuple[Any, float | None],
    ends: tuple[float, int | None, int | None],
    options: tuple[Linear, Preconditioning, float],
) -> Iterator[tuple[Any, Vector, Estimate]]:
    estimator, goal, exact = wanted
    mark, coarsen = marking
    tol, max_dofs, max_cycles = ends
    facts = {"tol": tol, "max_dofs": max_dofs, "max_cycles": max_cycles, "coarsen": coarsen}
    check_same(ranks_of(mesh), "when the loop ends", facts, error=OperatorError)
    last: tuple[AnySpace, Vector] | None = None
    cycle = 0
    while max_cycles is None or cycle < max_cycles:
        equation = _checked(problem(mesh), mesh)
        V = equation[0].space
        sums = Sums(V)
        u, iterations = _solved(equation, last, options)
        error, reference = None, exact
        if goal is not None:
            J = goal(V)
            is_functional = isinstance(J, Functional)
            eta, error = goal_estimate(
                _by_functions(equation),
                u,
                J if is_functional else goal,
                linear=options[0],
                preconditioner=options[1],
            )
            value = J(u) if is_functional else sums.dot(V.check_vector(J, "goal(V)"), u)
            reference = None if exact is None else abs(exact - value)
        elif callable(estimator):
            eta = _estimates(estimator(equation, u), mesh)
        elif estimator == "residual":
            eta = residual(_by_functions(equation), u)
        else:
            eta = recovered(equation[0], u)
        total = math.sqrt(V.comm.sum(float(eta @ eta)))
        true = float(reference(V, u)) if callable(reference) else reference
        done = total <= tol or (max_dofs is not None and V.global_size >= max_dofs)
        done |= max_cycles is not None and cycle + 1 >= max_cycles
        marked = np.zeros(0, dtype=np.int64)
        if not done:
            found = mark(eta) if callable(mark) else marked_by(eta, fraction=mark, mesh=mesh)
            marked = _divisible(mesh, found)
        effectivity = total / true if true else None
        yield mesh, u, Estimate(eta, total, error, effectivity, marked, V, cycle, iterations)
        if done or not V.comm.max(len(marked)):
            return
        less = () if coarsen is None else among_all(mesh, eta, partial(least, fraction=coarsen))
        mesh = change(mesh, marked, less)
        last, cycle = (V, u), cycle + 1


def _estimates(found: Any, mesh: AnyMesh) -> Floats:
    """Estimates (ne,) that a user's function has returned."""
    own = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    with check(ranks_of(mesh)):
        eta = checked_estimates(found, 0)
        if len(eta) != own.num_elements:
            raise OperatorError(
                f"the function estimate returned {len(eta)} numbers: return one for each of "
                f"{own.num_elements} elements"
            )
    return eta


def _divisible(mesh: AnyMesh, marked: Any) -> Ints:
    """Marked elements without those of the highest level that a tree can have."""
    with check(ranks_of(mesh)):
        marked = array(marked, "mark(eta)")
    if isinstance(mesh, DistributedMesh):
        numbers, own = np.flatnonzero(mesh.chosen(marked, None)), mesh.part.elements
    else:
        numbers = np.flatnonzero(chosen_elements(mesh, marked, None))
        own = np.arange(mesh.num_elements)
    return numbers[mesh.trees.level[own[numbers]] < 62 // mesh.dim]


def _checked(found: Any, mesh: AnyMesh) -> tuple[Any, ...]:
    """Check the result of a user's problem."""
    equation = found if isinstance(found, tuple) else (found,)
    form = equation[0] if equation else None
    most = 3 if isinstance(form, Operator) else 2
    if not isinstance(form, Operator | Residual) or not 2 <= len(equation) <= most:
        raise OperatorError(
            f"problem(mesh) returned {shown(found)}: return (A, b), (A, load), (A, load, values) "
            "or (F, u0)"
        )
    check_host(form.space)
    own = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    if mesh_of(form.space).num_elements != own.num_elements:
        raise OperatorError(
            f"problem(mesh) returned a form on {mesh_of(form.space).num_elements} elements, but "
            f"the mesh has {own.num_elements}: make its space on the mesh that it is given"
        )
    return equation


def _by_functions(equation: tuple[Any, ...]) -> tuple[Any, ...]:
    """The equation as estimators in larger spaces take it."""
    if isinstance(equation[0], Residual):
        return tuple(one for one in equation if one is equation[0] or callable(one))
    return equation


def _solved(
    equation: tuple[Any, ...],
    last: tuple[AnySpace, Vector] | None,
    options: tuple[Linear, Preconditioning, float],
) -> tuple[Vector, int | None]:
    """Solution, from the one on the previous mesh, and the number of linear iterations."""
    form, given, *more = equation
    V, (linear, preconditioner, rtol) = form.space, options
    held = form.constrained_dofs
    if isinstance(form, Operator):
        b = given
        if callable(given):
            values = vector_of(more[0], V, "the prescribed values") if more else 0.0
            b = form.rhs(vector_of(given, V, "the load"), values)
        x = _first(last, V, V.zeros())
        x[held] = b[held]
        r = b - form @ x
        r[held] = 0.0
        free = b.copy()
        free[held] = 0.0
        sums = Sums(V)
        wanted, there = rtol * sums.norm(free), sums.norm(r)
        if there <= wanted:
            return x, 0
        step, info = solved(form, r, linear, preconditioner, min(wanted / there, 1.0))
        return x + step, None if info is None else info.iterations
    guess = vector_of(given, V, "the first guess") if callable(given) else V.check_vector(given)
    u0 = _first(last, V, guess)
    u0[held] = guess[held]
    atol = rtol * Sums(V).norm(form.residual(np.ascontiguousarray(guess)))
    how: Any = "jacobi" if callable(linear) else preconditioning(preconditioner)
    u, report = newton(form, u0, rtol=0.0, atol=atol, linear=linear, preconditioner=how, warn=False)
    if not report.converged:
        raise SolverError(
            f"Newton's method did not converge on a mesh of the loop: {report.reason}; give a "
            "better first guess, linear= or preconditioner="
        )
    return u, report.linear_iterations


def _first(last: tuple[AnySpace, Vector] | None, V: AnySpace, guess: Vector) -> Vector:
    """First guess: the solution on the previous mesh if the meshes are of one tree."""
    if last is not None and [*parts_of(V)] == [*parts_of(last[0])]:
        try:
            return transfer(last[1], last[0], V, how="nodal")
        except SpaceError:  # the problem makes meshes of its own
            pass
    return guess.copy()
