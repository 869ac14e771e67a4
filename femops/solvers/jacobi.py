"""Jacobi's preconditioner: the inverse of the diagonal."""

from __future__ import annotations

from typing import Any, final

from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import BlockOperator, Operator
from femops.operators.execution.choice import backend_of
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.memory import HOST, Memory
from femops_meshes.arguments import checked


@final
class Jacobi(Preconditioner):
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
        self.inverse = inverse
        super().__init__(inverse.dtype, len(inverse), memory)

    def __abs__(self) -> Jacobi:
        """Its absolute value, which is positive definite."""
        return Jacobi(abs(self.inverse), self._memory)

    def _product(self, x: NDArray[Any]) -> NDArray[Any]:
        product: NDArray[Any] = self.inverse * x
        return product


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
