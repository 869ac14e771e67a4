"""Conjugate gradients, compiled as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError, VectorError
from femops.operators import BlockOperator, Operator
from femops.operators.execution.choice import backend_of
from femops.solvers import preconditioned_cg
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import (
    Info,
    LinearProblem,
    check_operators,
    checked_guess,
    checked_right,
    enlarged,
    excess_of,
    norm_of,
)
from femops.solvers.multigrid import Multigrid
from femops.solvers.watch import Callback, Progress, Watch
from femops_kernels.cg import BREAKDOWN, CONVERGED, LEAST_NORM, Solve, SolveGroup
from femops_kernels.exclusive import Exclusive, together
from femops_kernels.instruction import Instruction
from femops_meshes.arguments import Count, Fraction, NotNegative, checked, shown

_ADVICE = (
    "are boundary conditions missing, or is a coefficient negative? "
    "femops.minres takes indefinite operators"
)
# Times the machine's precision and |b|: a residual that is no use to reduce further.
_ROUND_OFF = 1e4
_System = tuple[NDArray[Any], NDArray[Any] | None, int]
"""Right-hand side, first guess, and the power of two that both are divided by."""
_FIRST_BURST, _BURST = 16, 64  # iterations
_BURST_SECONDS = 0.1


@checked(SolverError)
def cg(
    A: Operator | BlockOperator,
    b: NDArray[Any],
    x0: NDArray[Any] | None = None,
    *,
    rtol: Fraction = 1e-5,
    atol: NotNegative = 0.0,
    maxiter: Count | None = None,
    M: Jacobi | Multigrid | None = None,
    callback: Callback | None = None,
    merged: bool | None = None,
    history: bool = False,
    progress: Progress | None = None,
) -> tuple[NDArray[Any], Info]:
    """Solve A x = b for a symmetric positive definite operator.

    The method of Hestenes and Stiefel (1952) with SciPy's names for tolerances; operator,
    preconditioner and vector updates run in one compiled loop.  The result has the same bits for
    any number of threads of the host.

    Parameters
    ----------
    A : Operator or BlockOperator
    b : (size,) array
        Right-hand side, of the operator's type; see `Operator.rhs` for essential conditions. On a
        device, if the operator is, as are x0 and x; nothing moves but a few numbers.
    x0 : (size,) array, optional
        First guess, zero if omitted.
    rtol, atol : float
        Done when |b - A x| <= max(rtol |b|, atol), Euclidean norms. The recursion for the residual
        goes on getting smaller where round-off keeps b - A x itself from it. So a solve ends
        whatever the tolerance, at the latest where the recursion's squares would underflow (a norm
        of 1.5e-154, in float32 1.1e-19); ``info`` has the residual as it is then, and is not
        converged if that is more than ten times the tolerance. Right-hand sides of float32 may be
        of any size: those whose squares are out of its range are divided by a power of two.
    maxiter : int, optional
        Most iterations; ten times the number of unknowns if omitted.
    M : Jacobi or Multigrid, optional
        Preconditioner, from `femops.jacobi` or `femops.multigrid`.
    callback : callable, optional
        Called as ``callback(x)`` after each iteration with a view of the iterate; it must not be
        written to, and can't where arrays are the host's. A device waits for it each time.
    merged : bool, optional
        Whether vectors are updated inside the operator's sweep, so that they are read and written
        less often; iterates agree to round-off. If omitted, where that is possible: for operators
        of one sweep over all elements.
    history : bool
        Whether ``info.residuals`` has the norm of the residual after each iteration.
    progress : callable, optional
        Called as ``progress(iterations, residual)`` with the iterations done and the norm of the
        residual, at the beginning and about ten times a second, with ``history`` or ``callback``
        after each iteration. On ranks all call it.

    Returns
    -------
    x : (size,) array
        The last iterate, converged or not.
    info : Info

    Raises
    ------
    SolverError
        An operator or preconditioner that is not femops' own (use `scipy.sparse.linalg.cg`),
        tolerances that are not numbers >= 0, a right-hand side that is not finite or so small
        that its norm underflows, or an operator found not to be positive definite; updates to be
        merged into an operator of several sweeps, or with multigrid; a multigrid cycle that
        diverges.
    VectorError
        Vectors of another shape or type.
    """
    given = LinearProblem.checked("cg", A, b, x0, M, rtol, atol, maxiter, merged=merged)
    exponent = excess_of(A, given.right, given.guess)
    problem = given.scaled(exponent)
    # squares of less would underflow in the recursion
    goal = max(problem.tolerance, float(np.finfo(problem.right.dtype).tiny) ** 0.5)
    watch = Watch(history, progress, callback, exponent, A.space.memory.xp)
    if isinstance(M, Multigrid):
        if merged:
            raise SolverError("merged = True, but M is multigrid, which updates vectors itself")
        x, info = preconditioned_cg.solve(problem, M, watch, goal)
    else:
        x, info = _solved(problem, M, merged, watch, goal)
    if not exponent:
        return x, info
    allowed = max(problem.tolerance, _least_change(A.dtype, problem.norm))
    return enlarged(A, x, exponent, allowed), info.scaled(exponent)


def _solved(
    problem: LinearProblem, M: Jacobi | None, merged: bool | None, watch: Watch, goal: float
) -> tuple[NDArray[Any], Info]:
    """Solve by compiled conjugate gradients, with Jacobi's preconditioner or none."""
    A = problem.A
    right, sums = problem.right, problem.sums
    inverse = None
    if M is not None:
        inverse = A.space.memory.xp.ascontiguousarray(M.inverse, dtype=right.dtype)
    merge = _merged(A, merged, sums)
    guess = None if problem.from_zero else problem.guess
    solve = A.compiled.conjugate_gradients(right, guess, inverse, merge, sums)
    view = solve.x.view()
    A.space.memory.protect(view)
    _run(solve, goal, problem.limit, watch, view)
    return _conclude(solve, problem, tuple(watch.norms))


