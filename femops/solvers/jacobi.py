"""Jacobi's preconditioner: the inverse of the diagonal."""

from __future__ import annotations

from typing import Any, final

from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import SolverError, VectorError
from femops.operators import BlockOperator, Operator
from femops.operators.execution.choice import backend_of
from femops.spaces.memory import HOST, Memory
from femops_kernels.cuda.device.device import Device
from femops_meshes.arguments import checked


@final
class Jacobi(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """Multiplies by the inverse of a diagonal; made by `jacobi`.

    Attributes
    ----------
    inverse : (size,) array
        On the device, if the operator is on one.
    device : Device or None
        None for the host.
    """

    _given_as = "femops.jacobi(A)"

    def __init__(self, inverse: NDArray[Any], memory: Memory = HOST) -> None:
        self.inverse, self._memory = inverse, memory
        super().__init__(inverse.dtype, (len(inverse), len(inverse)))

    def __abs__(self) -> Jacobi:
        """Its absolute value, which is positive definite."""
        return Jacobi(abs(self.inverse), self._memory)

    @property
    def device(self) -> Device | None:
        """Where the operator is; None for the host."""
        return self._memory.device

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
        n = len(self.inverse)
        if x.shape not in ((n,), (n, 1)):
            raise VectorError(f"x has shape {x.shape}, the preconditioner takes ({n},)")
        product: NDArray[Any] = self.inverse * x.reshape(-1)
        return product

    _rmatvec = _matvec

    def _adjoint(self) -> Jacobi:
        return self

    _transpose = _adjoint


@checked(SolverError)
def jacobi(A: Operator | BlockOperator) -> Jacobi:
    """Jacobi preconditioner of an operator.

    Parameters
    ----------
    A : Operator or BlockOperator

    Returns
    -------
    Jacobi
        A SciPy ``LinearOperator``; `femops.cg` runs it inside the compiled iteration.

    Raises
    ------
    SolverError
        If an entry of the diagonal is zero, or not finite.
    """
    diagonal, memory = A.diagonal(), A.space.memory
    bad = (diagonal == 0.0) | ~memory.xp.isfinite(diagonal)
    mine = int(bad.sum())
    count = A.space.comm.sum(mine)  # all ranks raise, or none
    if count:
        first = f"first number {int(bad.argmax())}" if mine else "none on this rank"
        raise SolverError(
            f"{count} diagonal entries are zero or not finite, {first}: "
            "is a coefficient zero, or a dof without elements?"
        )
    return Jacobi(backend_of(A.space).placed(1.0 / diagonal), memory)
