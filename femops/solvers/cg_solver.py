"""Conjugate gradients for many right-hand sides, with one setup."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator, from_pairs
from femops.parallel.comm import check
from femops.solvers.any_preconditioner import AnyOrNamed, named
from femops.solvers.call import Column, columns_of, joined, many
from femops.solvers.cg import Driver, solve_all
from femops.solvers.cg_bodies import group_of
from femops.solvers.complex_systems import real_pair, right_and_guess
from femops.solvers.convergence import cause_of, warn_of_fields, warn_of_setup, warn_unconverged
from femops.solvers.inner_products import Sums
from femops.solvers.linear_problem import Info, LinearProblem, checked_preconditioner
from femops_common.arguments import Count, Fraction, checked, shown
from femops_kernels.compiled import Instruction
from femops_kernels.exclusive import Exclusive, together

_End = tuple["CGSolver", LinearProblem, NDArray[Any], Info]
"""Solver, problem of real numbers, its solution (size,) without given values, and the report."""


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
    M : Preconditioner, LinearOperator, matrix or name, optional
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
        self, A: Operator | ComplexOperator, M: AnyOrNamed = None, *, natural: bool = False
    ) -> None:
        M = named(M, A)
        self._given, self._natural = (A, M), natural
        self._A, M = real_pair("cg", A, M)
        self._M = checked_preconditioner("cg", self._A, M)
        merged, sums = False if natural else None, Sums(self._A.space)
        self._driver = Driver(self._A, self._M, sums, merged=merged, natural=natural, reused=True)
        self._alone = Exclusive()  # while a system is solved

    def __reduce__(self) -> tuple[Any, ...]:
        """Set copies and pickles up again: they do not share the running solve."""
        return partial(CGSolver, natural=self._natural), self._given

    @checked(SolverError)
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
            Done when |b - A x| <= rtol |b|, without given values, in the recursion as in `cg`.
        maxiter : int, optional
            Maximum number of iterations. If it is reached, the last iterate is returned.
        warn : bool
            Whether to issue a `ConvergenceWarning` if the solve has not converged.

        Returns
        -------
        x : array of the shape of b
        info : Info
            As for `cg`. With ``natural``, ``info.residual`` and ``info.tolerance`` are in the norm
            sqrt(r . M r).

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
        limit = _limit([self], maxiter)
        if many(b):
            return self._solve_columns(b, x0, rtol, limit, warn)
        return _answers([self], [(b, x0)], rtol, limit, warn)[0]

    def _solve_columns(
        self, b: Any, x0: Any, rtol: float, limit: int, warn: bool
    ) -> tuple[NDArray[Any], Info]:
        """Solve for the columns of b (size, nvec) one after the other. Collective."""
        A = self._given[0]
        columns = columns_of(A, b, x0, "a solve by CGSolver")
        ends = [_answers([self], [column], rtol, limit, False)[0] for column in columns]
        X, info, (_, own, worst) = joined(A, [(*end, j) for j, end in enumerate(ends)])
        if warn:
            self._warn_of_setup()
        if warn and not info.converged:
            problem = self._problem(columns[worst], rtol, limit)
            failed = sum(not one.converged for _, one in ends)
            _warn_of([(self, problem, X[:, worst], own)], rtol, (failed, len(ends)))
        return X, info

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
        systems = list(zip(rights, starts, strict=True))
        return _answers(solvers, systems, rtol, _limit(solvers, maxiter), warn)

    def _problem(self, system: Column, rtol: float, limit: int) -> LinearProblem:
        """Check a right-hand side and a first guess. Collective."""
        (b, x0), A, user = system, self._A, self._given[0]
        if isinstance(user, ComplexOperator):
            with check(A.space.comm):
                b, x0 = right_and_guess(user, b, x0)
        how = self._M, self._driver.sums, limit, rtol
        return LinearProblem.of(A, b, x0, *how, natural=self._natural)

    def _of_user(self, problem: LinearProblem, x: NDArray[Any]) -> NDArray[Any]:
        """Convert a solution of real numbers for the user."""
        x = problem.held.put_into(x)
        return from_pairs(x) if isinstance(self._given[0], ComplexOperator) else x

    def _warn_of_setup(self) -> None:
        """Warn if M is of an operator with fewer constrained dofs than A. Collective."""
        if self._driver.loop is None:
            warn_of_setup(*self._given)


def _answers(
    solvers: Sequence[CGSolver], systems: Sequence[Column], rtol: float, limit: int, warn: bool
) -> list[tuple[NDArray[Any], Info]]:
    """Solve a system with each solver, and warn. Collective."""

    def solved() -> list[_End]:
        given = zip(solvers, systems, strict=True)
        problems = [solver._problem(system, rtol, limit) for solver, system in given]
        found = solve_all([solver._driver for solver in solvers], problems, rtol)
        return [
            (solver, problem, x, info)
            for solver, problem, (x, info) in zip(solvers, problems, found, strict=True)
        ]

    ends = together([solver._alone for solver in solvers], solved)
    if warn:
        for solver, _, x, info in ends:
            if info.converged and info.fields:
                warn_of_fields("femops.CGSolver", solver._A, x, info.fields, rtol)
        for solver in solvers:
            solver._warn_of_setup()
        _warn_of(ends, rtol)
    return [(solver._of_user(problem, x), info) for solver, problem, x, info in ends]


def _warn_of(ends: Sequence[_End], rtol: float, counts: tuple[int, int] | None = None) -> None:
    """Warn once if solves have not converged; ``counts``: failed and all solves. Collective."""
    failed = [end for end in ends if not end[-1].converged]
    if failed:
        solver, problem, _, info = failed[0]
        some, of = counts or (len(failed), len(ends))
        most = max(info.iterations for *_, info in failed)
        warn_unconverged(
            f"femops.CGSolver: {some} of {of} systems have not come to rtol = {rtol:g} in {most} "
            f"iterations. {cause_of('cg', problem, solver._given[1], info)}",
            problem.A.space.comm,
        )


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
    loops = [solver._driver.loop for solver in solvers]
    group = group_of(loops)
    if group is None or any(solver._A.dtype == np.float32 for solver in solvers):
        return None, []
    least = [solver._driver.least for solver in solvers]
    found = group.instruction(rights, rtol, least, _limit(solvers, maxiter), done)
    return found, [loop.begun.x for loop in loops if loop is not None]


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
    ends, limit = list[_End](), _limit(solvers, maxiter)
    for solver, b in zip(solvers, rights, strict=True):
        driver, problem = solver._driver, solver._problem((b, None), rtol, limit)
        assert driver.loop is not None
        end = driver.report(problem, driver.loop.end(problem), trusted=True)
        ends.append((solver, problem, *end))
    _warn_of(ends, rtol)


def _limit(solvers: Sequence[CGSolver], maxiter: int | None) -> int:
    """Maximum number of iterations: ``maxiter``, or ten times the size of the largest system."""
    size = max(solver._A.space.global_size for solver in solvers)
    return 10 * size if maxiter is None else int(maxiter)
