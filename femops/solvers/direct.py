"""Factors of an assembled matrix as a preconditioner: an exact solve but for round-off."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, csc_array, csr_array
from scipy.sparse.linalg import splu

from femops.errors import SolverError
from femops.operators import Operator
from femops.parallel.comm import check, gathered
from femops.solvers.multigrid.coarse import gathered_rows
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.singular import null_vectors
from femops.spaces.product import Product
from femops_common.arguments import checked

Vector = NDArray[Any]
Ints = NDArray[np.int64]
# Pivots stay on the diagonal if they have this part of their column. So the order of elimination
# is that of a symmetric pattern, with a half to a seventh of the work.
_PIVOT = 0.01
_EXACT = 1e-6  # relative residual of a solve above which factors are of no use


@final
class Direct(Preconditioner):
    """Factors of the matrix of an operator. `direct` makes them.

    Attributes
    ----------
    operator : Operator
    null : tuple of str
        What the operator takes to zero, such as constants of a pressure: the solution has no part
        along it.
    stored_bytes : int
        Bytes of the factors, on each rank.
    """

    _given_as = "femops.direct(A)"

    def __init__(self, A: Operator) -> None:
        super().__init__(A.dtype, A.space)
        self.operator, self.symmetric = A, A.symmetric
        comm = A.space.comm
        matrix = gathered_rows(comm, csr_array(A.assemble(), dtype=np.float64))
        self._at = gathered(comm, _own_columns(A))
        own = comm.gather_all(np.array([A.space.size]), alike=True)[:, 0]
        self._first = int(own[: comm.rank].sum())
        right = null_vectors(A)
        self.null = tuple(dict.fromkeys(name for name, _ in right))
        left = right if A.symmetric or not right else null_vectors(A.T)
        borders = [
            [gathered(comm, A.space.memory.get(v).astype(np.float64)) for _, v in side]
            for side in (left, right)
        ]
        with check(comm):  # a rank may be short of memory
            self._factor(matrix, borders)
        self._exact(A)

    def _factor(self, matrix: csr_array, borders: list[list[Vector]]) -> None:
        """Factor the matrix, bordered by its left and right null vectors."""
        n = matrix.shape[0]
        if len(borders[0]) != len(borders[1]):
            raise SolverError(
                f"A takes {', '.join(self.null)} to zero, and its transpose does not: no solution "
                "is determined"
            )
        rows = np.empty(n, np.int64)
        rows[self._at] = np.arange(n)
        square = matrix[rows]
        if self.null:
            left, right = (csr_array(np.stack(side, axis=1)[rows]) for side in borders)
            square = block_array([[square, left], [right.T, None]])
        try:
            self._factors = splu(
                csc_array(square),
                permc_spec="MMD_AT_PLUS_A",
                diag_pivot_thresh=_PIVOT,
                options={"SymmetricMode": True},
            )
        except RuntimeError as error:
            raise SolverError(_singular(self.operator)) from error
        self.stored_bytes = 12 * int(self._factors.nnz)

    def _exact(self, A: Operator) -> None:
        """Raise if a solve leaves a residual. Collective."""
        rng, memory = np.random.default_rng(1), A.space.memory
        right = A.apply(memory.put(rng.standard_normal(A.space.size).astype(A.dtype)))
        rest = memory.get(A.apply(self.apply(right)) - right)
        sizes = A.space.comm.sum(np.array([rest @ rest, memory.get(right) @ memory.get(right)]))
        if not sizes[0] <= _EXACT**2 * sizes[1]:
            raise SolverError(_singular(A))

    def __reduce__(self) -> tuple[Any, ...]:
        """Factor again for copies and pickles."""
        return Direct, (self.operator,)

    def _apply(self, x: Vector, result: Vector) -> None:
        self._solve(x, result, "N")

    def _solve(self, x: Vector, result: Vector, which: str) -> None:
        space, n = self.space, len(self._at)
        right = np.zeros(self._factors.shape[0])
        right[self._at] = gathered(space.comm, space.memory.get(x))
        found = self._factors.solve(right, which)[:n][self._at]
        result[:] = space.memory.put(found[self._first : self._first + space.size])

    def _adjoint(self) -> Preconditioner:
        return self if self.symmetric else _Transposed(self)

    def __repr__(self) -> str:
        found = f"<Direct preconditioner: factors of {len(self._at):,} unknowns"
        found += f", {self.stored_bytes / 2**20:.0f} MiB"
        return f"{found}{''.join(f', without {name}' for name in self.null)}>"


@final
class _Transposed(Preconditioner):
    """Transpose of factors, which are shared."""

    _given_as = "the transpose of femops.direct(A)"
    symmetric = False

    def __init__(self, factors: Direct) -> None:
        self._factors = factors
        super().__init__(factors.dtype, factors.space)

    def _apply(self, x: Vector, result: Vector) -> None:
        self._factors._solve(x, result, "T")

    def _adjoint(self) -> Preconditioner:
        return self._factors


def _own_columns(A: Operator) -> Ints:
    """Columns of the assembled matrix (size,) that belong to a rank's rows."""
    W = A.space
    spaces = [*W.spaces.values()] if isinstance(W, Product) else [W]
    offsets = accumulate((V.global_size for V in spaces), initial=0)
    parts = [
        first + V.first_dof * V.ncomp + np.arange(V.size)
        for first, V in zip(offsets, spaces, strict=False)
    ]
    return np.concatenate(parts).astype(np.int64)


def _singular(A: Operator) -> str:
    """Message for a matrix without factors."""
    empty = (
        []
        if not isinstance(A.space, Product)
        else [name for name in A.space.names if not any(name in pair for pair in A.pairs)]
    )
    why = (
        f"no equation has {empty[0]!r}"
        if empty
        else "more than constants and rigid motions: are conditions or a coefficient missing, or "
        "is a pair of spaces not stable (take the pressure of lower order)?"
    )
    return f"the matrix of A is singular, and has no factors: {why}"


@checked(SolverError)
def direct(A: Operator, /) -> Direct:
    """Factors of the matrix of an operator, as a preconditioner that solves exactly.

    The matrix is assembled and factored by SciPy's SuperLU, in float64. So a solver needs one or
    two iterations. Factors of 2-D problems take little time up to some 100,000 unknowns, those of
    3-D problems up to some 10,000. For larger ones see `femops.preconditioner`.

    If A takes constants or rigid motions of a field to zero, as it takes constants of the pressure
    where the velocity is given on the whole boundary, the factors solve for the other unknowns.

    On ranks each rank has the whole matrix and its factors.

    Parameters
    ----------
    A : Operator
        Symmetric or not, positive or not.

    Returns
    -------
    Direct
        A SciPy ``LinearOperator``. It may be the M of `cg` (of a positive definite A), `minres` (of
        the same) and `gmres`.

    Raises
    ------
    SolverError
        The operator maps between two spaces, or its matrix is singular.
    OperatorError
        The matrix does not fit into memory.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((8, 8)), order=3)
    >>> A = femops.form(lambda u: {"value": u.grad[0], "grad": 0.01 * u.grad}, V)
    >>> A = A.constrained(V.boundary_dofs())
    >>> x, info = femops.gmres(A, A.rhs(femops.load(V, 1.0)), M=femops.direct(A), rtol=1e-10)
    >>> info.iterations
    1
    """
    if A.space is not A.test_space:
        raise SolverError(f"{A!r} goes from one space to another: it has no factors")
    return Direct(A)
