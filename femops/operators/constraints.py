"""Essential conditions of an operator: the rows and columns that are taken out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError


def _none() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


def read_only(dofs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Read-only view of positions that an operator holds."""
    shown = dofs.view()
    shown.setflags(write=False)
    return shown


@final
@dataclass(frozen=True, eq=False)
class Constraints:
    """Rows and columns that are zero, but for the diagonal where the spaces are the same.

    Attributes
    ----------
    rows, columns : (k,) int64
        Flat positions in test and trial vector, ascending.
    identity : float
        Diagonal of the constrained rows.
    symmetric : bool
        Whether rows and columns are the same, on all ranks.
    """

    rows: NDArray[np.int64] = field(default_factory=_none)
    columns: NDArray[np.int64] = field(default_factory=_none)
    identity: float = 0.0
    symmetric: bool = True

    def same(self, other: Constraints) -> bool:
        """True if the same rows and columns are constrained."""
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.columns, other.columns)

    def constrained(self, dofs: NDArray[np.int64]) -> Constraints:
        """More rows and columns replaced by those of the identity.

        Raises
        ------
        OperatorError
            If rows or columns are constrained to zero already.
        """
        if self and not self.identity:
            raise OperatorError(
                "rows or columns of the operator are eliminated: "
                "write A.unconstrained.constrained(dofs)"
            )
        union = np.union1d(self.rows, dofs)
        return Constraints(union, union, self.identity or 1.0)

    def __bool__(self) -> bool:
        return bool(len(self.rows) or len(self.columns))

    def __str__(self) -> str:
        if self.identity or not self:
            return f"{len(self.rows)} constrained"
        if np.array_equal(self.rows, self.columns):
            return f"{len(self.rows)} eliminated"
        return f"{len(self.rows)} rows and {len(self.columns)} columns eliminated"


FREE = Constraints()
