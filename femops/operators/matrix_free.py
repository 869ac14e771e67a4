"""Base of operators: application to vectors, and arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Number, Real
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import OperatorError, VectorError
from femops.fields.multivector import MultiVector
from femops.operators.assembly.csr import require_memory
from femops.operators.execution.host import backend_of
from femops.operators.execution.vectors import (
    check_factor,
    check_many,
    check_output,
    checked_vector,
    contiguous_vector,
)
from femops.parallel.comm import check
from femops.spaces.base import Space
from femops.spaces.memory import check_shape, memory_of
from femops.spaces.product import Product
from femops_common.arguments import checked
from femops_kernels.compiled import CompiledOperator, Panels
from femops_kernels.simd.lanes import WIDEST

ONE_SPACE = "make both with one dtype, and from one space (the same object, not an equal one)"
"""Remedy for operators that are not added because their spaces or types differ."""
_COMPRESSED = "A.assemble() is the matrix in compressed rows, A.assemble().toarray() a dense one"
_INSTEAD = {
    **dict.fromkeys(["A", "toarray", "todense", "tocoo", "tocsc", "tocsr"], _COMPRESSED),
    **dict.fromkeys(["data", "indices", "indptr", "nnz"], _COMPRESSED),
    "solve": "femops.cg(A, b) solves A x = b; so do femops.minres and femops.gmres",
}
"""Advice by attribute of SciPy's matrices that an operator does not have."""

# Cached attributes that hold compiled code and addresses.
_COMPILED = ("compiled", "_transposed", "_panelled", "_views")


