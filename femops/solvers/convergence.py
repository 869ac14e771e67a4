"""Warnings about solves that have not converged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.parallel.comm import Communicator
from femops.solvers.blocks import BlockDiagonal, BlockTriangular
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import MOST_GROWTH, Info, LinearProblem, Solver
from femops.solvers.multigrid import Multigrid
from femops.solvers.singular import singular_cause
from femops.solvers.warned import warn_on_first_rank
from femops.spaces.base import Space
from femops.spaces.functions import Function
from femops.spaces.h1_l2 import H1
from femops.spaces.product import Product

Vector = NDArray[Any]
_FALLEN = 0.1  # part of its first size that a field's residual is above if it has not fallen
_PRECONDITIONERS: dict[Solver, str] = {
    "cg": "M=femops.multigrid(A) or femops.jacobi(A)",
    "minres": "M=femops.jacobi(B) of a positive definite operator B that is like A",
    "gmres": "M=femops.jacobi(A)",
}
_OTHERS: dict[Solver, str] = {
    "cg": "M=femops.multigrid(A)",
    "minres": "M=femops.multigrid(B) of a positive definite operator B that is like A",
    "gmres": "another M",
}
"""Preconditioner that is advised in place of Jacobi's."""
_PER_FIELD: dict[Solver, str] = {
    "cg": "M=femops.block_diagonal(W, ...)",
    "minres": "M=femops.block_diagonal(W, ...), of a positive definite M for each field",
    "gmres": "M=femops.block_triangular(A, ...)",
}
_OFF = "(warn=False: no warning)"


def warn_unconverged(text: str, comm: Communicator) -> None:
    """Warn on rank 0, at the user's call of femops, that a solve has not converged. Collective.

    The warning is ``text`` and how to turn it off. If the user made warnings errors, the other
    ranks raise RankError.
    """
    warn_on_first_rank(f"{text} {_OFF}", comm)


def warn_of_setup(A: Operator | ComplexOperator, M: Any = None) -> None:
    """Warn if the structure of a system shows that solvers take many iterations. Collective."""
    comm = A.space.comm
    for name, M_operator in _multigrids(A, M):
        if comm.max(int(_lacks(A, name, M_operator))):
            block = f"A[{name!r}, {name!r}]" if name else "A"
            warn_on_first_rank(
                f"M is not made of {block}: {block} has constrained dofs that M's operator has "
                f"not, so a solve takes more iterations. Give femops.multigrid({block}) of the "
                f"constrained A {_OFF}",
                comm,
            )
    for u, p in _unstable_pairs(A):
        warn_on_first_rank(
            f"{p} has no equation of its own, and its order is not lower than that of {u}: as a "
            f"pressure it is not determined (inf-sup condition). Give {p} an order less than "
            f"{u}, or add a form that stabilises it {_OFF}",
            comm,
        )


def _multigrids(A: Operator | ComplexOperator, M: Any) -> Iterator[tuple[str, Operator]]:
    """Yield operators of multigrid preconditioners in M, with their field's name on a product."""
    blocks = isinstance(M, BlockDiagonal | BlockTriangular) and isinstance(A.space, Product)
    for name, part in (M.parts if blocks else {"": M}).items():
        if isinstance(part, Multigrid) and (not name or name in A.space.spaces):
            yield name, part.operator


def _lacks(A: Operator | ComplexOperator, name: str, own: Operator) -> bool:
    """True if an operator has not all constrained dofs of A, or of A's block of a field.

    The vectors of a complex A may have complex numbers, or pairs of real ones.
    """
    for B in (A, A.real) if isinstance(A, ComplexOperator) else (A,):
        space = B.space.spaces[name] if name else B.space
        if own.space.size == space.size:
            dofs = B.constrained_dofs
            wanted = B.space.within(name, dofs) if name else dofs
            return not np.isin(wanted, own.constrained_dofs).all()
    return False


def _unstable_pairs(A: Operator | ComplexOperator) -> Iterator[tuple[str, str]]:
    """Yield fields u and p, where p tests the divergence of u alone, and has no lower order."""
    if not isinstance(A.space, Product):
        return
    real = A.real if isinstance(A, ComplexOperator) else A
    spaces, pairs = A.space.spaces, real.pairs
    for p, Q in spaces.items():
        if Q.ncomp > 1 or (p, p) in pairs:
            continue
        for u, V in spaces.items():
            vector = isinstance(V, H1) and V.ncomp == V.dim and Q.order >= V.order
            if vector and (p, u) in pairs and (u, p) in pairs and _divergence(real, p, u):
                yield u, p


