"""Multivectors: many vectors of a space, stored in panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from numbers import Number
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.sparse.linalg import LinearOperator

from femops.errors import VectorError
from femops.fields.panels import (
    check_type,
    combine,
    count,
    is_number,
    panel_width,
    rows_of,
    set_rows,
    small_matrix,
    type_with,
    used,
)
from femops.fields.reproducible import group_edges, group_totals, random_columns, rows_times
from femops.spaces.base import Space
from femops.spaces.memory import Memory, check_layout
from femops.spaces.product import Product
from femops_common.arguments import Count, checked, shown

Chosen = int | range | NDArray[np.int64]
"""Number of one vector, or numbers of several vectors. All numbers are >= 0."""


def chosen_vectors(which: Any, nvec: int) -> Chosen:
    """Convert an index to the numbers of the chosen vectors. NumPy's rules for columns apply.

    Shapes: `which` (n,).
    """
    try:
        if isinstance(which, slice):
            return range(nvec)[which]
        index = np.asarray(which)
        if index.shape == (0,):
            index = index.astype(np.int64)
        numbers = index.dtype.kind in "iu" and index.ndim <= 1
        mask = index.dtype == bool and index.ndim == 1
        if not isinstance(which, tuple) and (numbers or mask):
            chosen: Any = np.arange(nvec)[index]
            return int(chosen) if index.ndim == 0 else chosen
    except (IndexError, TypeError, ValueError) as error:
        raise VectorError(f"there are {nvec} vectors: {error}") from error
    raise VectorError(
        f"{shown(which)} is no index of {nvec} vectors: give a number, a range, or a list of "
        "numbers or of bools"
    )


def values_for(values: Any, shape: tuple[int, ...], kind: np.dtype[Any], memory: Memory) -> Any:
    """Return ``values`` unchanged, after a check that they can be assigned to vectors."""
    given = np.asarray(values) if isinstance(values, Number) else values
    got, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    numbers = isinstance(dtype, np.dtype) and dtype.kind in "biufc"
    if got not in ((), shape) or not numbers:
        many = f"{shape[1]} vectors" if len(shape) == 2 else "a vector"
        what = f"an array of shape {got} and type {dtype}" if got else shown(values)
        raise VectorError(
            f"{many} of {shape[0]} entries cannot be set to {what}: give a number, or numbers of "
            f"shape {shape}"
        )
    if given.dtype.kind == "c" and kind.kind != "c":
        raise VectorError(
            f"vectors of type {kind} cannot be set to complex numbers: make them of complex128, or "
            "give the real parts"
        )
    if not isinstance(values, Number):
        memory.adopt(getattr(values, "panels", values), "values")
    return values


def value_of(values: Any, k: int) -> Any:
    """Value for the k-th chosen vector: column k of ``values``, or the single value."""
    if len(getattr(values, "shape", ())) < 2:
        return values
    return values[k] if hasattr(values, "panels") else values[:, k]


Array = NDArray[Any]

# Round-off of a Gram matrix with ones on the diagonal is about the machine's precision times its
# size. Eigenvalues below this multiple of the round-off count as zero.
_ROUND_OFF = 100.0
GOOD = 100.0
"""Condition number of a Gram matrix below which one round makes vectors orthonormal."""


def scaled(gram: Array) -> tuple[Array, Array]:
    """Scale a Gram matrix to ones on the diagonal. Return it, and the factors (nvec,).

    Rows and columns are multiplied by the factors. Rows of zero vectors stay zero.
    """
    if not np.isfinite(gram).all():
        raise VectorError("inner products of the vectors are not finite: look where they come from")
    diagonal = gram.diagonal().real
    if (diagonal < 0.0).any():
        raise VectorError("the mass is found not to be positive definite")
    factors = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0.0)
    return factors[:, np.newaxis] * ((gram + gram.conj().T) / 2) * factors, factors


def orthonormalising(gram: Array, eps: float) -> tuple[Array, int, float]:
    """Matrix (nvec, nvec) that makes vectors with this Gram matrix orthonormal.

    Shapes: `gram` (nvec, nvec), `matrix` (nvec, nvec).
    """
    small, factors = scaled(gram)
    least = _ROUND_OFF * len(gram) * eps
    try:
        upper = cholesky(small)
        pivots = np.abs(upper.diagonal())
        condition = float((pivots.max() / pivots.min()) ** 2)
        if condition * least < 1.0:
            inverse = solve_triangular(upper, np.eye(len(gram)))
            return factors[:, np.newaxis] * inverse, 0, condition
    except LinAlgError:
        pass
    values, vectors = np.linalg.eigh(small)
    if values[0] < -np.sqrt(least) * values[-1]:
        raise VectorError("the mass is found not to be positive definite")
    kept = values > least * values[-1]
    count = int(np.count_nonzero(kept))
    matrix = np.zeros_like(vectors)
    matrix[:, :count] = vectors[:, kept] / np.sqrt(values[kept])
    return factors[:, np.newaxis] * matrix, len(gram) - count, np.inf


# Bytes of the rows in one block of a product with a matrix: half of a second-level cache.
_BLOCK_BYTES = 2**19
# Most rounds of orthonormalisation: Cholesky's factor, and random directions if some are missing.
_ROUNDS = 6


@final
@checked(VectorError)
class MultiVector:
    """Many vectors of a space, stored in panels. The columns of a panel are vectors.

    ``A @ X`` applies an operator to all vectors at once. Inner products and norms sum the entries
    of all ranks that hold the space.

    Parameters
    ----------
    space : Space or Product
    panels : (npanels, space.size, width) array
        C-contiguous, in the memory of the space's vectors; float64, float32, or complex of either.
        Not copied.
    nvec : int, optional
        Number of vectors, if the last panel has spare columns. Spare columns must be zero, and stay
        zero. Only operators work on them.

    Attributes
    ----------
    space : Space or Product
    panels : (npanels, space.size, width) array
    nvec : int

    Raises
    ------
    VectorError
        If the array has another shape, type or memory, or spare columns are not zero.

    Examples
    --------
    >>> import femops
    >>> import numpy as np
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> X = femops.MultiVector.random(V, 12)
    >>> X.panels.shape, X.nvec
    ((1, 25, 16), 12)
    >>> A = femops.diffusion(V) + femops.mass(V)
    >>> np.allclose((A @ X)[3], A @ X[3])
    True
    >>> X.orthonormalise(A)
    >>> np.allclose(X.gram(A @ X), np.eye(12))
    True
    """

    __array_ufunc__ = None  # NumPy's arrays leave arithmetic to this class

    def __init__(self, space: Space | Product, panels: Array, nvec: int | None = None) -> None:
        panels = space.memory.adopt(panels, "panels")
        shape: Any = getattr(panels, "shape", ())
        fits = isinstance(shape, tuple) and len(shape) == 3 and shape[1] == space.size
        if not fits or not shape[0] * shape[2]:
            raise VectorError(
                f"panels have shape {shape}, vectors of the space need (npanels, {space.size}, "
                "width): make them with MultiVector.zeros(V, nvec) or from_columns(V, X)"
            )
        check_type(panels.dtype)
        check_layout(panels, "the array panels")
        most, self.space, self.panels = shape[0] * shape[2], space, panels
        self.nvec = most if nvec is None else nvec
        if not most - shape[2] < self.nvec <= most:
            raise VectorError(
                f"nvec = {nvec} vectors are not what {shape[0]} panels of {shape[2]} hold: give "
                f"{most - shape[2] + 1} to {most}"
            )
        last = self.nvec - (most - shape[2])
        if last < shape[2] and bool(panels[-1, :, last:].any()):
            raise VectorError("columns behind the last vector are not zero: set them to zero")

    # --- making ----------------------------------------------------------------------------------

    @classmethod
    @checked(VectorError)
    def zeros(
        cls,
        space: Space | Product,
        nvec: int,
        dtype: DTypeLike = np.float64,
        width: int | None = None,
    ) -> MultiVector:
        """Make a multivector of ``nvec`` zero vectors of a space.

        Parameters
        ----------
        space : Space or Product
        nvec : int
            Number of vectors, at least 1.
        dtype : dtype
            float64, float32, or complex of either.
        width : int, optional
            Columns of a panel. The default suits the kernels best, see `panel_width`.

        Raises
        ------
        VectorError
            If ``nvec`` is 0, the type is not supported, or memory is too small.
        """
        kind = check_type(dtype)
        nvec = count(nvec, "nvec")
        width = panel_width(nvec, kind) if width is None else count(width, "width")
        shape = (-(-nvec // width), space.size, width)
        needed = shape[0] * shape[1] * width * kind.itemsize
        free = space.memory.free_bytes()
        if needed > free:
            raise VectorError(
                f"{nvec} vectors of {space.size} entries need {needed / 2**30:.1f} GiB and "
                f"{free / 2**30:.1f} GiB are free: take fewer, or float32"
            )
        return cls(space, space.memory.panels(shape, kind), nvec)

    @classmethod
    @checked(VectorError)
    def random(
        cls,
        space: Space | Product,
        nvec: int,
        dtype: DTypeLike = np.float64,
        width: int | None = None,
        seed: Count = 0,
    ) -> MultiVector:
        """Return vectors of independent normal random numbers; on a reproducible mesh uniform ones.

        Raises
        ------
        VectorError
            See `zeros`.
        """
        result = cls.zeros(space, nvec, dtype, width)
        random_columns(result, range(result.nvec), seed)
        return result

    @classmethod
    @checked(VectorError)
    def from_columns(
        cls, space: Space | Product, columns: Array, width: int | None = None
    ) -> MultiVector:
        """Copy the columns (space.size, nvec) of an array to a new MultiVector.

        Raises
        ------
        VectorError
            If the array has another shape, type or memory.
        """
        given = space.memory.adopt(columns, "columns")
        shape: Any = getattr(given, "shape", ())
        if not isinstance(shape, tuple) or len(shape) != 2 or shape[0] != space.size:
            need = f"vectors of the space need ({space.size}, nvec)"
            raise VectorError(f"columns have shape {shape}, {need}")
        result = cls.zeros(space, given.shape[1], given.dtype, width)
        result[:] = given
        return result

    def empty_like(self, space: Space | Product | None = None) -> MultiVector:
        """Return new zero vectors of this space or another, with the same number and type."""
        space = self.space if space is None else space
        return MultiVector.zeros(space, self.nvec, self.dtype, self.width)

    def copy(self) -> MultiVector:
        """Return a copy of all vectors."""
        result = self.empty_like()
        for target, source in zip(*(used(x.panels, x.nvec) for x in (result, self)), strict=True):
            target[...] = source
        return result

    # --- properties ------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        kind: np.dtype[Any] = self.panels.dtype
        return kind

    @property
    def npanels(self) -> int:
        """Number of panels."""
        return int(self.panels.shape[0])

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return int(self.panels.shape[2])

    @property
    def shape(self) -> tuple[int, int]:
        """Length of a vector, and number of vectors."""
        return int(self.panels.shape[1]), self.nvec

    def __len__(self) -> int:
        return self.nvec

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Raise: NumPy would stack the vectors as rows, and they are columns."""
        raise VectorError("a MultiVector is no array: write X.columns(), or X[i] for a vector")

    def __repr__(self) -> str:
        panels = f"{self.npanels} x {self.width}"
        return f"MultiVector({self.nvec} vectors of {self.shape[0]}, {self.dtype}, {panels})"

    def columns(self) -> Array:
        """Return the vectors as columns (size, nvec). A view if there is one panel, else a copy."""
        return self._rows(slice(None))

    # --- parts -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Array]:
        return (self._vector(i) for i in range(self.nvec))

    def _vector(self, i: int) -> Array:
        return self.panels[i // self.width, :, i % self.width]

    def __getitem__(self, which: Any) -> Any:
        """Return a view of one vector, or a `MultiVector` of several vectors.

        A range gives a view if it begins with a panel, and ends with a panel or the last vector.
        Other ranges, lists and masks give copies.
        """
        chosen = chosen_vectors(which, self.nvec)
        if isinstance(chosen, int):
            return self._vector(chosen)
        if not len(chosen):
            raise VectorError("no vector is chosen: a MultiVector has one or more")
        first, last, width = int(chosen[0]), int(chosen[-1]), self.width
        ends = (last + 1) % width == 0 or last + 1 == self.nvec
        if isinstance(chosen, range) and chosen.step == 1 and first % width == 0 and ends:
            return MultiVector(
                self.space, self.panels[first // width : last // width + 1], last + 1 - first
            )
        result = MultiVector.zeros(self.space, len(chosen), self.dtype)
        for target, source in enumerate(chosen):
            result._vector(target)[:] = self._vector(source)
        return result

    def __setitem__(self, which: Any, values: Any) -> None:
        """Overwrite vectors by a number, an array (size,) or (size, n), or a `MultiVector`.

        Values that share memory with the vectors are copied first, so the result is as in NumPy.
        """
        chosen = chosen_vectors(which, self.nvec)
        shape = self.shape[:1] if isinstance(chosen, int) else (self.shape[0], len(chosen))
        given = self._apart(values_for(values, shape, self.dtype, self.space.memory))
        every = isinstance(chosen, range) and chosen == range(self.nvec)
        if every and getattr(given, "ndim", 0) == 2:
            set_rows(self.panels, slice(None), given)
            return
        for k, i in enumerate([chosen] if isinstance(chosen, int) else chosen):
            self._vector(i)[:] = value_of(given, k)

    def _apart(self, values: Any) -> Any:
        """Return ``values``, or a copy if they share memory with these vectors."""
        array = values.panels if isinstance(values, MultiVector) else values
        if isinstance(array, Number) or not self.space.memory.overlap(self.panels, array):
            return values
        return values.copy()

    # --- arithmetic ------------------------------------------------------------------------------

    def _like(self, other: Any) -> Array:
        """Return the panels of ``other``, which must have the same space, number and width."""
        if not isinstance(other, MultiVector):
            raise VectorError(f"{shown(other)} is added: give a MultiVector of the same space")
        same = other.panels.shape == self.panels.shape and other.nvec == self.nvec
        if not same or other.space is not self.space:
            raise VectorError(
                f"{other!r} is not of the same space, number and width of panels as {self!r}"
            )
        return other.panels

    def _made(self, work: str, other: Any) -> MultiVector:
        """Return new vectors: the NumPy function named ``work`` of these and ``other``."""
        made = MultiVector.zeros(self.space, self.nvec, type_with(self.dtype, other), self.width)
        combine(self.space.memory.xp, work, self.panels, other, made.panels, self.nvec)
        return made

    def _overwritten(self, work: str, other: Any) -> MultiVector:
        """Overwrite these vectors with the result of `_made`."""
        if type_with(self.dtype, other).kind == "c" and self.dtype.kind != "c":
            raise VectorError(
                f"{self!r} is real and cannot be overwritten by complex numbers: write X = X + Y "
                "or X = X * z, which makes new vectors"
            )
        given = other if other is self.panels else self._apart(other)
        combine(self.space.memory.xp, work, self.panels, given, self.panels, self.nvec)
        return self

    def __add__(self, other: Any) -> MultiVector:
        return self._made("add", self._like(other))

    def __sub__(self, other: Any) -> MultiVector:
        return self._made("subtract", self._like(other))

    def __neg__(self) -> MultiVector:
        return self._made("multiply", -1)

    def __mul__(self, factor: Any) -> MultiVector:
        return self._made("multiply", factor) if is_number(factor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> MultiVector:
        return self._made("divide", factor) if is_number(factor) else NotImplemented

    def __iadd__(self, other: Any) -> MultiVector:  # noqa: PYI034  (the class is final)
        return self._overwritten("add", self._like(other))

    def __isub__(self, other: Any) -> MultiVector:  # noqa: PYI034
        return self._overwritten("subtract", self._like(other))

    def __imul__(self, factor: Any) -> MultiVector:  # noqa: PYI034
        return self._overwritten("multiply", factor) if is_number(factor) else NotImplemented

    def __itruediv__(self, factor: Any) -> MultiVector:  # noqa: PYI034
        return self._overwritten("divide", factor) if is_number(factor) else NotImplemented

    # --- products with small matrices ------------------------------------------------------------

    def row_blocks(self, *others: MultiVector) -> Iterator[slice]:
        """Ranges of rows that fit in cache, or the element groups of a reproducible mesh."""
        if self.space.any_width:
            return (slice(a, b) for a, b in pairwise(group_edges(self.space).tolist()) if a < b)
        most = max(x.npanels * x.width * x.dtype.itemsize for x in (self, *others))
        rows = self.shape[0]
        step = max(1, _BLOCK_BYTES // most) if self.space.memory.scipy else rows
        return (slice(a, min(a + step, rows)) for a in range(0, rows, max(step, 1)))

    def _rows(self, rows: slice) -> Array:
        return rows_of(self.panels, self.nvec, rows)

    @checked(VectorError)
    def gram(self, other: MultiVector | None = None) -> Array:
        """Compute the inner products X^H Y (nvec, Y.nvec) in double precision. Collective.

        Without ``other``, Y is X. One reduction sums all entries over the ranks.

        Raises
        ------
        VectorError
            If the vectors are of another space.
        """
        return self._gram(other, lambda rows, there: there._rows(rows))

    def mass_gram(self, mass: Any) -> Array:
        """Compute the matrix X^H M X (nvec, nvec); see `orthonormalise` for M. Collective."""
        if mass is None or isinstance(mass, LinearOperator):
            return self.gram(None if mass is None else mass @ self)
        n = self.space.size
        if getattr(mass, "shape", None) != (n,):
            raise VectorError(f"mass is {mass!r:.60}: give an operator or ({n},) numbers")
        weights = self.space.memory.adopt(mass, "mass")
        return self._gram(None, lambda rows, x: x._rows(rows) * weights[rows, np.newaxis])

    def _gram(
        self, other: MultiVector | None, right: Callable[[slice, MultiVector], Array]
    ) -> Array:
        second = self if other is None else other
        if second.space is not self.space:
            raise VectorError(f"{second!r} is not of the space of {self!r}")
        xp, wide = self.space.memory.xp, np.result_type(self.dtype, second.dtype, np.float64)
        if self.space.any_width:
            parts = (self._rows(r).conj().T @ right(r, second) for r in self.row_blocks(second))
            return group_totals(self.space, parts, (self.nvec, second.nvec), wide)
        total = xp.zeros((self.nvec, second.nvec), wide)
        for rows in self.row_blocks(second):
            left = self._rows(rows)
            total += left.conj().T @ right(rows, second)
        summed = self.space.comm.sum(self.space.memory.get(total).view(np.float64))
        return np.asarray(summed).view(wide)

    def __matmul__(self, matrix: ArrayLike) -> MultiVector:
        """Return X Q: m linear combinations of the vectors, by a small matrix Q (nvec, m)."""
        small = small_matrix(matrix, self.nvec)
        kind = np.result_type(self.dtype, np.complex64) if small.dtype.kind == "c" else self.dtype
        return self._times(small, MultiVector.zeros(self.space, small.shape[1], kind))

    def __imatmul__(self, matrix: ArrayLike) -> MultiVector:  # noqa: PYI034
        """Overwrite X by X Q, with a square matrix Q (nvec, nvec)."""
        small = small_matrix(matrix, self.nvec)
        if small.shape[1] != self.nvec or (small.dtype.kind == "c") > (self.dtype.kind == "c"):
            factor = f"a matrix {small.shape} of type {small.dtype}"
            raise VectorError(f"{self!r} cannot be overwritten by X times {factor}: write X @ Q")
        return self._times(small, self)

    def _times(self, small: Array, result: MultiVector) -> MultiVector:
        """Overwrite ``result`` by X Q, block by block of rows. It may be X itself."""
        factors = self.space.memory.put(small.astype(result.dtype))
        for rows in self.row_blocks(result):
            set_rows(result.panels, rows, rows_times(self.space, self._rows(rows), factors))
        return result

    # --- inner products of pairs -----------------------------------------------------------------

    def dots(self, other: MultiVector) -> Array:
        """Inner products (nvec,) of vector i and vector i of ``other``. Collective."""
        return self._pairs(self._like(other))

    def norms(self) -> NDArray[np.float64]:
        """Euclidean norms (nvec,) of the vectors. Collective."""
        return np.asarray(np.sqrt(self._pairs(self.panels).real))

    def _pairs(self, other: Array) -> Array:
        wide = np.result_type(self.dtype, other.dtype, np.float64)
        if self.space.any_width:
            blocks = ((self.panels[:, rows], other[:, rows]) for rows in self.row_blocks())
            parts = ((a.conj() * b).sum(axis=1, dtype=wide) for a, b in blocks)
            sums = group_totals(self.space, parts, (self.npanels, self.width), wide)
            return sums.reshape(-1)[: self.nvec]
        found = [
            np.einsum("ij,ij->j", mine.conj(), theirs, dtype=wide)
            if self.space.memory.scipy
            else (mine.conj() * theirs).astype(wide).sum(axis=0)
            for mine, theirs in zip(self.panels, other, strict=True)
        ]
        values = np.concatenate([self.space.memory.get(row) for row in found])[: self.nvec]
        return np.asarray(self.space.comm.sum(values.view(np.float64))).view(wide)

    @checked(VectorError)
    def orthonormalise(self, mass: Any = None, seed: Count = 0, free: Array | None = None) -> None:
        """Overwrite the vectors by an M-orthonormal basis of their span: X^H M X = 1. Collective.

        The method is Cholesky's factorisation of the Gram matrix, repeated until the vectors are
        orthonormal. If vectors are linearly dependent, random directions replace missing vectors.

        Parameters
        ----------
        mass : operator, (size,) array or None
            M, symmetric and positive definite. An array is the diagonal of M, None the identity.
        seed : int
            Seed of the random numbers.
        free : (size,) bool or numbers, optional
            Standard deviations of the random numbers. Zero leaves an entry zero. The default is 1.

        Raises
        ------
        VectorError
            If M is not a mass, is not positive definite, or there are too many vectors.
        """
        eps = float(np.finfo(self.dtype).eps)
        if getattr(mass, "shape", None) == (self.shape[0],):
            mass = self._apart(self.space.memory.adopt(mass, "mass"))
        for attempt in range(_ROUNDS):
            matrix, missing, condition = orthonormalising(self.mass_gram(mass), eps)
            self @= matrix
            if missing:
                random_columns(self, range(self.nvec - missing, self.nvec), seed + attempt, free)
            elif condition <= GOOD:
                return
        raise VectorError(
            f"{self.nvec} vectors of a space of {self.space.global_size} dofs stay linearly "
            "dependent: take fewer"
        )
