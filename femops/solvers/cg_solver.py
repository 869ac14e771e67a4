"""Conjugate gradients for many right-hand sides, with one setup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator, from_pairs
from femops.operators.execution.choice import backend_of
from femops.parallel.collective_checks import check
from femops.solvers import preconditioned_cg
from femops.solvers.any_preconditioner import AnyPreconditioner
from femops.solvers.cg import indefinite, least_change, merges
from femops.solvers.columns import Found, columns_of, joined, many
from femops.solvers.complex_systems import pairs_of, real_pair
from femops.solvers.convergence import advice_on, warn_of_fields, warn_of_setup, warn_unconverged
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import (
    MOST_GROWTH,
    Held,
    Info,
    LinearProblem,
    check_eliminated,
    checked_guess,
    checked_preconditioner,
    checked_right,
    enlarged,
    excess_of,
    norm_of,
    without_held,
)
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.singular import singular_cause
from femops.solvers.watch import Watch
from femops.spaces.product import Product
from femops_common.arguments import Count, Fraction, checked, names_checked, shown
from femops_kernels.cg import BREAKDOWN, CONVERGED, LEAST_NORM, Solve, SolveGroup
from femops_kernels.exclusive import Exclusive, together
from femops_kernels.instruction import Instruction

_System = tuple[NDArray[Any], NDArray[Any] | None, int, Held]
"""Right-hand side, first guess, the exponent of the power of two that divides both, and the given
values that both are without."""
_BURST = 64  # iterations
_TRANSIENT = frozenset({"_solve", "_solved", "_sums"})
"""Attributes of a solver that copies do not have."""


@final
@checked(SolverError)
class CGSolver:
    """Conjugate gradients for many right-hand sides, one after the other.

    The setup is done once. This helps if a solve takes less time than the setup of `cg`, for
    example a small problem in each time step. Python threads that share a solver wait for each
    other.

    Parameters
    ----------
    A : Operator or ComplexOperator
        As for `cg`.
    M : Preconditioner, LinearOperator or matrix, optional
        As for `cg`. The solve is compiled once, and several systems can be solved at once, only
        with `femops.jacobi` or without a preconditioner.
    natural : bool
        Whether to measure residuals by sqrt(r . M r), as MFEM's solver does, and not by sqrt(r .
        r).

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
    >>> x, info = solver.solve(b, rtol=1e-12)
    >>> info.converged, bool(abs(A @ x - b).max() < 1e-12)
    (True, True)
    """

    def __init__(
        self, A: Operator | ComplexOperator, M: AnyPreconditioner = None, *, natural: bool = False
    ) -> None:
        self._complex = A if isinstance(A, ComplexOperator) else None
        self._advised, (A, M) = M, real_pair("cg", A, M)
        own = checked_preconditioner("cg", A, M)
        self._natural = natural
        self._A, self._sums, self._inverse = A, Sums(A.space), None
        self._M: Preconditioner | None = None  # one that the compiled loop does not run
        if isinstance(own, Jacobi):
            self._inverse = A.space.memory.xp.ascontiguousarray(own.inverse, dtype=A.dtype)
        else:
            self._M = own
        self._solved: tuple[Info, NDArray[Any]] | None = None  # by `_M`: report, right side
        self._merge = merges(A, False if natural else None, self._sums)
        self._solve: Solve | None = None
        self._alone = Exclusive()  # while a system is solved
        self._norm, self._least = 0.0, float(np.finfo(A.dtype).tiny) ** 0.5

    @names_checked
    def solve(
        self,
        b: NDArray[Any],
        x0: NDArray[Any] | None = None,
        *,
        rtol: Fraction = 1e-5,
        maxiter: Count | None = None,
        warn: bool = True,
    ) -> tuple[NDArray[Any], Info]:
        """Solve A x = b.

        Parameters
        ----------
        b : (size,) or (size, nvec) array
            Right-hand side, or many as columns, which are solved for one after the other.
        x0 : array of the shape of b, optional
            First guess, zero if omitted.
        rtol : float
            Done when the recursion's residual is at most rtol |b|, without given values as in `cg`.
        maxiter : int, optional
            Maximum number of iterations. If it is reached, the last iterate is returned.
        warn : bool
            Whether to issue a `ConvergenceWarning` if the solve has not converged.

        Returns
        -------
        x : array of the shape of b
        info : Info
            As for `cg`, but ``info.residual`` is the residual of the recursion. Only on a product
            b - A x is computed at the end, for ``info.fields``. With ``natural``,
            ``info.residual`` and ``info.tolerance`` are in the norm sqrt(r . M r).

        Raises
        ------
        SolverError
            A right-hand side that is not finite, or an operator found not to be positive definite;
            in float32, a solution out of the type's range.
        VectorError
            Vectors of another shape or type.

        Warns
        -----
        ConvergenceWarning
            See ``warn``.
        """
        options: dict[str, Any] = {"rtol": rtol, "maxiter": maxiter, "warn": warn}
        if many(b):
            return self._solve_columns(b, x0, **options)
        return CGSolver.solve_all([self], [b], [x0], **options)[0]

    @checked(SolverError)
    def _solve_columns(
        self, b: Any, x0: Any, *, rtol: Fraction, maxiter: Count | None, warn: bool
    ) -> tuple[NDArray[Any], Info]:
        """Solve for the columns of b (size, nvec) one after the other. Collective."""
        A: Operator | ComplexOperator = self._A if self._complex is None else self._complex
        columns, found = columns_of(A, b, x0, "a solve by CGSolver"), list[Found]()
        for j, (right, guess) in enumerate(columns):
            solved = CGSolver.solve_all(
                [self], [right], [guess], rtol=rtol, maxiter=maxiter, warn=False
            )
            found.append((*solved[0], j))
        X, info, worst = joined(A, found)
        if warn:
            self._warn_of_setup()
        if warn and not info.converged:
            right = self._given(columns[worst][0], None)[0]
            count = sum(not one.converged for _, one, _ in found)
            failed = [(self, found[worst][1], right)]
            _warn_of(failed, (count, len(found)), rtol, _limit([self], maxiter))
        return X, info

    def _warn_of_setup(self) -> None:
        """Warn if M is of an operator with fewer constrained dofs than A. Collective."""
        if self._M is not None:
            warn_of_setup(self._A if self._complex is None else self._complex, self._advised)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles. A copy does not share the running solve."""
        return {k: v for k, v in self.__dict__.items() if k not in _TRANSIENT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _solve=None, _solved=None, _sums=Sums(state["_A"].space))

    @staticmethod
    @checked(SolverError)
    def solve_all(
        solvers: Sequence[CGSolver],
        rights: Sequence[NDArray[Any]],
        guesses: Sequence[NDArray[Any] | None] | None = None,
        *,
        rtol: Fraction = 1e-5,
        maxiter: Count | None = None,
        warn: bool = True,
    ) -> list[tuple[NDArray[Any], Info]]:
        """Solve one system with each of several solvers. Threads solve small systems at once.

        Parameters
        ----------
        solvers : sequence of CGSolver
            At least one solver, without duplicates. The call waits for solvers that other threads
            use.
        rights : sequence of (size,) arrays
        guesses : sequence of (size,) arrays or None, optional
        rtol, maxiter, warn
            See `solve`; all solves share one warning.

        Returns
        -------
        list of (x, info)

        Raises
        ------
        SolverError, VectorError
            See `solve`. Also raised if there is no solver, or if a solver appears twice: a solver
            holds the state of one solve only.
        """
        solvers = solvers_once(solvers)
        starts = [None] * len(solvers) if guesses is None else guesses
        if not len(solvers) == len(rights) == len(starts):
            raise SolverError("solvers, rights and guesses are not equally many: give one of each")

        def solved() -> list[tuple[NDArray[Any], Info]]:
            given, limit = zip(solvers, rights, starts, strict=True), _limit(solvers, maxiter)
            pairs = [(solver, solver._given(b, x0)) for solver, b, x0 in given]
            compiled = [pair for pair in pairs if pair[0]._M is None]
            if compiled:
                some, systems = [one for one, _ in compiled], [system for _, system in compiled]
                _advance_all(some, systems, rtol, limit)
            found = [solver._found(system, rtol, limit, warn) for solver, system in pairs]
            if warn:
                for solver in solvers:
                    solver._warn_of_setup()
                _warn_unconverged(solvers, rtol, limit)
            return found

        return together([solver._alone for solver in solvers], solved)

    def _given(self, b: Any, x0: Any) -> _System:
        """Check a right-hand side and a first guess, and divide them by a power of two."""
        A, whole = self._A, self._complex
        if whole is not None:
            with check(A.space.comm):
                b = pairs_of(whole, b, "b")
                x0 = None if x0 is None else pairs_of(whole, x0, "x0")
        right, guess = checked_right(A, b, "b"), checked_guess(A, x0, self._sums)
        check_eliminated(A, right)
        right, guess, held = without_held(A, right, guess)
        if guess is not None and not A.space.comm.max(int(bool(right.any()))):
            guess = None  # zero solves A x = 0, of which no residual is small enough
        exponent = excess_of(A, right, *(() if guess is None else (guess,)))
        if exponent:
            ldexp = A.space.memory.xp.ldexp
            right = ldexp(right, -exponent)
            guess = None if guess is None else ldexp(guess, -exponent)
        return right, guess, exponent, held

    def _found(
        self, system: _System, rtol: float, limit: int, warn: bool
    ) -> tuple[NDArray[Any], Info]:
        """Return the user's solution and the report of a system, solved by the compiled loop."""
        x, info = self._found_reals(system, rtol, limit)
        if warn and info.converged:
            warn_of_fields("femops.CGSolver", self._A, x, info.fields, rtol)
        x = system[-1].put_into(x)
        return (x if self._complex is None else from_pairs(x)), info

    def _found_reals(self, system: _System, rtol: float, limit: int) -> tuple[NDArray[Any], Info]:
        """Return the real solution without given values, and the report."""
        right, guess, exponent, _ = system
        if self._M is None:
            return self._end(exponent, rtol)
        norm = norm_of(self._A, right, self._sums)
        tolerance, first = rtol * norm, self._A.space.memory.xp.zeros_like(right)
        if self._natural:
            tolerance = rtol * math.sqrt(max(self._sums.dot(right, self._M @ right), 0.0))
        given = right, first if guess is None else guess, guess is None, self._sums, norm
        problem = LinearProblem(self._A, *given, tolerance, limit, self._M)
        goal, watch = max(tolerance, self._least), Watch(False, None, None)
        x, info = preconditioned_cg.solve(problem, watch, goal, natural=self._natural)
        self._norm, self._solved = norm, (info, right)
        if exponent:
            x = self._enlarged(x, exponent, rtol, norm)
        return x, info.scaled(exponent)

    def _ending(self, rtol: float) -> tuple[Info, NDArray[Any]]:
        """Report and right-hand side of the last solve, both still scaled by the power of two."""
        if self._solved is not None:
            return self._solved
        solve, tolerance = self._begun, max(rtol * self._norm, self._least)
        found = solve.status == CONVERGED, solve.iterations, solve.residual, tolerance, solve.merged
        return Info(*found), solve.right

    def _enlarged(self, x: NDArray[Any], exponent: int, rtol: float, norm: float) -> NDArray[Any]:
        """Return x times 2**exponent. Raise if the result is out of the range of its type."""
        allowed = max(rtol * norm, least_change(self._A.dtype, norm))
        return enlarged(self._A, x, exponent, allowed)

    @property
    def _begun(self) -> Solve:
        assert self._solve is not None
        return self._solve

    def _begin(self, right: NDArray[Any], guess: NDArray[Any] | None, rtol: float) -> float:
        """Start a solve, and return its tolerance."""
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
        """Raise if the norm of the right-hand side, which the solve computed, is out of range."""
        self._norm, norm = self._begun.norms
        if not LEAST_NORM <= norm < np.inf:
            norm_of(self._A, right, self._sums)

    def _end(self, exponent: int, rtol: float) -> tuple[NDArray[Any], Info]:
        """Return the solution of a finished solve, times 2**exponent, and a report."""
        self._check_end()
        solve, A = self._begun, self._A
        x, (info, right) = backend_of(A.space).placed(solve.x.copy()), self._ending(rtol)
        if isinstance(A.space, Product):
            info = replace(info, fields=self._sums.of_fields(right - A.apply(x), right))
        if exponent:
            x = self._enlarged(x, exponent, rtol, self._sums.norm(right))
        return x, info.scaled(exponent)

    def _check_end(self) -> None:
        """Raise if the solve has shown that the operator is not positive definite. Collective."""
        least = least_change(self._A.dtype, self._norm)
        if self._begun.status == BREAKDOWN and not self._begun.residual <= least:
            raise SolverError(indefinite(self._begun, self._A, least))


