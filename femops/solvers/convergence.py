"""Warnings about solves that have not converged."""

from __future__ import annotations

from typing import Any

from femops.parallel.comm import Communicator
from femops.solvers.linear_problem import MOST_GROWTH, Info, LinearProblem, Solver
from femops.solvers.multigrid import Multigrid
from femops.solvers.singular import singular_cause
from femops.solvers.warned import warn_on_first_rank
from femops.spaces.product import Product

_PRECONDITIONERS: dict[Solver, str] = {
    "cg": "M=femops.multigrid(A) or femops.jacobi(A)",
    "minres": "M=femops.jacobi(B) of a positive definite operator B that is like A",
    "gmres": "M=femops.jacobi(A)",
}
_PER_FIELD: dict[Solver, str] = {
    "cg": "M=femops.block_diagonal(W, ...)",
    "minres": "M=femops.block_diagonal(W, ...), of a positive definite M for each field",
    "gmres": "M=femops.block_triangular(A, ...)",
}
_OFF = "(warn=False: no warning)"


def warn_unconverged(text: str, comm: Communicator) -> None:
    """Warn on rank 0 that a solve has not converged. Collective.

    The warning shows the line of the user's program that called femops.

    Parameters
    ----------
    text : str
        Name of the solver, residual, tolerance and advice. The warning adds how to turn it off.
    comm : Communicator
        Ranks of the solve.

    Warns
    -----
    ConvergenceWarning

    Raises
    ------
    RankError
        On the other ranks, if the warning is an error.
    """
    warn_on_first_rank(f"{text} {_OFF}", comm)


def warn_of(solver: Solver, problem: LinearProblem, M: Any, info: Info, advice: str = "") -> None:
    """Warn that a linear solve has not converged, with the likely cause. Collective.

    Parameters
    ----------
    solver : str
        Name of the function.
    problem : LinearProblem
    M : LinearOperator or None
        Preconditioner.
    info : Info
        Report of the solve; its ``converged`` is False.
    advice : str
        Advice if the operator does not look singular. By default that for any solve.

    Warns
    -----
    ConvergenceWarning
    """
    cause = singular_cause(problem.A, problem.right, problem.tolerance)
    warn_unconverged(
        f"femops.{solver} has not converged: |b - A x| is {info.residual:.2g} after "
        f"{info.iterations} iterations, not {problem.tolerance:.2g}. "
        f"{cause or advice or _advice(solver, problem, M, info)}",
        problem.A.space.comm,
    )


def _advice(solver: Solver, problem: LinearProblem, M: Any, info: Info) -> str:
    """Advice for a solve whose operator does not look singular."""
    if info.iterations >= problem.limit:
        if M is None:
            several = isinstance(problem.A.space, Product)
            advised = (_PER_FIELD if several else _PRECONDITIONERS)[solver]
            return f"Give {advised}, or a larger maxiter."
        own = isinstance(M, Multigrid) and M.operator is problem.A  # else it is of a similar one
        higher = f", as {M.higher}" if own and M.higher else ""
        return f"Give a larger maxiter, or another M{higher}."
    if info.residual > 0.1 * MOST_GROWTH * problem.norm:
        return "The residual grows: A is singular to round-off, or A or M is not symmetric."
    return (
        "The residual no longer decreases: give a larger rtol if that is round-off, else another M"
        + ", or keep more directions (restart)" * (solver == "gmres")
        + "."
    )
