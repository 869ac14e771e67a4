"""Many vectors of a space, in panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Number
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import VectorError
from femops.fields.orthonormal import GOOD, orthonormalising
from femops.fields.panels import check_type, count, panel_width
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_meshes.arguments import Count, checked

Array = NDArray[Any]
# Bytes of the rows that products of matrices work on at a time: half of a second-level cache.
_BLOCK_BYTES = 2**19
# Of Cholesky's factors and random directions.
_ROUNDS = 6


@final
@checked(VectorError)
class MultiVector:
    """Many vectors of a space, in panels: the vectors of a panel next to each other.

    Operators are applied to all of them at once, ``A @ X``; sums of entries are those of all ranks
    that hold the space.

    Parameters
    ----------
    space : Space or Product
    panels : (npanels, space.size, width) array
        C-contiguous, where the vectors of the space are; it is not copied. float64, float32, or
        complex of either.
    nvec : int, optional
        Number of vectors, if the last panel has more columns than are used: the others are zero.

    Attributes
    ----------
    space : Space or Product
    panels : (npanels, space.size, width) array
    nvec : int

    Raises
    ------
    VectorError
        An array of another shape, type or memory; columns behind the last vector that are not zero.

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
        if not panels.flags.c_contiguous:
            raise VectorError("panels are not contiguous in memory: pass panels.copy()")
        most, self.space, self.panels = shape[0] * shape[2], space, panels
        self.nvec = most if nvec is None else nvec
        if not most - shape[2] < self.nvec <= most:
            raise VectorError(
                f"nvec = {nvec} vectors are not what {shape[0]} panels of {shape[2]} hold: give "
                f"{most - shape[2] + 1} to {most}"
            )
        if self._spare is not None and bool(self._spare.any()):
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
        """New vectors of zeros.

        Parameters
        ----------
        space : Space or Product
        nvec : int
        dtype : dtype
            float64, float32, or complex of either.
        width : int, optional
            Columns of a panel; if omitted as many as kernels like.

        Raises
        ------
        VectorError
            A number of vectors that is none, another type, or too little memory.
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
        """New vectors of independent normal random numbers, other ones on each rank.

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
        """A copy of the columns (space.size, nvec) of an array.

        Raises
        ------
        VectorError
            An array of another shape, type or memory.
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
        """New vectors of zeros, as many and of the same type, of this or of another space."""
        space = self.space if space is None else space
        return MultiVector.zeros(space, self.nvec, self.dtype, self.width)

    def copy(self) -> MultiVector:
        """A copy."""
        result = self.empty_like()
        result.panels[...] = self.panels
        return result

    # --- what it is ------------------------------------------------------------------------------

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
        """Length of a vector, and how many there are."""
        return int(self.panels.shape[1]), self.nvec

    def __len__(self) -> int:
        return self.nvec

    def __repr__(self) -> str:
        panels = f"{self.npanels} x {self.width}"
        return f"MultiVector({self.nvec} vectors of {self.shape[0]}, {self.dtype}, {panels})"

    @property
    def _spare(self) -> Array | None:
        """The columns behind the last vector."""
        used = self.nvec - (self.npanels - 1) * self.width
        return None if used == self.width else self.panels[-1, :, used:]

    def columns(self) -> Array:
        """The vectors as columns (size, nvec): a view of a single panel, else a copy."""
        if self.npanels == 1:
            return self.panels[0, :, : self.nvec]
        joined = np.moveaxis(self.panels, 0, 1).reshape(self.shape[0], -1)
        return joined[:, : self.nvec]

    # --- parts -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(self.nvec))

    def __getitem__(self, which: Any) -> Any:
        """One vector, a view; or a `MultiVector` of several.

        A range that begins where a panel does and ends where one does, or with the last vector,
        is a view of these panels. Other ranges, lists and masks are copies.
        """
        if isinstance(which, int | np.integer):
            i = range(self.nvec)[which]
            return self.panels[i // self.width, :, i % self.width]
        chosen = self._chosen(which)
        if not len(chosen):
            raise VectorError("no vector is chosen: a MultiVector has one or more")
        first, last, width = int(chosen[0]), int(chosen[-1]), self.width
        ends = (last + 1) % width == 0 or last + 1 == self.nvec
        if isinstance(which, slice) and chosen.step == 1 and first % width == 0 and ends:
            return MultiVector(
                self.space, self.panels[first // width : last // width + 1], last + 1 - first
            )
        result = MultiVector.zeros(self.space, len(chosen), self.dtype)
        for target, source in enumerate(chosen):
            result[target][:] = self[int(source)]
        return result

    def __setitem__(self, which: Any, values: Any) -> None:
        """Overwrite vectors by those of a `MultiVector`, by columns (size, n), or by numbers."""
        chosen, size = self._chosen(which), self.shape[0]
        single = isinstance(which, int | np.integer)
        shape = () if isinstance(values, Number) else getattr(values, "shape", None)
        if shape not in ((), (size,) if single else (size, len(chosen))):
            raise VectorError(
                f"{len(chosen)} vectors of {size} entries cannot be set to "
                + (f"an array of shape {shape}" if shape else f"{values!r:.60}")
            )
        if single or not shape:
            for i in chosen:
                self[int(i)][:] = values
            return
        if isinstance(values, MultiVector):
            for source, target in enumerate(chosen):
                self[int(target)][:] = values[source]
        elif len(chosen) == self.nvec and isinstance(which, slice) and chosen.step == 1:
            for k in range(self.npanels):
                part = values[:, k * self.width : (k + 1) * self.width]
                self.panels[k, :, : part.shape[1]] = part
        else:
            for source, target in enumerate(chosen):
                self[int(target)][:] = values[:, source]

    def _chosen(self, which: Any) -> Any:
        """Numbers of the vectors that an index stands for."""
        if isinstance(which, slice):
            return range(self.nvec)[which]
        try:
            return np.arange(self.nvec)[np.asarray(which)].reshape(-1)
        except IndexError as error:
            raise VectorError(f"there are {self.nvec} vectors: {error}") from error

    # --- arithmetic ------------------------------------------------------------------------------

    def _like(self, other: Any) -> Array:
        """Panels of another that has as many vectors, in as many panels."""
        if not isinstance(other, MultiVector):
            raise VectorError(f"a {type(other).__name__} cannot be added to a MultiVector")
        if other.panels.shape != self.panels.shape or other.space is not self.space:
            raise VectorError(
                f"{other!r} is not of the same space, number and width of panels as {self!r}"
            )
        return other.panels

    def _number(self, factor: Any) -> bool:
        return isinstance(factor, Number) and not isinstance(factor, bool)

    def _made(self, panels: Array) -> MultiVector:
        return MultiVector(self.space, panels, self.nvec)

    def __add__(self, other: Any) -> MultiVector:
        return self._made(self.panels + self._like(other))

    def __sub__(self, other: Any) -> MultiVector:
        return self._made(self.panels - self._like(other))

    def __neg__(self) -> MultiVector:
        return self._made(-self.panels)

    def __mul__(self, factor: Any) -> MultiVector:
        return self._made(self.panels * factor) if self._number(factor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> MultiVector:
        return self._made(self.panels / factor) if self._number(factor) else NotImplemented

    def __iadd__(self, other: Any) -> MultiVector:  # noqa: PYI034  (the class is final)
        self.panels += self._like(other)
        return self

    def __isub__(self, other: Any) -> MultiVector:  # noqa: PYI034
        self.panels -= self._like(other)
        return self

    def __imul__(self, factor: Any) -> MultiVector:  # noqa: PYI034
        if not self._number(factor):
            return NotImplemented
        self.panels *= factor
        return self

    # --- products with small matrices ------------------------------------------------------------

    def row_blocks(self, *others: MultiVector) -> Iterator[slice]:
        """Ranges of rows whose entries stay in cache together."""
        most = max(x.npanels * x.width * x.dtype.itemsize for x in (self, *others))
        rows = self.shape[0]
        step = max(1, _BLOCK_BYTES // most) if self.space.memory.scipy else rows
        return (slice(a, min(a + step, rows)) for a in range(0, rows, max(step, 1)))

    def _rows(self, rows: slice) -> Array:
        """Rows of all vectors, (rows, npanels * width); a view if there is one panel."""
        return np.moveaxis(self.panels[:, rows], 0, 1).reshape(-1, self.npanels * self.width)

    def _set_rows(self, rows: slice, values: Array) -> None:
        shaped = values.reshape(len(values), self.npanels, self.width)
        self.panels[:, rows] = np.moveaxis(shaped, 1, 0)

    @checked(VectorError)
    def gram(self, other: MultiVector | None = None) -> Array:
        """The matrix X^H Y (nvec, nvec of Y) of inner products, in double precision; X^H X alone.

        Collective, one reduction.

        Raises
        ------
        VectorError
            Vectors of another space.
        """
        return self._gram(other, lambda rows, there: there._rows(rows))

    def mass_gram(self, mass: Any) -> Array:
        """The matrix X^H M X (nvec, nvec); see `orthonormalise` for M. Collective."""
        if mass is None or isinstance(mass, LinearOperator):
            return self.gram(None if mass is None else mass @ self)
        n = self.space.size
        if getattr(mass, "shape", None) != (n,):
            raise VectorError(f"mass is {mass!r:.60}: give an operator or ({n},) numbers")
        return self._gram(None, lambda rows, x: x._rows(rows) * mass[rows, np.newaxis])

    def _gram(
        self, other: MultiVector | None, right: Callable[[slice, MultiVector], Array]
    ) -> Array:
        there = self if other is None else other
        if there.space is not self.space:
            raise VectorError(f"{there!r} is not of the space of {self!r}")
        xp, wide = self.space.memory.xp, np.result_type(self.dtype, there.dtype, np.float64)
        total = xp.zeros((self.npanels * self.width, there.npanels * there.width), wide)
        for rows in self.row_blocks(there):
            left = self._rows(rows)
            total += left.conj().T @ right(rows, there)
        mine = np.ascontiguousarray(self.space.memory.get(total)[: self.nvec, : there.nvec])
        summed = self.space.comm.sum(mine.view(np.float64))
        return np.asarray(summed).view(wide)

    def __matmul__(self, matrix: ArrayLike) -> MultiVector:
        """The vectors X Q: linear combinations by the columns of a small matrix (nvec, m)."""
        small = self._small(matrix)
        kind = np.result_type(self.dtype, np.complex64) if small.dtype.kind == "c" else self.dtype
        result = MultiVector.zeros(self.space, small.shape[1], kind)
        padded = self._padded(small, result, kind)
        for rows in self.row_blocks(result):
            result._set_rows(rows, self._rows(rows) @ padded)
        return result

    def __imatmul__(self, matrix: ArrayLike) -> MultiVector:  # noqa: PYI034
        """Overwrite X by X Q, with a square matrix."""
        small = self._small(matrix)
        if small.shape[1] != self.nvec or (small.dtype.kind == "c") > (self.dtype.kind == "c"):
            raise VectorError(
                f"{self!r} cannot be overwritten by its product with a matrix {small.shape} of "
                f"type {small.dtype}: write X @ Q"
            )
        padded = self._padded(small, self, self.dtype)
        for rows in self.row_blocks():
            self._set_rows(rows, self._rows(rows) @ padded)
        return self

    def _small(self, matrix: ArrayLike) -> Array:
        small = np.asarray(matrix)
        if small.ndim != 2 or len(small) != self.nvec or not small.shape[1]:
            raise VectorError(
                f"a matrix of shape {small.shape} is to combine {self.nvec} vectors: it needs "
                f"({self.nvec}, m)"
            )
        return small

    def _padded(self, small: Array, result: MultiVector, kind: np.dtype[Any]) -> Array:
        """A small matrix with rows and columns for the spare columns of panels, where X is."""
        padded = np.zeros((self.npanels * self.width, result.npanels * result.width), kind)
        padded[: small.shape[0], : small.shape[1]] = small
        return self.space.memory.put(padded)

    # --- inner products of pairs -----------------------------------------------------------------

    def dots(self, other: MultiVector) -> Array:
        """Inner products (nvec,) of each vector with the one of the same number. Collective."""
        return self._pairs(self._like(other))

    def norms(self) -> NDArray[np.float64]:
        """Euclidean norms (nvec,). Collective."""
        return np.asarray(np.sqrt(self._pairs(self.panels).real))

    def _pairs(self, other: Array) -> Array:
        wide = np.result_type(self.dtype, other.dtype, np.float64)
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
        """Overwrite the vectors by ones that span the same and satisfy X^H M X = 1.

        By Cholesky's factors of Gram matrices, twice where once is not enough. Where vectors are
        linearly dependent, the directions that are missing are random. Collective.

        Parameters
        ----------
        mass : operator, (size,) array or None
            M, symmetric and positive definite; an array is its diagonal, None the identity.
        seed : int
            Of the random numbers.
        free : (size,) bool or numbers, optional
            Where random numbers may stand, or their standard deviations; 1 if omitted.

        Raises
        ------
        VectorError
            M is no mass, found not to be positive definite, or there are too many vectors.
        """
        eps = float(np.finfo(self.dtype).eps)
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


def random_columns(X: MultiVector, which: Any, seed: int, free: Array | None = None) -> None:
    """Set some vectors to normal random numbers times ``free`` (size,), other ones on each rank."""
    random = np.random.default_rng((seed, X.space.comm.rank))
    size, memory = X.shape[0], X.space.memory
    for i in which:
        values = random.standard_normal(size)
        if X.dtype.kind == "c":
            values = values + 1j * random.standard_normal(size)
        if free is not None:
            values = values * memory.get(free)
        X[int(i)] = memory.put(values.astype(X.dtype))