def _divergence(A: Operator, p: str, u: str) -> bool:
    """True if values of p test derivatives of u, and nothing else of u."""
    found = []
    for _, term in A.summands:
        step = (term.original or term).source.qfunction
        if (p, u) in step.pairs:
            out, into = step.places(step.trace.tests, p), step.places(step.trace.fields, u)
            tests, values = (len(a.values) for a in (step.trace.tests[p], step.trace.fields[u]))
            coupled = step.structure[np.ix_(out, into)]  # first the values, then derivatives
            found.append(not coupled[tests:].any() and not coupled[:, :values].any())
    return bool(found) and all(found)


def warn_of(
    solver: Solver, problem: LinearProblem, M: Any, x: Vector, info: Info, advice: str = ""
) -> None:
    """Warn of a linear solve, or a field of it, that has not converged. Collective.

    Shapes: `x` (size,).
    """
    if info.converged:
        part = problem.tolerance / problem.norm if problem.norm else 0.0
        warn_of_fields(f"femops.{solver}", problem.A, x, info.fields, part)
        return
    warn_unconverged(
        f"femops.{solver} has not converged: |b - A x| is {info.residual:.2g} after "
        f"{info.iterations} iterations, not {problem.tolerance:.2g}. "
        f"{cause_of(solver, problem, M, info, advice)}",
        problem.A.space.comm,
    )


def cause_of(solver: Solver, problem: LinearProblem, M: Any, info: Info, advice: str = "") -> str:
    """Likely cause of a solve that did not converge, or advice. Collective."""
    A = problem.A
    known = advice or _advice_on(solver, problem, M, info)
    return singular_cause(A, problem.right, problem.tolerance, advice=known) or known


def warn_of_fields(
    solver: str,
    A: Operator | Callable[[], Operator],
    x: Vector,
    fields: dict[str, tuple[float, float]],
    part: float,
) -> None:
    """Warn of fields of a converged solve whose own residuals have not fallen. Collective.

    The residual of a field is large if it is above a tenth of the field's right-hand side, and of
    the terms of its equation. They may cancel in A x, so their size is that of A x' where x' is x
    times a smooth function. A is the operator, or a function that makes it.

    Shapes: `x` (size,).
    """
    least = max(_FALLEN, part)
    large = [name for name, (residual, right) in fields.items() if residual > least * right]
    if not large:
        return
    A = A if isinstance(A, Operator) else A()
    assert isinstance(A.space, Product)
    modulated = x.copy()
    modulated[A.constraints.rows_in(A.space.memory)] = 0.0
    modulated *= _ramp(A.space)
    modulated = modulated.astype(A.dtype, copy=False)
    terms = Sums(A.space).of_fields(A.apply(modulated), modulated)
    told = [
        f"{fields[name][0]:.2g} in {name} (right-hand side {fields[name][1]:.2g})"
        for name in large
        if fields[name][0] > least * terms[name][0]
    ]
    if told:
        warn_unconverged(
            f"{solver} has converged for all fields together, but residuals have not fallen: "
            f"{', '.join(told)}. Scale unknowns and equations until the numbers of the fields are "
            "comparable (docs/solvers.md), or give a smaller rtol.",
            A.space.comm,
        )


def _ramp(W: Product) -> Vector:
    """Vector of a linear function that grows along all axes, for all components. Collective."""
    lower, upper = W.mesh.bounding_box()
    lower = np.array([-W.comm.max(-float(low)) for low in lower])
    upper = np.array([W.comm.max(float(high)) for high in upper])
    weights = np.arange(1.0, len(lower) + 1) / (upper - lower)

    def ramp(V: Space) -> Function:
        return lambda x: np.broadcast_to(
            weights @ (x - lower[:, np.newaxis]), (V.ncomp, x.shape[1])
        ).squeeze(0 if V.ncomp == 1 else ())

    return W.interpolate(**{name: ramp(V) for name, V in W.spaces.items()})


def _advice_on(solver: Solver, problem: LinearProblem, M: Any, info: Info) -> str:
    """Advice for a solve that did not converge."""
    A = problem.A
    if info.iterations >= problem.limit:
        if M is None:
            several = isinstance(A.space, Product)
            advised = (_PER_FIELD if several else _PRECONDITIONERS)[solver]
            return f"Give {advised}, or a larger maxiter."
        if isinstance(M, Jacobi):
            return f"Give {_OTHERS[solver]}, or a larger maxiter."
        own = isinstance(M, Multigrid) and M.operator is A  # `M.higher` is a call with its A
        higher = f", as {M.higher}" if own and M.higher else ""
        return f"Give a larger maxiter, or another M{higher}."
    if info.residual > 0.1 * MOST_GROWTH * problem.norm:
        if not problem.from_zero:
            return "The first guess leaves round-off of its size: give one that is nearer, or none."
        return "The residual grows: A is singular to round-off, or A or M is not symmetric."
    return (
        "The residual no longer decreases: give a larger rtol if that is round-off, else another M"
        + ", or keep more directions (restart)" * (solver == "gmres")
        + "."
    )
