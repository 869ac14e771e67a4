"""Jacobi's preconditioner: the inverse of the diagonal."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.complex_operator import ComplexOperator
from femops.operators.execution.host import backend_of
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import checked


@final
class Jacobi(Preconditioner):
    """Preconditioner that multiplies by the inverse of a diagonal. `jacobi` makes it.

    `inverse` (size,): inverse of the diagonal; zero at eliminated dofs. In the memory of the
    operator's vectors.
    """

    _given_as = "femops.jacobi(A)"

    def __init__(self, inverse: NDArray[Any], space: Space | Product) -> None:
        self.inverse = inverse
        super().__init__(inverse.dtype, space)

    def __abs__(self) -> Jacobi:
        """Preconditioner with the absolute values of the diagonal, which is positive definite."""
        return Jacobi(abs(self.inverse), self.space)

    def _apply(self, x: NDArray[Any], result: NDArray[Any]) -> None:
        self.space.memory.xp.multiply(self.inverse, x, out=result)


@checked(SolverError)
def jacobi(A: Operator | ComplexOperator) -> Jacobi:
    """Jacobi preconditioner of an operator.

    Parameters
    ----------
    A : Operator or ComplexOperator
        At eliminated dofs the preconditioner has zeros.

    Returns
    -------
    Jacobi
        A SciPy ``LinearOperator``; `femops.cg` runs it inside the compiled iteration.

    Raises
    ------
    SolverError
        A dof that is not eliminated has a diagonal entry that is zero or not finite, or whose
        inverse is not finite.
    """
    diagonal, memory, eliminated = A.diagonal(), A.space.memory, _eliminated(A)
    if isinstance(A, ComplexOperator) and A.hermitian:
        diagonal = diagonal.real.copy()
    eliminated = memory.put(eliminated)
    diagonal[eliminated] = 1.0
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / diagonal
    inverse[eliminated] = 0.0
    bad = ~(memory.xp.isfinite(diagonal) & memory.xp.isfinite(inverse))
    mine = int(bad.sum())
    count = A.space.comm.sum(mine)  # all ranks raise, or none
    if count:
        first = f"first number {int(bad.argmax())}" if mine else "none on this rank"
        cause = "is a coefficient zero or out of the range of A's type, or a dof without elements?"
        if any(term.source.state.spaces for _, term in getattr(A, "summands", ())):
            cause += " Is a derivative infinite at the state, as that of a square root at zero is?"
        if isinstance(A.space, Product):
            cause = (
                "a field that is not in its own equation, as the pressure of Stokes flow, has no "
                "diagonal. Make a preconditioner for each field: femops.block_diagonal or "
                "femops.block_triangular, or take femops.preconditioner(A), which is M='auto'"
            )
        raise SolverError(
            f"{count} diagonal entries are zero or not finite, or their inverses are not, {first}: "
            f"{cause}"
        )
    return Jacobi(backend_of(A.space).placed(inverse), A.space)


def _eliminated(A: Operator | ComplexOperator) -> NDArray[np.int64]:
    """Positions of the eliminated dofs, whose rows or columns are zero."""
    if isinstance(A, ComplexOperator):
        return np.asarray(_eliminated(A.real)[::2] // 2)
    constraints = A.constraints
    if constraints.identity:
        return constraints.columns[:0]
    return np.union1d(constraints.rows, constraints.columns)
