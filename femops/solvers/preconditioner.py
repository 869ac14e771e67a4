"""Base class of preconditioners, on the host and on devices."""

from __future__ import annotations

from abc import ABC
from numbers import Number, Real
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import VectorError
from femops.operators.matrix_free import VectorMap
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_kernels.device import Device


class Preconditioner(VectorMap, ABC):
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
        self.space = self.test_space = space
        super().__init__(dtype, (space.size, space.size))

    @property
    def device(self) -> Device | None:
        """Device of the vectors; None for the host."""
        device: Device | None = self.space.memory.device
        return device

    def has_size_of(self, space: Space | Product) -> bool:
        """True if the vectors have the size of a space's vectors, on all ranks together."""
        return bool(self.space.global_size == space.global_size)

    @property
    def given_as(self) -> str:
        """Call that makes this kind of preconditioner, for messages."""
        return self._given_as

    def __matmul__(self, x: Any) -> Any:
        return self.dot(x)

    def dot(self, x: Any) -> Any:
        """Return M @ x. If x is a number or an operator, return the product as a LinearOperator."""
        if isinstance(x, Real):
            return Scaled(self, float(x))
        if isinstance(x, LinearOperator | Number):
            return super().dot(x)
        given = self._given(x, self.space)
        return self._matvec(given) if given.ndim == 1 else self._matmat(given)

    def __neg__(self) -> Scaled:
        return Scaled(self, -1.0)

    def __rmul__(self, x: Any) -> Any:
        return self.dot(x) if isinstance(x, Number) else super().__rmul__(x)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            return self._matvec(x.real) + 1j * self._matvec(x.imag)
        if not np.can_cast(x.dtype, self.dtype, "same_kind"):
            raise VectorError(f"x has type {x.dtype}, M {self.dtype}: give a real vector")
        return self.apply(self._arrays.ascontiguousarray(x, dtype=self.dtype).reshape(-1))

    def _matmat(self, x: NDArray[Any]) -> NDArray[Any]:
        kind = np.result_type(self.dtype, np.complex64) if x.dtype.kind == "c" else self.dtype
        result: NDArray[Any] = self._arrays.empty(x.shape, kind)
        for k in range(x.shape[1]):
            result[:, k] = self._matvec(x[:, k])
        return result

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
        super().__init__(M.dtype, M.space)

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        self.scaled.apply(x, result)
        result *= self.factor

    def _adjoint(self) -> Preconditioner:
        return Scaled(self.scaled.T, self.factor)