def solves_instruction(
    solvers: Sequence[CGSolver],
    rights: Sequence[NDArray[Any]],
    rtol: float,
    maxiter: int | None,
    done: NDArray[np.float64],
) -> tuple[Instruction | None, list[NDArray[Any]]]:
    """Return an instruction that does `CGSolver.solve_all` on the host, and the solutions' arrays.

    The instruction is None if only Python can do the solves. That is so in float32, where
    right-hand sides may have to be scaled. Each solver must have solved a system before. The
    instruction adds the numbers of iterations to ``done``.
    """
    group = _group(solvers)
    if group is None or any(solver._A.dtype == np.float32 for solver in solvers):
        return None, []
    limit = _limit(solvers, maxiter)
    least = [solver._least for solver in solvers]
    found = group.instruction(rights, rtol, least, limit, done)
    return found, [solver._begun.x for solver in solvers]


def solvers_once(solvers: Sequence[CGSolver]) -> list[CGSolver]:
    """Return the solvers as a list. Raise unless each is a CGSolver and appears only once."""
    found = list(solvers)
    if wrong := [one for one in found if not isinstance(one, CGSolver)]:
        raise SolverError(f"{shown(wrong[0])} is no solver: give femops.CGSolver(A)")
    if not 0 < len({id(solver) for solver in found}) == len(found):
        raise SolverError("solve_all needs at least one solver, and each only once")
    return found


