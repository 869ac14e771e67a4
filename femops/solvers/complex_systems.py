"""Complex systems A x = b as real systems of twice as many unknowns, for the solvers.

Conjugate gradients and MINRES do the same on both, because A is Hermitian and all their factors are
real. GMRES does not: it has complex factors, in `ComplexAlgebra`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError, VectorError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator, as_pairs, from_pairs
from femops.operators.execution.vectors import checked_vector
from femops.parallel.comm import check
from femops.solvers.any_preconditioner import check_preconditioner, checked_product, multiplied
from femops.solvers.inner_products import Sums
from femops.solvers.jacobi import Jacobi
from femops.solvers.linear_problem import LinearProblem, Map, Solver
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.watch import Callback
from femops.spaces.memory import check_shape

Vector = NDArray[Any]


@final
class PairedPreconditioner(Preconditioner):
    """Preconditioner of complex vectors, for the same vectors as pairs of real numbers."""

    _given_as = "femops.jacobi(A), or femops.multigrid of a real operator on the same space"

    def __init__(self, M: Any, A: ComplexOperator, name: str) -> None:
        self._M, self._kind, self._complex, self._name = M, A.dtype, A.space, name
        self.symmetric = bool(getattr(M, "hermitian", getattr(M, "symmetric", True)))
        if isinstance(M, Jacobi):
            self.symmetric = M.dtype.kind != "c"
        super().__init__(A.real.dtype, A.real.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        product = multiplied(self._M, x.view(self._kind))
        with check(self.space.comm):  # a rank that raises alone would leave the others waiting
            found = checked_product(product, self._complex, self._name, self._kind)
            result.view(self._kind)[:] = found


@final
@dataclass(frozen=True)
class RealSystem:
    """System of real numbers that a solver solves, from a user's real or complex system."""

    A: Operator
    # b and x0 are (size,)
    b: Any
    x0: Any
    M: Any
    callback: Callback | None = None
    whole: ComplexOperator | None = None  # the user's complex operator

    @staticmethod
    def of(
        solver: Solver,
        A: Operator | ComplexOperator,
        b: Any,
        x0: Any,
        M: Any,
        callback: Callback | None = None,
    ) -> RealSystem:
        """Convert a user's system. A real one is not changed."""
        if not isinstance(A, ComplexOperator):
            return RealSystem(A, b, x0, M, callback)
        real, own = real_pair(solver, A, M)
        with check(A.space.comm):
            right, guess = right_and_guess(A, b, x0, many=solver == "cg")
        shown = None if callback is None else _of_complex(callback)
        return RealSystem(real, right, guess, own, shown, A)

    def solution(self, x: Vector) -> Vector:
        """Convert the solver's result for the user."""
        return x if self.whole is None else from_pairs(x)

    def algebra(self, problem: LinearProblem, precondition: Map | None) -> Algebra:
        """Return the operations of a Krylov method, on complex vectors if the system is complex."""
        if self.whole is None:
            return RealAlgebra(problem, precondition)
        return ComplexAlgebra(problem, precondition)


def real_pair(solver: Solver, A: Operator | ComplexOperator, M: Any) -> tuple[Operator, Any]:
    """Return the operator and the preconditioner of the real system. Collective."""
    if not isinstance(A, ComplexOperator):
        return A, M
    if A.space is not A.test_space:
        raise SolverError(f"{A!r} goes from one space to another: its system has no solution")
    if solver != "gmres" and not A.hermitian:
        raise SolverError(
            f"{A!r} is not Hermitian: {solver} needs that, femops.gmres takes any operator"
        )
    with check(A.space.comm):
        return A.real, paired_preconditioner(M, A)


def right_and_guess(
    A: ComplexOperator, b: Any, x0: Any, *, many: bool = False
) -> tuple[Vector, Vector | None]:
    """Check and convert b and x0. With ``many``, they may have many columns."""
    columns = many and getattr(b, "ndim", 1) == 2
    if columns and x0 is not None and np.shape(x0) != np.shape(b):
        shapes = f"b has {np.shape(b)}, x0 {np.shape(x0)}"
        raise VectorError(f"{shapes}: give a column, and one of x0, for each problem")
    right = pairs_of(A, b, "b", columns=columns)
    return right, None if x0 is None else pairs_of(A, x0, "x0", columns=columns)