@final
@checked(SolverError)
class CGSolver:
    """Conjugate gradients for many right-hand sides, one after the other.

    What does not depend on the right-hand side is made once: for solves that take less time than
    `cg` needs to begin one, as those of small problems in each step in time.
    Threads of Python that use one solver wait for each other.

    Parameters
    ----------
    A : Operator or BlockOperator
        As for `cg`.
    M : Jacobi, optional
    natural : bool
        Whether residuals are measured by sqrt(r . M r), the norm in which the method works, as
        MFEM's solver does, and not by sqrt(r . r).

    Raises
    ------
    SolverError
        See `cg`.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> A = femops.mass(V)
    >>> solver = femops.CGSolver(A, M=femops.jacobi(A))
    >>> b = A @ V.interpolate(lambda x: x[0])
    >>> x, iterations = solver.solve(b, rtol=1e-12)
    >>> bool(abs(A @ x - b).max() < 1e-12)
    True
    """

    def __init__(
        self, A: Operator | BlockOperator, M: Jacobi | None = None, *, natural: bool = False
    ) -> None:
        check_operators("cg", A, M)
        self._natural = natural
        self._A, self._sums, self._inverse = A, Sums(A.space), None
        if M is not None:
            self._inverse = A.space.memory.xp.ascontiguousarray(M.inverse, dtype=A.dtype)
        self._merge = _merged(A, False if natural else None, self._sums)
        self._solve: Solve | None = None
        self._alone = Exclusive()  # while a system is solved
        self._norm, self._least = 0.0, float(np.finfo(A.dtype).tiny) ** 0.5

    def solve(
        self,
        b: NDArray[Any],
        x0: NDArray[Any] | None = None,
        *,
        rtol: Fraction = 1e-5,
        maxiter: Count | None = None,
    ) -> tuple[NDArray[Any], int]:
        """Solve A x = b.

        Parameters
        ----------
        b : (size,) array
        x0 : (size,) array, optional
            First guess, zero if omitted.
        rtol : float
            Done when the recursion's residual is at most rtol |b|.
        maxiter : int, optional
            Most iterations: what is found then is returned.

        Returns
        -------
        x : (size,) array
        iterations : int

        Raises
        ------
        SolverError
            A right-hand side that is not finite, or an operator found not to be positive definite;
            in float32, a solution out of the type's range.
        VectorError
            Vectors of another shape or type.
        """
        return CGSolver.solve_all([self], [b], [x0], rtol=rtol, maxiter=maxiter)[0]

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles begin a solve of their own."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_solve", "_sums")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _solve=None, _sums=Sums(state["_A"].space))

    @staticmethod
    @checked(SolverError)
    def solve_all(
        solvers: Sequence[CGSolver],
        rights: Sequence[NDArray[Any]],
        guesses: Sequence[NDArray[Any] | None] | None = None,
        *,
        rtol: Fraction = 1e-5,
        maxiter: Count | None = None,
    ) -> list[tuple[NDArray[Any], int]]:
        """Solve a system of each of several solvers, small ones at once, shared among threads.

        Parameters
        ----------
        solvers : sequence of CGSolver
            At least one, each once. Those that other threads use are waited for.
        rights : sequence of (size,) arrays
        guesses : sequence of (size,) arrays or None, optional
        rtol, maxiter
            See `solve`.

        Returns
        -------
        list of (x, iterations)

        Raises
        ------
        SolverError, VectorError
            See `solve`; no solver, or one twice: it holds the state of one solve.
        """
        solvers = solvers_once(solvers)
        starts = [None] * len(solvers) if guesses is None else guesses
        if not len(solvers) == len(rights) == len(starts):
            raise SolverError("solvers, rights and guesses are not equally many: give one of each")

        def solved() -> list[tuple[NDArray[Any], int]]:
            given = zip(solvers, rights, starts, strict=True)
            systems = [solver._given(b, x0) for solver, b, x0 in given]
            _advance_all(solvers, systems, rtol, _limit(solvers, maxiter))
            ends = zip(solvers, systems, strict=True)
            return [solver._end(exponent, rtol) for solver, (*_, exponent) in ends]

        return together([solver._alone for solver in solvers], solved)

    def _given(self, b: Any, x0: Any) -> _System:
        """Right-hand side and first guess, divided by two to the power that is the third."""
        A = self._A
        right = checked_right(A, b, "b")
        guess = checked_guess(A, x0, self._sums)
        exponent = excess_of(A, right, *(() if guess is None else (guess,)))
        if not exponent:
            return right, guess, 0
        ldexp = A.space.memory.xp.ldexp
        return ldexp(right, -exponent), None if guess is None else ldexp(guess, -exponent), exponent

    @property
    def _begun(self) -> Solve:
        assert self._solve is not None
        return self._solve

    def _begin(self, right: NDArray[Any], guess: NDArray[Any] | None, rtol: float) -> float:
        """Begin a solve, and return its tolerance."""
        A = self._A
        norm = norm_of(A, right, self._sums)
        if self._natural and self._inverse is not None:
            norm = math.sqrt(self._sums.dot(right, self._inverse * right))
        if self._solve is None:
            given = right, guess, self._inverse, self._merge, self._sums
            self._solve = A.compiled.conjugate_gradients(*given, self._natural)
        else:
            self._solve.restart(right, guess)
        self._norm = norm
        return float(max(rtol * norm, self._least))

    def _check_norm(self, right: NDArray[Any]) -> None:
        """Refuse a right-hand side after a solve whose start has found its norm."""
        self._norm, norm = self._begun.norms
        if not LEAST_NORM <= norm < np.inf:
            norm_of(self._A, right, self._sums)

    def _end(self, exponent: int, rtol: float) -> tuple[NDArray[Any], int]:
        """Solution, times two to that power, and iterations of a solve that has come to its end."""
        self._check_end()
        solve = self._begun
        x = backend_of(self._A.space).placed(solve.x.copy())
        if exponent:
            norm = self._sums.norm(self._begun.right)
            allowed = max(rtol * norm, _least_change(self._A.dtype, norm))
            x = enlarged(self._A, x, exponent, allowed)
        return x, solve.iterations

    def _check_end(self) -> None:
        """Refuse an operator that a solve has found not to be positive definite."""
        least = _least_change(self._A.dtype, self._norm)
        if self._begun.status == BREAKDOWN and not self._begun.residual <= least:
            raise SolverError(_indefinite(self._begun))