def ended_solves(
    solvers: Sequence[CGSolver],
    rights: Sequence[NDArray[Any]],
    rtol: float,
    maxiter: int,
) -> None:
    """Raise errors of solves that an instruction has done, and issue their warning. Collective."""
    for solver, b in zip(solvers, rights, strict=True):
        solver._check_norm(b)
        solver._check_end()
    _warn_unconverged(solvers, rtol, _limit(solvers, maxiter))


def _warn_unconverged(solvers: Sequence[CGSolver], rtol: float, limit: int) -> None:
    """Warn once if solves have ended above their tolerance. Collective."""
    ends = [(solver, *solver._ending(rtol)) for solver in solvers]
    failed = [end for end in ends if not end[1].converged]
    if failed:
        _warn_of(failed, (len(failed), len(solvers)), rtol, limit)


def _warn_of(
    failed: Sequence[tuple[CGSolver, Info, NDArray[Any]]],
    counts: tuple[int, int],
    rtol: float,
    limit: int,
) -> None:
    """Warn of solves that failed. ``counts``: failed solves and all solves. Collective.

    Each has its solver, its report and its right-hand side.
    """
    most = max(info.iterations for _, info, _ in failed)
    first, info, right = failed[0]
    norm = first._sums.norm(right)
    advice = advice_on("cg", first._A, first._advised, info, limit, norm)
    cause = singular_cause(first._A, right, rtol * norm, advice=advice)
    warn_unconverged(
        f"femops.CGSolver: {counts[0]} of {counts[1]} systems have not come to rtol = {rtol:g} in "
        f"{most} iterations. {cause or advice}",
        first._A.space.comm,
    )