class VectorMap(LinearOperator, ABC):  # type: ignore[misc]  # SciPy has no types
    """Linear map of the vectors of spaces: all that SciPy's solvers call, with checks of vectors.

    Attributes
    ----------
    space : Space or Product
        Space of the vectors that are multiplied.
    test_space : Space or Product
        Space of the results.
    """

    space: Any  # a Space or a Product
    test_space: Any

    @abstractmethod
    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        """Overwrite ``result`` by the product with x. Both vectors have the type of the map."""

    @abstractmethod
    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the product (test size,) with a vector (size,) that the caller has checked."""

    @abstractmethod
    def _matmat(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the product (test size, nvec) with many vectors x (size, nvec)."""

    @abstractmethod
    def _adjoint(self) -> VectorMap:
        """The adjoint, which is the transpose of a real map."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or another process, without compiled code."""
        kept = {k: v for k, v in self.__dict__.items() if k not in _COMPILED}
        return {k: v for k, v in kept.items() if not isinstance(v, ModuleType)}  # SciPy's

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        LinearOperator.__init__(self, self.dtype, self.shape)

    def apply(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Compute the product with x. If ``out`` is given, an operator allocates nothing.

        Collective if ranks share dofs.

        Parameters
        ----------
        x : (space.size,) array
            C-contiguous, of the type of the operator or preconditioner.
        out : (test_space.size,) array, optional
            Array that receives the result. It must not overlap x.

        Returns
        -------
        (test_space.size,) array

        Raises
        ------
        VectorError
            If a vector has another shape, type or memory layout, or ``out`` overlaps x.
        """
        x = checked_vector(self.space, self.dtype, x, "x")
        if out is None:
            result: NDArray[Any] = self._arrays.empty(self.test_space.size, self.dtype)
        else:
            result = checked_vector(self.test_space, self.dtype, out, "out")
            check_output(self.space, x, result, out)
        self._apply(x, result)
        return result

    @property
    def _arrays(self) -> ModuleType:
        """NumPy, or the module with the same functions for vectors of a device."""
        xp: ModuleType = self.space.memory.xp
        return xp

    def matvec(self, x: Any) -> Any:
        """Return the product with x (n,) or (n, 1), in the same shape. SciPy's solvers call it."""
        given = self._given(x, self.space)
        if given.ndim == 2 and given.shape[1] != 1:
            check_shape(self.space, given, "x")
        return self._matvec(given.reshape(-1)).reshape(-1, *given.shape[1:])

    def matmat(self, X: Any) -> Any:
        """Return the product with each column of X: (n, nvec)."""
        return self._matmat(self._given(X, self.space))

    def rmatvec(self, x: Any) -> Any:
        """Return the adjoint times x, for x (n,) or (n, 1)."""
        return self._adjoint().matvec(x)

    def rmatmat(self, X: Any) -> Any:
        """Return the adjoint times each column of X: (n, nvec)."""
        return self._adjoint().matmat(X)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._adjoint()._matvec(x)

    def _rmatmat(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._adjoint()._matmat(x)

    def _given(self, x: Any, space: Space | Product) -> NDArray[Any]:
        """Check a user's vector, or many as the columns of an array."""
        return check_factor(space, space.memory.factor(x, "x"))


class MatrixFree(VectorMap, ABC):
    """Linear operator that compiled kernels apply."""

    _given_as = "a femops operator, as femops.mass(V) (SciPy's solvers take others)"

    if not TYPE_CHECKING:  # for type checkers there are no other attributes

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names femops' replacement for a method of SciPy's matrices."""
            if name in _INSTEAD:
                raise AttributeError(
                    f"{type(self).__name__} has no {name}, as it is not a matrix: {_INSTEAD[name]}"
                )
            return object.__getattribute__(self, name)  # the error, also of a property

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """Raise: solvers of matrices, as `numpy.linalg.solve`, would make an array of objects."""
        raise OperatorError(
            f"{type(self).__name__} is not a matrix, as NumPy's solvers and SciPy's direct ones "
            f"need: {_COMPRESSED}. {_INSTEAD['solve']}"
        )

    @property
    @abstractmethod
    def compiled(self) -> CompiledOperator:
        """Compiled operator. It is made, or read from the cache, at first use."""

    @abstractmethod
    def _compiled_for(self, panels: Panels) -> CompiledOperator:
        """Compile the operator for many vectors. Collective if ranks share dofs."""

    @property
    @abstractmethod
    def _lanes(self) -> int:
        """Slots of the widest lanes."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """True if the operator is known to equal its transpose. Else False."""

    @abstractmethod
    def diagonal(self) -> NDArray[Any]:
        """Diagonal (size,) of the operator with its essential conditions."""

    @abstractmethod
    def _scaled(self, factor: float) -> MatrixFree:
        """Operator times a finite number."""

    # --- application -----------------------------------------------------------------------------

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        self.compiled.apply(x, result)

    def _contiguous(self, vector: Any, what: str, space: Space | Product) -> NDArray[Any]:
        return contiguous_vector(space, self.dtype, vector, what)

    @property
    def _scipy(self) -> bool:
        """True if SciPy's functions can work with the operator's vectors."""
        return bool(self.space.memory.scipy)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        xp, dtype = self._arrays, self.dtype
        if x.dtype != dtype:
            if x.dtype.kind == "c":
                return self._complex(x)
            if not np.can_cast(x.dtype, dtype, "same_kind"):
                raise VectorError(f"x has type {x.dtype}, the operator {dtype}: give a real vector")
        flat = xp.ascontiguousarray(x, dtype=dtype).reshape(-1)
        if not getattr(flat.flags, "aligned", True):
            flat = flat.copy()
        result: NDArray[Any] = xp.empty(self.shape[0], dtype)
        self.compiled.apply(flat, result)
        return result

    def _matmat(self, x: NDArray[Any]) -> NDArray[Any]:
        if x.dtype.kind == "c":
            return self._complex(x)
        n, k = x.shape
        comm = self.space.comm
        if comm.size > 1 and comm.max(k) != -comm.max(-k):  # or ranks would wait for each other
            raise VectorError(f"ranks give different numbers of vectors, here {k}: give the same")
        fewest, slots = self._fewest_at_once()
        if not fewest or k < fewest:
            result: NDArray[Any] = self._arrays.empty((self.shape[0], k), self.dtype)
            for i in range(k):
                result[:, i] = self._matvec(x[:, i])
            return result
        if k < slots:  # pad to a panel of at least this many vectors
            padded = self._arrays.zeros((n, slots), self.dtype)
            padded[:, :k] = x
            return self._matmat(padded)[:, :k].copy()
        copied = not (x.flags.c_contiguous and x.dtype == self.dtype)
        needed = (self.shape[0] + n * copied) * k * self.dtype.itemsize
        with check(comm):
            require_memory(needed, f"a product with {k} vectors", "fewer at once")
        given = self._arrays.ascontiguousarray(x, dtype=self.dtype)
        result = self.space.memory.rows_like(given, self.shape[0])
        self._apply_panels(given, result, Panels(k))
        return result

    def _complex(self, x: NDArray[Any]) -> NDArray[Any]:
        """Product with complex vectors. Real and imaginary part are multiplied as two vectors."""
        kind = np.result_type(self.dtype, np.complex64)
        given = self._arrays.ascontiguousarray(x, dtype=kind)
        columns = 2 * (x.shape[1] if x.ndim == 2 else 1)
        parts = given.view(self.dtype).reshape(len(given), columns)
        product = self._arrays.ascontiguousarray(self._matmat(parts))
        result: NDArray[Any] = product.view(kind).reshape(len(product), *x.shape[1:])
        return result

    @checked(VectorError)
    def apply_many(self, x: MultiVector, out: MultiVector | None = None) -> MultiVector:
        """Compute A X for many vectors at once; the same as ``A @ X``.

        Parameters
        ----------
        x : MultiVector
            Vectors of the operator's space and type, or complex ones of the same precision.
        out : MultiVector, optional
            Receives the result: vectors of the test space, with panels like those of x. It must not
            overlap x.

        Returns
        -------
        MultiVector

        Raises
        ------
        VectorError
            The vectors have another space, type or number, or ``out`` overlaps x.
        """
        result = x.empty_like(self.test_space) if out is None else out
        check_many(self.space, self.test_space, self.dtype, x, result)
        given, there = (many.panels.view(self.dtype) for many in (x, result))
        fewest, slots = self._fewest_at_once()
        count = given.shape[2]
        if not fewest or count < slots:
            result[:] = self._matmat(x.columns())
        elif self._at_once:
            self._apply_panels(given, there, Panels(count, len(given)))
        else:
            for panel, target in zip(given, there, strict=True):
                self._apply_panels(panel, target, Panels(count))
        return result

    def _fewest_at_once(self) -> tuple[int, int]:
        ordered = self._ordered or self.space.comm.size > 1
        any_width = self.space.any_width or self.test_space.any_width
        if any_width and "element" in self.level:
            return 0, 0  # BLAS would round a product with many vectors in another way than with one
        if self.space.signed or self.test_space.signed:
            return 0, 0  # kernels of many vectors read rows where they are, without signs
        lanes = WIDEST if any_width else self._lanes
        return backend_of(self.space).fewest_at_once(lanes, ordered=ordered)

    @property
    @abstractmethod
    def level(self) -> str:
        """Level of the operator."""

    @property
    @abstractmethod
    def _ordered(self) -> bool:
        """True if the user asked for a fixed order of the sums over elements."""

    @property
    @abstractmethod
    def _at_once(self) -> bool:
        """True if one call can apply the operator to several panels."""

    def _apply_panels(self, x: NDArray[Any], y: NDArray[Any], panels: Panels) -> None:
        """Overwrite y by the operator times many vectors x.

        Shapes: `x`, `y` (count, size, nvec).
        """
        kept = self.__dict__.get("_panelled")
        if kept is None or kept[0] != panels:
            kept = self.__dict__["_panelled"] = panels, self._compiled_for(panels)
        kept[1].apply(x, y)

    def __matmul__(self, x: Any) -> Any:
        if isinstance(x, LinearOperator):
            return self.dot(x)
        if isinstance(x, MultiVector):
            return self.apply_many(x)
        given = check_factor(self.space, self.space.memory.factor(x, "x"))
        # SciPy's __matmul__ would call matvec, which is for solvers
        return self._matvec(given) if given.ndim == 1 else self._matmat(given)

    def dot(self, x: Any) -> Any:
        """Multiply by a vector, many vectors, a number or an operator, as SciPy's `dot` does."""
        if isinstance(x, LinearOperator | Number):
            self._refuse_composed(x)
            if isinstance(x, LinearOperator) and x.shape[0] != self.shape[1]:
                rows = self.shape[1]
                raise OperatorError(
                    f"{self!r} times one of shape {x.shape}: give one of {rows} rows"
                )
        elif self._scipy:
            check_factor(self.space, self.space.memory.factor(x, "x"))
        else:
            return self @ x
        return super().dot(x)

    # --- what SciPy's solvers call ----------------------------------------------------------------

    def _given(self, x: Any, space: Space | Product) -> NDArray[Any]:
        """Check a vector or matrix from a solver. On a device, refuse arrays of the host."""
        self._refuse_ranks()
        if not self._scipy and isinstance(x, np.ndarray):
            raise VectorError(
                f"an array of the host was given to an operator on {self.space.memory.name}, as "
                "SciPy's solvers do: solve by femops.cg or cupyx.scipy.sparse.linalg, or give "
                "cupy.asarray(x)"
            )
        return super()._given(x, space)

    def _refuse_ranks(self) -> None:
        """Refuse SciPy's solvers on many ranks, where their inner products would be wrong."""
        ranks = self.space.comm.size
        if ranks > 1:
            raise OperatorError(
                f"{ranks} ranks hold this operator, and SciPy's solvers, which call matvec, know "
                "nothing of other ranks: solve by femops.cg, minres or gmres, or by PETSc "
                "(femops.petsc); for products write A @ x or A.apply(x)"
            )

    # --- arithmetic ------------------------------------------------------------------------------

    def _refuse_composed(self, other: Any) -> None:
        """Refuse SciPy's sums, products and powers of operators on a device, and complex factors.

        SciPy would convert the vectors to host arrays.
        """
        if not self._scipy and isinstance(other, LinearOperator | complex | np.complexfloating):
            raise OperatorError(
                f"SciPy composes operators on the host, {self!r} is on {self.space.memory.name}: "
                "apply them one after the other, as A @ (B @ x), or in a function"
            )

    def _check_summand(self, other: Any) -> None:
        """Raise if a summand is a number or a matrix, or an operator of another shape."""
        if isinstance(other, LinearOperator):
            if other.shape != self.shape:
                raise OperatorError(
                    f"{self!r} and an operator of shape {other.shape} can't be added: give one of "
                    f"shape {self.shape}"
                )
        elif isinstance(other, Number) or hasattr(other, "shape"):
            raise OperatorError(
                f"{self!r} and a value of type {type(other).__name__} can't be added: write "
                "A.assemble() + B for a matrix B, A + c * femops.mass(V) for a number c"
            )

    def __add__(self, other: Any) -> Any:
        self._check_summand(other)
        self._refuse_composed(other)
        return super().__add__(other)

    def __pow__(self, power: Any) -> Any:
        self._refuse_composed(self)
        return super().__pow__(power)

    def __mul__(self, factor: Any) -> Any:
        if not isinstance(factor, bool) and isinstance(factor, Real):
            scale = float(factor)
            if not np.isfinite(scale):
                raise OperatorError(f"an operator times {scale}: give a finite number")
            return self._scaled(scale)
        self._refuse_composed(factor)
        return super().__mul__(factor)

    def __truediv__(self, factor: Any) -> Any:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return super().__truediv__(factor)
        inverse = 1.0 / float(factor) if factor else np.inf
        if not 0.0 < abs(inverse) < np.inf:
            raise OperatorError(
                f"an operator divided by {factor}: give a finite number whose inverse is finite"
            )
        return self * inverse

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, int) and other == 0:  # sum() begins with 0
            return self
        self._check_summand(other)
        return NotImplemented

    def __rmul__(self, factor: Any) -> Any:
        if isinstance(factor, Real):
            return self * factor
        self._refuse_composed(factor)
        return super().__rmul__(factor)

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        self._check_summand(other)
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        self._check_summand(other)
        return NotImplemented


def check_sum(a: Any, b: Any) -> None:
    """Raise unless two operators have equal spaces, type, constraints and level, as a sum needs."""
    memory_of((a.space, b.space))
    same = a.space is b.space and a.test_space is b.test_space
    if not same or a.dtype != b.dtype:
        raise OperatorError(
            f"operators on different spaces or types can't be added: {a!r} and {b!r}; {ONE_SPACE}"
        )
    if not a.constraints.same(b.constraints):
        raise OperatorError(
            "operators with different constraints can't be added: write (A + B).constrained(dofs)"
        )
    if a.asked != b.asked:
        raise OperatorError(
            f"operators of levels {a.asked!r} and {b.asked!r} can't be added: "
            f"write A + B.at_level({a.asked!r})"
        )