def pairs_of(A: ComplexOperator, vector: Any, what: str, *, columns: bool = False) -> Vector:
    """Check a user's complex vector (size,), or many in ``columns`` of an array, and convert."""
    if columns:
        pairs = [pairs_of(A, vector[:, j].copy(), what) for j in range(vector.shape[1])]
        return A.space.memory.xp.stack(pairs, axis=1) if pairs else np.empty((A.shape[0], 0))
    if hasattr(vector, "dtype") and getattr(vector, "ndim", 0) == 1:
        vector = check_shape(A.space, vector, what)
        if vector.dtype == A.dtype:  # SciPy's solvers take any layout, too
            vector = A.space.memory.xp.ascontiguousarray(vector)
    return as_pairs(checked_vector(A.space, A.dtype, vector, what))


def _of_complex(callback: Callback) -> Callback:
    """Callback for iterates of real numbers that passes complex ones."""

    @functools.wraps(callback)
    def shown(x: Vector) -> Any:
        return callback(from_pairs(x))

    return shown


def paired_preconditioner(M: Any, A: ComplexOperator, name: str = "M") -> Any:
    """Preconditioner of the real system. One that was made for it is not changed."""
    if M is None or (isinstance(M, Preconditioner) and M.has_size_of(A.real.space)):
        return M
    check_preconditioner(M, A.space, A.dtype, name)
    if isinstance(M, Jacobi) and M.dtype.kind != "c":
        return Jacobi(A.space.memory.xp.repeat(M.inverse, 2), A.real.space)
    return PairedPreconditioner(M, A, name)


class Algebra(ABC):
    """Operations of GMRES on vectors of real or of complex numbers."""

    kind: np.dtype[Any]  # type of the coefficients: float64 or complex128

    def __init__(self, problem: LinearProblem, precondition: Map | None) -> None:
        self.sums: Sums = problem.sums
        self.plain = precondition is None
        self._A, self._precondition = problem.A, precondition

    @abstractmethod
    def vector(self, x: Vector) -> Vector:
        """Vector of this algebra from one of real numbers; a view."""

    @abstractmethod
    def reals(self, x: Vector) -> Vector:
        """Real numbers of a vector; a view."""

    @abstractmethod
    def dots(self, rows: Vector, b: Vector) -> Vector:
        """Inner products (k,) of the rows (k, size), conjugated, with b. Collective."""

    @abstractmethod
    def combined(self, weights: Vector, rows: Vector) -> Vector:
        """Linear combination (size,) of the rows (k, size) with the weights (k,)."""

    def product(self, x: Vector) -> Vector:
        """The product A x."""
        return self.vector(self._A.apply(self.reals(x)))

    def precondition(self, x: Vector) -> Vector:
        """The product M x; x itself without a preconditioner."""
        return x if self._precondition is None else self.vector(self._precondition(self.reals(x)))

    def norm(self, a: Vector) -> float:
        """Euclidean norm. Collective."""
        return self.sums.norm(self.reals(a))


@final
class RealAlgebra(Algebra):
    """Operations of GMRES on vectors of real numbers."""

    kind = np.dtype(np.float64)

    def vector(self, x: Vector) -> Vector:
        return x

    def reals(self, x: Vector) -> Vector:
        return x

    def dots(self, rows: Vector, b: Vector) -> Vector:
        return self.sums.dots(rows, b)

    def combined(self, weights: Vector, rows: Vector) -> Vector:
        return self.sums.combined(weights, rows)


@final
class ComplexAlgebra(Algebra):
    """Operations of GMRES on complex vectors."""

    kind = np.dtype(np.complex128)

    def vector(self, x: Vector) -> Vector:
        return x.view(np.result_type(x.dtype, np.complex64))

    def reals(self, x: Vector) -> Vector:
        return x.view(np.finfo(x.dtype).dtype)

    def dots(self, rows: Vector, b: Vector) -> Vector:
        """See `Algebra.dots`. Real sums, which are the same on any number of ranks, make these."""
        given = self.reals(rows)
        real, imaginary = (self.sums.dots(given, self.reals(part)) for part in (b, -1j * b))
        return np.asarray(real + 1j * imaginary)

    def combined(self, weights: Vector, rows: Vector) -> Vector:
        given = self.reals(rows)
        parts = [self.vector(self.sums.combined(w, given)) for w in (weights.real, weights.imag)]
        result: Vector = parts[0] + 1j * parts[1]
        return result
