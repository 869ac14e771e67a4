"""Base class of preconditioners, on the host and on devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Number, Real
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import VectorError
from femops.operators.execution.vectors import check_factor, check_output, checked_vector
from femops.spaces.base import Space
from femops.spaces.memory import check_shape
from femops.spaces.product import Product
from femops_kernels.device import Device


class Preconditioner(LinearOperator, ABC):  # type: ignore[misc]  # SciPy has no types
    """Preconditioner that SciPy's and CuPy's solvers accept.

    A product checks its vector as a product with an operator does.

    Parameters
    ----------
    dtype : dtype
    space : Space or Product
        Space of the vectors.

    Attributes
    ----------
    symmetric : bool
        False if the preconditioner is known to differ from its transpose. Else True.
    """

    _given_as: str
    symmetric = True

    def __init__(self, dtype: DTypeLike, space: Space | Product) -> None:
        self._space = space
        super().__init__(dtype, (space.size, space.size))

    @property
    def device(self) -> Device | None:
        """Device of the vectors; None for the host."""
        return self._space.memory.device

    def has_size_of(self, space: Space | Product) -> bool:
        """True if the vectors have the size of a space's vectors, on all ranks together."""
        return self._space.global_size == space.global_size

    @property
    def given_as(self) -> str:
        """Call that makes this kind of preconditioner, for messages."""
        return self._given_as

    @abstractmethod
    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        """Overwrite ``result`` by M x. Both vectors have the preconditioner's type."""

    def apply(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Compute M x, an approximate solution of A y = x. Collective if ranks share dofs.

        Parameters
        ----------
        x : (size,) array
            C-contiguous, of the preconditioner's type.
        out : (size,) array, optional
            Array that receives the result. It must not overlap x.

        Returns
        -------
        (size,) array

        Raises
        ------
        VectorError
            A vector of another shape, type or memory layout, or an ``out`` that overlaps x.
        """
        space = self._space
        x = checked_vector(space, self.dtype, x, "x")
        if out is None:
            result: NDArray[Any] = space.memory.xp.empty(space.size, self.dtype)
        else:
            result = checked_vector(space, self.dtype, out, "out")
            check_output(space, x, result, out)
        self._apply(x, result)
        return result

    def matvec(self, x: Any) -> Any:
        """Return M x for x (n,) or (n, 1), in the same shape."""
        given = self._given(x)
        if given.ndim == 2 and given.shape[1] != 1:
            check_shape(self._space, given, "x")
        return self._matvec(given.reshape(-1)).reshape(given.shape)

    def matmat(self, X: Any) -> Any:
        """Return the product with each column of X: (n, nvec)."""
        return self._matmat(self._given(X))

    def rmatvec(self, x: Any) -> Any:
        """Return the transpose of M times x, for x (n,) or (n, 1)."""
        return self._adjoint().matvec(x)

    def rmatmat(self, X: Any) -> Any:
        """Return the transpose of M times each column of X: (n, nvec)."""
        return self._adjoint().matmat(X)

    def __matmul__(self, x: Any) -> Any:
        return self.dot(x)

    def dot(self, x: Any) -> Any:
        """Return M @ x. If x is a number or an operator, return the product as a LinearOperator."""
        if isinstance(x, Real):
            return Scaled(self, float(x))
        if isinstance(x, LinearOperator | Number):
            return super().dot(x)
        given = self._given(x)
        return self._matvec(given) if given.ndim == 1 else self._matmat(given)

    def __neg__(self) -> Scaled:
        return Scaled(self, -1.0)

    def __rmul__(self, x: Any) -> Any:
        return self.dot(x) if isinstance(x, Number) else super().__rmul__(x)

    def _given(self, x: Any) -> NDArray[Any]:
        memory = self._space.memory
        return check_factor(self._space, memory.factor(x, "x"))

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            return self._matvec(x.real) + 1j * self._matvec(x.imag)
        if not np.can_cast(x.dtype, self.dtype, "same_kind"):
            raise VectorError(f"x has type {x.dtype}, M {self.dtype}: give a real vector")
        xp = self._space.memory.xp
        return self.apply(xp.ascontiguousarray(x, dtype=self.dtype).reshape(-1))

    def _matmat(self, x: NDArray[Any]) -> NDArray[Any]:
        xp = self._space.memory.xp
        kind = np.result_type(self.dtype, np.complex64) if x.dtype.kind == "c" else self.dtype
        result: NDArray[Any] = xp.empty(x.shape, kind)
        for k in range(x.shape[1]):
            result[:, k] = self._matvec(x[:, k])
        return result

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._adjoint()._matvec(x)

    def _rmatmat(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._adjoint()._matmat(x)

    def _adjoint(self) -> Preconditioner:
        """Return the transpose: the preconditioner itself if it is symmetric."""
        return self

    def _transpose(self) -> Preconditioner:
        return self._adjoint()


@final
class Scaled(Preconditioner):
    """A number times a preconditioner, such as ``-femops.multigrid(A)``."""

    _given_as = "a number times a preconditioner"

    def __init__(self, M: Preconditioner, factor: float) -> None:
        self.scaled, self.factor, self.symmetric = M, factor, M.symmetric
        super().__init__(M.dtype, M._space)

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        self.scaled.apply(x, result)
        result *= self.factor

    def _adjoint(self) -> Preconditioner:
        return Scaled(self.scaled.T, self.factor)