def _advance_all(
    solvers: Sequence[CGSolver], systems: Sequence[_System], rtol: float, limit: int
) -> None:
    """Run one solve of each solver to its end."""
    group = _group(solvers)
    if group is not None and all(guess is None for _, guess, _, _ in systems):
        rights = [right for right, _, _, _ in systems]
        group.restart(rights, rtol, [solver._least for solver in solvers])
        group.advance(limit)
        for solver, right in zip(solvers, rights, strict=True):
            solver._check_norm(right)
        return
    given = zip(solvers, systems, strict=True)
    goals = [solver._begin(right, guess, rtol) for solver, (right, guess, _, _) in given]
    if group is not None:
        group.advance(limit, goals)
        return
    for solver, goal, (_, guess, _, _) in zip(solvers, goals, systems, strict=True):
        most = MOST_GROWTH * solver._norm if guess is None else np.inf  # a guess may be far away
        _to_the_end(solver._begun, goal, limit, most)


def _limit(solvers: Sequence[CGSolver], maxiter: int | None) -> int:
    """Maximum number of iterations: ``maxiter``, or ten times the size of the largest system."""
    size = max(solver._A.space.global_size for solver in solvers)
    return 10 * size if maxiter is None else int(maxiter)


def _group(solvers: Sequence[CGSolver]) -> SolveGroup | None:
    """Group of the solves of all solvers. None unless all have begun and can run at once."""
    first, *others = [solver._solve for solver in solvers]
    if first is None or not all(others):
        return None
    return first.group([one for one in others if one is not None])


def _to_the_end(solve: Solve, goal: float, limit: int, most: float) -> None:
    """Run a solve to its end, or until its residual exceeds ``most``, in bursts.

    Python can act on an interrupt between bursts.
    """
    burst = solve.every or _BURST
    solve.advance(goal, limit, burst, show=False)
    while solve.status == 0 and solve.iterations < limit and solve.residual <= most:
        solve.advance(goal, limit, burst, show=False)
