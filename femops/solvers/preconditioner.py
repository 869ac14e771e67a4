"""The base of preconditioners of the host and of devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import DTypeLike, NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import VectorError
from femops.spaces.memory import Memory
from femops_kernels.cuda.device.device import Device


class Preconditioner(LinearOperator, ABC):  # type: ignore[misc]  # SciPy has no types
    """A symmetric preconditioner, as SciPy's and CuPy's solvers take it.

    Parameters
    ----------
    dtype : dtype
    size : int
    memory : Memory
        Where its vectors are.
    """

    _given_as: str

    def __init__(self, dtype: DTypeLike, size: int, memory: Memory) -> None:
        self._memory = memory
        super().__init__(dtype, (size, size))

    @property
    def device(self) -> Device | None:
        """Where the operator is; None for the host."""
        return self._memory.device

    @property
    def given_as(self) -> str:
        """The call that makes it, for messages."""
        return self._given_as

    @abstractmethod
    def _product(self, x: NDArray[Any]) -> NDArray[Any]:
        """The product with a vector (size,)."""

    def matvec(self, x: Any) -> Any:
        """The product with x, (n,) or (n, 1)."""
        if self._memory.scipy:
            return super().matvec(x)
        given = self._memory.adopt(x, "x")  # SciPy makes arrays of the host
        return self._matvec(given).reshape(given.shape)

    rmatvec = matvec

    def __matmul__(self, x: Any) -> Any:
        return super().__matmul__(x) if self._memory.scipy else self.matvec(x)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        n = self.shape[0]
        if x.shape not in ((n,), (n, 1)):
            raise VectorError(f"x has shape {x.shape}, the preconditioner takes ({n},)")
        return self._product(x.reshape(-1))

    _rmatvec = _matvec

    def _adjoint(self) -> Preconditioner:
        return self

    _transpose = _adjoint