def check_right(solver: CGSolver, b: NDArray[Any], what: str) -> None:
    """Refuse what is no contiguous right-hand side of a solver."""
    A = solver._A
    if b.shape != (A.space.size,) or b.dtype != A.dtype or not b.flags.c_contiguous:
        raise VectorError(
            f"{what} is {b.dtype} {b.shape}: give {A.dtype} ({A.space.size},), contiguous"
        )


def solves_instruction(
    solvers: Sequence[CGSolver],
    rights: Sequence[NDArray[Any]],
    rtol: float,
    maxiter: int | None,
    done: NDArray[np.float64],
) -> tuple[Instruction | None, list[NDArray[Any]]]:
    """Instruction that does `CGSolver.solve_all` on the host, and where the solutions are.

    None if Python is to call it, as in float32, where right-hand sides may have to be scaled.
    Solvers must have solved before. Iterations are added to ``done``.
    """
    group = _group(solvers)
    if group is None or any(solver._A.dtype == np.float32 for solver in solvers):
        return None, []
    limit = _limit(solvers, maxiter)
    least = [solver._least for solver in solvers]
    found = group.instruction(rights, rtol, least, limit, done)
    return found, [solver._begun.x for solver in solvers]


def solvers_once(solvers: Sequence[CGSolver]) -> list[CGSolver]:
    """Solvers that can solve together; an error if one is none, or is there twice."""
    found = list(solvers)
    if wrong := [one for one in found if not isinstance(one, CGSolver)]:
        raise SolverError(f"{shown(wrong[0])} is no solver: give femops.CGSolver(A)")
    if not 0 < len({id(solver) for solver in found}) == len(found):
        raise SolverError("solve_all needs at least one solver, and each only once")
    return found


def ended_solves(solvers: Sequence[CGSolver], rights: Sequence[NDArray[Any]]) -> None:
    """Raise what is wrong with solves that such an instruction has done."""
    for solver, b in zip(solvers, rights, strict=True):
        solver._check_norm(b)
        solver._check_end()


