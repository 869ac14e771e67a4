"""Jacobi's preconditioner: the inverse of the diagonal."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import SolverError, VectorError
from femops.operators import BlockOperator, Operator
from femops_kernels.placement import placed


@final
class Jacobi(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """Multiplies by the inverse of a diagonal; made by `jacobi`.

    Attributes
    ----------
    inverse : (size,) array
    """

    def __init__(self, inverse: NDArray[Any]) -> None:
        self.inverse = inverse
        super().__init__(inverse.dtype, (len(inverse), len(inverse)))

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        if x.size != len(self.inverse):
            raise VectorError(f"x has {x.size} entries, the preconditioner {len(self.inverse)}")
        product: NDArray[Any] = self.inverse * x.reshape(-1)
        return product

    _rmatvec = _matvec

    def _adjoint(self) -> Jacobi:
        return self

    _transpose = _adjoint


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
    if not isinstance(A, Operator | BlockOperator):
        raise SolverError(f"A is a {type(A).__name__}: jacobi takes a femops operator")
    diagonal = A.diagonal().reshape(-1)
    bad = np.flatnonzero((diagonal == 0.0) | ~np.isfinite(diagonal))
    count = A.space.comm.sum(len(bad))  # all ranks raise, or none
    if count:
        first = f"first number {bad[0]}" if len(bad) else "none on this rank"
        raise SolverError(
            f"{count} diagonal entries are zero or not finite, {first}: "
            "is a coefficient zero, or a dof without elements?"
        )
    return Jacobi(placed(1.0 / diagonal))
