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
from femops.solvers.null_space import NullSpace, null_space_of
from femops.solvers.preconditioner import Preconditioner
from femops.solvers.singular import rigid_motions
from femops.spaces.product import Product
from femops_common.arguments import checked

Vector = NDArray[Any]
Ints = NDArray[np.int64]
# Pivots stay on the diagonal if they have this part of their column. So the order of elimination
# is that of a symmetric pattern, with a half to a seventh of the work.
_PIVOT = 0.01
_EXACT = 1e-6  # relative residual of a solve above which factors are of no use
# Rounds of scaling, each of which halves the exponents. With few of them, factors of saddle points
# pivot so much that they take many times as long.
_SCALINGS = 10
_EXTRA = 0, 4, 16, 48  # vectors of unknown shape that are looked for in a singular matrix
_SINGULAR = "the matrix of A is singular, and has no factors: "
_UNKNOWN = (
    "it takes more than constants and rigid motions to zero. Are conditions or a coefficient "
    "missing, or is a pair of spaces not stable (take the pressure of lower order)?"
)


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
        comm, memory = A.space.comm, A.space.memory
        matrix = gathered_rows(comm, csr_array(A.assemble(), dtype=np.float64))
        self._at = gathered(comm, _own_columns(A))
        own = comm.gather_all(np.array([A.space.size]), alike=True)[:, 0]
        self._first = int(own[: comm.rank].sum())
        whole = [(name, gathered(comm, memory.get(v))) for name, v in rigid_motions(A)]
        motions = [(name, self._columns(v.astype(np.float64))) for name, v in whole]
        rows, columns = A.constraints.rows, A.constraints.columns
        eliminated = not A.constraints.identity and np.array_equal(rows, columns)
        rows = gathered(comm, self._first + rows[: None if eliminated else 0])
        self._held = self._at[rows]  # rows and columns that are zero
        with check(comm):  # a rank may be short of memory
            self._factor(self._square(matrix), motions)
        self._exact()

    def _columns(self, x: Vector) -> Vector:
        """Entries of a gathered vector (n,) in the order of the matrix's columns."""
        found = np.empty_like(x)
        found[self._at] = x
        return found

    def _square(self, matrix: csr_array) -> csr_array:
        """The matrix with rows in the order of its columns, and ones for eliminated dofs."""
        n = matrix.shape[0]
        square = matrix[self._columns(np.arange(n))]
        square.eliminate_zeros()
        if len(self._held):
            ones = np.ones(len(self._held))
            square = csr_array(square + csr_array((ones, (self._held, self._held)), shape=(n, n)))
        counts = np.diff(square.indptr), np.bincount(square.indices, minlength=n)
        for side, count in zip(("row", "column"), counts, strict=True):
            if not count.all():
                zero = int((count == 0).sum())
                raise SolverError(f"{_SINGULAR}{zero} {side}s are zero{self._why(side)}")
        return square

    def _why(self, side: str) -> str:
        """End of a message about zero rows or columns: a field without an equation."""
        W, pairs, place = self.space, getattr(self.operator, "pairs", []), int(side == "column")
        names = W.names if isinstance(W, Product) else ()
        without = [name for name in names if all(pair[place] != name for pair in pairs)]
        if not without:
            return ". Is a coefficient zero?"
        if all(without[0] not in pair for pair in pairs):
            return f", as no equation has {without[0]!r}"
        if side == "row":
            return f", as {without[0]!r} has no equation: nothing multiplies its test function"
        return f", as no equation has {without[0]!r}"

    def _factor(self, A: csr_array, motions: list[tuple[str, Vector]]) -> None:
        """Factor the matrix, bordered by the vectors that A and its transpose take to zero.

        Rows and columns are scaled by powers of two, so that units do not matter.
        """
        self._scales = rows, columns = _scales(A, self._fields())
        A = csr_array(A.multiply(rows[:, np.newaxis]).multiply(columns))
        scaled = [(name, v / columns) for name, v in motions]
        null = null_space_of(A, scaled, float(np.finfo(self.dtype).eps))
        right = left = null.vectors
        factors = _factored(A, left, right)
        if (not self.symmetric and right.size) or factors is None or null.leaves(A, factors):
            null, left = self._all_of(A, null)
            right = null.vectors
            factors = _factored(A, left, right)
        if factors is None:
            raise SolverError(_SINGULAR + _UNKNOWN)
        self._factors, self.null = factors, null.names
        # orthonormal vectors (n, k) that the transpose and the matrix take to zero, unscaled
        self._ends = tuple(
            np.linalg.qr(v * scale[:, np.newaxis] / scale.max(initial=1.0))[0]
            for v, scale in ((left, rows), (right, columns))
        )
        self.stored_bytes = 12 * int(factors.nnz)

    def _all_of(self, A: csr_array, known: NullSpace) -> tuple[NullSpace, Vector]:
        """Return the null space of A, known or not, and that of its transpose, (n, k)."""
        rng, n = np.random.default_rng(0), A.shape[0]
        for extra in _EXTRA[: 1 + int(np.searchsorted(_EXTRA, n // 2))]:
            border = np.hstack([known.vectors, rng.standard_normal((n, extra)) / np.sqrt(n)])
            k = border.shape[1]
            factors = _factored(A, border, border) if k else None
            if factors is None:
                continue
            ends = np.vstack([np.zeros((n, k)), np.eye(k)])
            right, left = (
                known.within(B, factors.solve(ends, which)) for B, which in ((A, "N"), (A.T, "T"))
            )
            complete = right.shape[1] < k or not extra
            if complete and right.shape[1] == left.shape[1] >= known.vectors.shape[1]:
                found = known.with_others(right, self._fields())
                if not found.leaves(A, _factored(A, left, right)):
                    return found, left
        raise SolverError(_SINGULAR + _UNKNOWN)

    def _fields(self) -> dict[str, slice]:
        """Columns of the matrix that belong to each field of a product."""
        if not isinstance(self.space, Product):
            return {}
        sizes = [V.global_size for V in self.space.spaces.values()]
        ends = [*accumulate(sizes, initial=0)]
        return dict(zip(self.space.names, map(slice, ends, ends[1:]), strict=False))

    def _exact(self) -> None:
        """Raise if a solve leaves a residual, in the scaled equations. Collective."""
        A, rng, memory = self.operator, np.random.default_rng(1), self.space.memory
        own = self._at[self._first : self._first + A.space.size]
        rows, columns = (scale[own] for scale in self._scales)
        with np.errstate(over="ignore", invalid="ignore"):
            x = (columns * rng.standard_normal(len(own))).astype(A.dtype)
            right = A.apply(memory.put(x))
            rest = memory.get(A.apply(self.apply(right)) - right)
            both = [rows * part for part in (rest, memory.get(right))]
            sizes = A.space.comm.sum(np.array([part @ part for part in both]))
        if not sizes[0] <= _EXACT**2 * sizes[1]:
            raise SolverError(_SINGULAR + _UNKNOWN)

    def __reduce__(self) -> tuple[Any, ...]:
        """Factor again for copies and pickles."""
        return Direct, (self.operator,)

    def _apply(self, x: Vector, result: Vector) -> None:
        self._solve(x, result, "N")

    def _solve(self, x: Vector, result: Vector, which: str) -> None:
        space, n, turn = self.space, len(self._at), 1 if which == "N" else -1
        (before, after), (left, right) = self._scales[::turn], self._ends[::turn]
        b = self._columns(gathered(space.comm, space.memory.get(x)).astype(np.float64))
        b[self._held] = 0.0
        b -= left @ (left.T @ b)
        whole = np.zeros(self._factors.shape[0])
        whole[:n] = before * b
        found = after * self._factors.solve(whole, which)[:n]
        found -= right @ (right.T @ found)
        own = found[self._at][self._first : self._first + space.size]
        result[:] = space.memory.put(own)

    def _adjoint(self) -> Preconditioner:
        return self if self.symmetric else _Transposed(self)

    def __repr__(self) -> str:
        found = f"<Direct preconditioner: factors of {len(self._at):,} unknowns"
        found += f", {self.stored_bytes / 2**20:.0f} MiB"
        return f"{found}{''.join(f', without {name}' for name in self.null)}>"


def _factored(A: csr_array, left: Vector, right: Vector) -> Any:
    """Factors of a matrix with borders (n, k). None if a pivot is zero."""
    bordered = A
    if left.shape[1]:
        bordered = block_array([[A, csr_array(left)], [csr_array(right.T), None]])
    try:
        return splu(
            csc_array(bordered),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=_PIVOT,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return None


def _scales(A: csr_array, fields: dict[str, slice]) -> tuple[Vector, Vector]:
    """Powers of two (n,), for rows and columns, with which all largest entries are near one.

    First the blocks of fields get largest entries of one size, as far as they can. Then rows and
    columns do, by the method of D. Ruiz, "A scaling algorithm to equilibrate both rows and columns
    norms in matrices", 2001. No row or column may be zero.
    """
    exponents, T = np.log2(abs(A.data)), csc_array(A)
    turned = np.log2(abs(T.data))
    rows, columns = np.zeros(A.shape[0]), np.zeros(A.shape[0])
    if len(fields) > 1:
        found = _field_scales(A, exponents, [*fields.values()])
        for at, row, column in zip(fields.values(), *found, strict=True):
            rows[at], columns[at] = row, column
    for _ in range(_SCALINGS):
        across = np.maximum.reduceat(exponents + columns[A.indices], A.indptr[:-1]) + rows
        down = np.maximum.reduceat(turned + rows[T.indices], T.indptr[:-1]) + columns
        rows, columns = rows - 0.5 * across, columns - 0.5 * down
    return np.exp2(np.round(rows)), np.exp2(np.round(columns))


def _field_scales(A: csr_array, exponents: Vector, fields: list[slice]) -> tuple[Vector, Vector]:
    """Exponents (fields,) of scales with which blocks are alike, by least squares.

    Rows with one entry, which are those of constrained dofs, do not count.
    """
    count, ends = len(fields), [at.stop for at in fields]
    of_row = np.repeat(np.searchsorted(ends, np.arange(A.shape[0]), "right"), np.diff(A.indptr))
    block = count * of_row + np.searchsorted(ends, A.indices, "right")
    largest = np.full(count * count, -np.inf)
    coupled = np.repeat(np.diff(A.indptr) > 1, np.diff(A.indptr))
    np.maximum.at(largest, block[coupled], exponents[coupled])
    there = np.flatnonzero(np.isfinite(largest))
    sides = np.zeros((len(there), 2 * count))
    sides[np.arange(len(there)), there // count] = 1.0
    sides[np.arange(len(there)), count + there % count] = 1.0
    found = np.linalg.lstsq(sides, -largest[there])[0]
    return found[:count], found[count:]


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


@checked(SolverError)
def direct(A: Operator, /) -> Direct:
    """Factors of the matrix of an operator, as a preconditioner that solves exactly.

    The matrix is assembled and factored by SciPy's SuperLU, in float64. So a solver needs one or
    two iterations. Factors of 2-D problems take little time up to some 100,000 unknowns, those of
    3-D problems up to some 10,000. For larger ones see `femops.preconditioner`.

    If A takes vectors to zero, as it takes constants of the pressure where the velocity is given on
    the whole boundary, the factors solve for the other unknowns: the result is the solution without
    a part along these vectors, of a right-hand side without its part that has no solution.
    ``M.null`` says what they are: constants and rigid motions, on which bodies; combinations of
    these of several fields; and up to 48 others, as the checkerboards of a pressure.

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