def _advance_all(
    solvers: Sequence[CGSolver], systems: Sequence[_System], rtol: float, limit: int
) -> None:
    """Bring a solve of each solver to its end."""
    group = _group(solvers)
    if group is not None and all(guess is None for _, guess, _ in systems):
        rights = [right for right, _, _ in systems]
        group.restart(rights, rtol, [solver._least for solver in solvers])
        group.advance(limit)
        for solver, right in zip(solvers, rights, strict=True):
            solver._check_norm(right)
        return
    given = zip(solvers, systems, strict=True)
    goals = [solver._begin(right, guess, rtol) for solver, (right, guess, _) in given]
    if group is not None:
        group.advance(limit, goals)
        return
    for solver, goal in zip(solvers, goals, strict=True):
        _to_the_end(solver._begun, goal, limit)


def _limit(solvers: Sequence[CGSolver], maxiter: int | None) -> int:
    """Most iterations."""
    size = max(solver._A.space.global_size for solver in solvers)
    return 10 * size if maxiter is None else int(maxiter)


def _group(solvers: Sequence[CGSolver]) -> SolveGroup | None:
    """Begun solves of all, if they can be done at once."""
    first, *others = [solver._solve for solver in solvers]
    if first is None or not all(others):
        return None
    return first.group([one for one in others if one is not None])


def _to_the_end(solve: Solve, goal: float, limit: int) -> None:
    """Advance in bursts, between which Python can act on an interrupt."""
    burst = solve.every or _BURST
    solve.advance(goal, limit, burst, show=False)
    while solve.status == 0 and solve.iterations < limit:
        solve.advance(goal, limit, burst, show=False)


def _least_change(dtype: np.dtype[Any], norm: float) -> float:
    """Round-off of the products whose result has this norm."""
    return float(_ROUND_OFF * np.finfo(dtype).eps * norm)


def _indefinite(solve: Solve) -> str:
    if not math.isfinite(solve.residual):
        return (
            "squares of the residual overflow: give a first guess nearer to the solution or none, "
            "or make A in float64, or scale it"
        )
    return (
        f"after {solve.iterations} iterations the operator (or preconditioner) is found not to "
        f"be positive definite: {_ADVICE}"
    )


def _merged(A: Operator | BlockOperator, wanted: bool | None, sums: Sums) -> bool:
    possible = sums.all(A.compiled.mergeable(A.space.size, many=sums.many))
    if wanted and not possible:
        raise SolverError(
            f"merged = True, but {A!r} is not one sweep over all elements, or its mesh is "
            "reproducible, or ranks have a GPU each: leave merged out"
        )
    return possible if wanted is None else wanted


def _conclude(
    solve: Solve, problem: LinearProblem, residuals: tuple[float, ...]
) -> tuple[NDArray[Any], Info]:
    """Solution and report, by the residual as it is and not as the recursion has it."""
    A, right, norm, tolerance = problem.A, problem.right, problem.norm, problem.tolerance
    reducible = not solve.residual <= _least_change(right.dtype, norm)
    if not np.isfinite(solve.residual) or (solve.status == BREAKDOWN and reducible):
        raise SolverError(_indefinite(solve))
    x = backend_of(A.space).placed(solve.x.copy())
    residual = problem.sums.norm(right - A.apply(x))
    if solve.status == CONVERGED and not residual <= max(norm, tolerance):
        # a guess that is far off leaves its round-off
        start = problem.sums.norm(right - A.apply(problem.guess))
        if not residual <= _least_change(right.dtype, start):
            raise SolverError(
                "the recursion has converged, but |b - A x| is larger than |b|: the operator is "
                f"singular; {_ADVICE}"
            )
    converged = solve.status == CONVERGED and residual <= 10.0 * tolerance
    return x, Info(converged, solve.iterations, residual, tolerance, solve.merged, residuals)


def _run(solve: Solve, tolerance: float, limit: int, watch: Watch, view: NDArray[Any]) -> None:
    """Iterate to the end, in bursts of compiled iterations.

    Between bursts Python can act on an interrupt from the keyboard, which compiled code can't.
    """
    burst = 1 if watch.each else solve.every or _FIRST_BURST
    show = watch.callback is not None
    solve.advance(tolerance, limit, 0)
    watch.tell(0, solve.residual, lambda: view)
    while solve.status == 0 and solve.iterations < limit:
        begin = perf_counter()
        solve.advance(tolerance, limit, burst, show=show)
        if not watch.each and solve.every is None:
            pace = _BURST_SECONDS / max(perf_counter() - begin, 1e-9)
            burst = max(1, int(burst * min(pace, 4.0)))
        if solve.status != BREAKDOWN:
            watch.tell(solve.iterations, solve.residual, lambda: view)
