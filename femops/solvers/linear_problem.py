"""Arguments and reports that all linear solvers share: checked problems, and `Info`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError, VectorError
from femops.operators import Operator
from femops.parallel.comm import check, check_same
from femops.solvers.any_preconditioner import as_preconditioner
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.watch import Callback
from femops_common import html
from femops_kernels.compiled import LEAST_NORM

Vector = NDArray[Any]
# Powers of two up to which sums of squares, and of products with A, are well in float32's range.
_SAFE = 20
# Residuals of conjugate gradients grow by at most the root of the condition number if A is positive
# definite. If they grow by more than this, A is singular to float64's round-off.
MOST_GROWTH = 2.0**26
Map = Callable[[Vector], Vector]
Solver = Literal["cg", "minres", "gmres"]


@final
@dataclass(frozen=True)
class Info:
    """Report of a solve.

    Attributes
    ----------
    converged : bool
        Whether the residual is at most the tolerance; with `cg` and `CGSolver` at most ten times
        the tolerance.
    iterations : int
    residual : float
        Euclidean norm of b - A x over the free dofs, computed at the end; see also
        `CGSolver.solve`, ``natural``. At constrained dofs x has the given values.
    tolerance : float
        Bound for the residual, max(rtol |b|, atol), where b is without given values.
    merged : bool
        Whether vectors were updated inside the operator's sweep.
    residuals : tuple of float
        Norms of the recursion's residual, before the first iteration and after each. Empty without
        ``history=True``.
    fields : dict of pairs of float
        On a product of spaces: for each field, by its name, the norms of its part of b - A x and of
        b. ``converged`` compares the norm over all fields, so a field with small numbers may be
        inaccurate. Empty on one space.
    """

    converged: bool
    iterations: int
    residual: float
    tolerance: float
    merged: bool = False
    residuals: tuple[float, ...] = ()
    fields: dict[str, tuple[float, float]] = field(default_factory=dict, hash=False)

    def _repr_html_(self) -> str:
        rows = [
            ("converged", "yes" if self.converged else "no"),
            ("iterations", f"{self.iterations}"),
            ("residual", f"{self.residual:.3g}"),
            ("tolerance", f"{self.tolerance:.3g}"),
        ]
        rows += [(f"residual of {name}", f"{r:.3g}") for name, (r, _) in self.fields.items()]
        return html.table("Info", rows)

    def scaled(self, exponent: int) -> Info:
        """Copy with all norms but ``residuals`` times 2**exponent."""
        factor = math.ldexp(1.0, exponent)
        fields = {name: (factor * r, factor * b) for name, (r, b) in self.fields.items()}
        residual, tolerance = factor * self.residual, factor * self.tolerance
        return replace(self, residual=residual, tolerance=tolerance, fields=fields)


@final
@dataclass(frozen=True)
class Held:
    """Given values of constrained dofs other than zero, which solves leave out.

    Their equations have no other unknowns. Their numbers may be of quite another size, and have
    other units, so they do not count in norms of residuals.
    """

    rows: Vector  # (k,): constrained dofs, in the memory of the vectors
    values: Vector  # (k,): their part of the solution

    def __bool__(self) -> bool:
        return len(self.rows) > 0

    def put_into(self, x: Vector) -> Vector:
        """Write the values into a solution x (size,), and return it."""
        if self:
            x[self.rows] = self.values
        return x


_NONE_HELD = Held(np.zeros(0, dtype=np.int64), np.zeros(0))


def without_held(A: Operator, vector: Vector) -> tuple[Vector, Held]:
    """Return b or x0 with zeros at constrained dofs, and the given values that were there.

    An array that has zeros there already is returned as it is, and so is one whose values there are
    not finite, which `norm_of` refuses.
    """
    constraints, memory = A.constraints, A.space.memory
    if not (constraints.identity and constraints.symmetric and len(constraints.rows)):
        return vector, _NONE_HELD
    rows = constraints.rows_in(memory)
    values = vector[rows]
    if not (values.any() and memory.xp.isfinite(values).all()):
        return vector, _NONE_HELD
    vector = vector.copy()
    vector[rows] = 0.0
    return vector, Held(rows, values / vector.dtype.type(constraints.identity))


@final
@dataclass(frozen=True)
class LinearProblem:
    """Checked system A x = b, with the options of the solve."""

    A: Operator
    # right and guess are (size,): right-hand side, and first guess (zeros by default). Both are
    # zero at constrained dofs.
    right: Vector
    guess: Vector
    from_zero: bool  # whether the guess is zero because the user gave none, or b is zero
    sums: Sums  # sums over the vectors of the operator's space
    norm: float  # euclidean norm of the right-hand side
    tolerance: float  # bound for the norm of the residual
    limit: int  # maximum number of iterations
    M: Preconditioner | None
    held: Held = _NONE_HELD  # given values of constrained dofs; none if all are zero
    exponent: int = 0  # b and x0 are the right-hand side and guess times 2**exponent

    @classmethod
    def checked(
        cls,
        solver: Solver,
        A: Operator,
        b: Vector,
        x0: Vector | None,
        M: Any,
        rtol: float,
        atol: float,
        maxiter: int | None,
        watched: bool = False,
        **others: object,
    ) -> LinearProblem:
        """Check a user's problem, and that all ranks have the same problem. Collective.

        If the solve is ``watched`` by a user's function, which might write to b, b is copied.
        ``others`` are further options that must be the same on all ranks.
        """
        own = checked_preconditioner(solver, A, M)
        given = others | {"rtol": rtol, "atol": atol, "maxiter": maxiter}
        given |= {"x0 given": x0 is not None, "M": type(M).__name__}
        check_same(A.space.comm, f"a solve by {solver}", given, error=SolverError)
        limit = 10 * A.space.global_size if maxiter is None else int(maxiter)
        options = {"any_rows": solver != "cg", "watched": watched}
        return cls.of(A, b, x0, own, Sums(A.space), limit, rtol, atol, **options)

    @classmethod
    def of(
        cls,
        A: Operator,
        b: Vector,
        x0: Vector | None,
        M: Preconditioner | None,
        sums: Sums,
        limit: int,
        rtol: float,
        atol: float = 0.0,
        *,
        any_rows: bool = False,
        watched: bool = False,
        natural: bool = False,
    ) -> LinearProblem:
        """Check vectors. With ``any_rows`` b need not be zero in eliminated rows. Collective."""
        with check(A.space.comm):
            right = checked_right(A, b, "b")
            guess = None if x0 is None else checked_right(A, x0, "x0")
        right = right.copy() if watched else right
        if not any_rows:
            check_eliminated(A, right)
        right, held = without_held(A, right)
        norm, guess = norm_of(A, right, sums), checked_guess(A, guess, sums)
        from_zero = guess is None or not norm  # zero solves A x = 0; no residual is small enough
        if guess is None or not norm:
            guess = A.space.memory.xp.zeros(right.shape, right.dtype)  # touches no page of memory
        size = natural_norm(M, right, sums) if natural else norm
        tolerance = max(rtol * size, atol)
        return cls(A, right, guess, from_zero, sums, norm, tolerance, limit, M, held)

    def shown(self, callback: Callback | None) -> Callback | None:
        """Return a callback for iterates without given values that passes iterates with them."""
        if not self.held or callback is None:
            return callback

        def complete(x: Vector) -> Any:
            x = self.held.put_into(x.copy())
            self.A.space.memory.protect(x)
            return callback(x)

        return complete

    def in_range(self) -> LinearProblem:
        """Scale a problem in float32 if squares of its numbers leave that range. Collective."""
        if self.A.dtype != np.float32:
            return self
        vectors = self.right, self.guess
        own = max(float(abs(vector).max()) if len(vector) else 0.0 for vector in vectors)
        largest = self.A.space.comm.max(own)
        exponent = math.frexp(largest)[1] if 0.0 < largest < math.inf else 0
        return self.scaled(exponent) if abs(exponent) > _SAFE else self

    def scaled(self, exponent: int) -> LinearProblem:
        """Copy of the problem for x / 2**exponent, exact except for underflow."""
        if not exponent:
            return self
        ldexp, part = self.A.space.memory.xp.ldexp, math.ldexp(1.0, -exponent)
        return replace(
            self,
            right=ldexp(self.right, -exponent),
            guess=ldexp(self.guess, -exponent),
            norm=part * self.norm,
            tolerance=part * self.tolerance,
            exponent=exponent,
        )

    def preconditioner(self, *, positive: bool = False) -> Map:
        """Return the function r -> M r; without a preconditioner it returns r."""
        xp, kind, M = self.A.space.memory.xp, self.right.dtype, self.M
        if M is None:
            return lambda r: r
        if not isinstance(M, Jacobi):
            return lambda r: xp.ascontiguousarray(M @ r, dtype=kind).reshape(-1)
        inverse = xp.ascontiguousarray(M.inverse, dtype=kind)
        # zeros stand where rows and columns are eliminated
        if positive and self.A.space.comm.max(int((inverse < 0.0).any())):
            raise SolverError(
                "M is not positive, and minres needs that: make it by jacobi(B) of a positive "
                "definite operator B, as femops.diffusion(V) + femops.mass(V)"
            )
        return lambda r: inverse * r


def enlarged(A: Operator, x: Vector, exponent: int, allowed: float) -> Vector:
    """Return x (size,) times 2**exponent. Raise if it leaves float32's range. Collective.

    Entries of x may underflow if this changes A x by at most ``allowed`` in the Euclidean norm.
    """
    xp, comm = A.space.memory.xp, A.space.comm
    with np.errstate(over="ignore", under="ignore"):
        found: Vector = xp.ldexp(x, exponent)
    outside = not xp.isfinite(found).all()
    if not comm.max(int(outside)):
        lost = x - xp.ldexp(found, -exponent)
        some = comm.max(int(bool(lost.any())))
        outside = bool(some) and not Sums(A.space).norm(A.apply(lost)) <= allowed
    if comm.max(int(outside)):
        raise SolverError("x is out of the range of float32: scale b, or make A in float64")
    return found


def checked_preconditioner(solver: Solver, A: Operator, M: Any) -> Preconditioner | None:
    """Check that a solver accepts an operator and M. Return M as a preconditioner, or None."""
    if A.space is not A.test_space:
        raise SolverError(f"{A!r} goes from one space to another: its system has no solution")
    if solver != "gmres" and not A.symmetric:
        raise SolverError(
            f"{A!r} is not symmetric, as {solver} needs: use femops.gmres (a tensor coefficient "
            "counts as symmetric only if it is so to the last bit: give (K + K.T) / 2)"
        )
    if solver != "gmres" and not getattr(M, "symmetric", True):
        raise SolverError(
            f"M is not symmetric, as {solver} needs: use femops.gmres, or "
            "of a product of spaces give femops.block_diagonal(W, ...)"
        )
    return as_preconditioner(M, A.space, A.dtype)


def check_eliminated(A: Operator, right: Vector) -> None:
    """Raise if the right-hand side is not zero in eliminated rows. Collective."""
    rows = A.constraints.rows
    if A.constraints.identity or not A.space.comm.max(len(rows)):
        return
    if A.space.comm.max(int(bool(right[A.constraints.rows_in(A.space.memory)].any()))):
        raise SolverError(
            "b has entries other than zero in rows that A has eliminated, so there is no solution: "
            "set b[A.constrained_dofs] = 0, or take A.unconstrained.constrained(dofs)"
        )


def norm_of(A: Operator, right: Vector, sums: Sums) -> float:
    """Norm of a right-hand side (size,). Raise if it is not finite or underflows. Collective."""
    norm = sums.norm(right)
    if not np.isfinite(norm):
        if A.space.comm.max(int(not A.space.memory.xp.isfinite(right).all())):
            raise SolverError(
                "b has entries that are not finite: look at the load vector and the boundary values"
            )
        raise SolverError(
            "the squares of the entries of b overflow: divide b, and then multiply x, by a large "
            "number"
        )
    # if squares underflow, the solve would be called converged after little reduction
    if norm < LEAST_NORM and A.space.comm.max(int(bool(right.any()))):
        raise SolverError(
            "b has entries other than zero, but their squares underflow: multiply b, and then "
            "divide x, by a large number"
        )
    return norm


def natural_norm(M: Preconditioner | None, right: Vector, sums: Sums) -> float:
    """Norm sqrt(b . M b) of a right-hand side (size,). Collective."""
    # Jacobi's without the checks of a product, which would take part of a small solve's time
    product = M.inverse * right if isinstance(M, Jacobi) else right if M is None else M @ right
    return math.sqrt(max(sums.dot(right, product), 0.0))


def checked_guess(A: Operator, guess: Vector | None, sums: Sums) -> Vector | None:
    """Check that a guess is finite. Return it with zeros at constrained dofs. Collective."""
    if guess is None:
        return None
    if not np.isfinite(sums.norm(guess)):
        raise SolverError("x0 has entries that are not finite: leave it out")
    return without_held(A, guess)[0]


def checked_right(A: Operator, vector: Any, what: str) -> Vector:
    """Check the size and type of a vector. Return it contiguous, (size,)."""
    vector = A.space.memory.vector_of(A.space, vector, what)
    if vector.dtype != A.dtype:
        raise VectorError(
            f"{what} has type {vector.dtype}, the operator {A.dtype}: "
            f"convert it by .astype({A.dtype})"
        )
    contiguous: Vector = A.space.memory.xp.ascontiguousarray(vector)
    return contiguous
