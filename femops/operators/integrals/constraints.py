"""Essential conditions of an operator: its constrained rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.errors import OperatorError
from femops.parallel.comm import Communicator
from femops.spaces.memory import Memory
from femops.spaces.product import Product
from femops_common.arguments import number_of


def _none() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


def read_only(dofs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Read-only view (k,) of positions that an operator holds."""
    shown = dofs.view()
    shown.setflags(write=False)
    return shown


@final
@dataclass(frozen=True, eq=False)
class Constraints:
    """Constrained rows and columns. They are zero except for ``identity`` on the diagonal."""

    # rows and columns are (k,): flat positions in the test vector and in the trial vector,
    # ascending
    rows: NDArray[np.int64] = field(default_factory=_none)
    columns: NDArray[np.int64] = field(default_factory=_none)
    identity: float = 0.0  # diagonal of the constrained rows
    symmetric: bool = True  # whether rows and columns are the same on all ranks

    def rows_in(self, memory: Memory) -> NDArray[Any]:
        """Return the rows (k,) in a memory. A device gets its copy once."""
        copies = _copies.setdefault(self, {})
        if memory not in copies:
            copies[memory] = memory.put(self.rows)
        return copies[memory]

    def columns_in(self, memory: Memory) -> NDArray[Any]:
        """Return the columns (k,) in a memory. A device has one copy if they are the rows."""
        return self.rows_in(memory) if self.columns is self.rows else memory.put(self.columns)

    def same(self, other: Constraints) -> bool:
        """True if the same rows and columns are constrained."""
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.columns, other.columns)

    def constrained(self, dofs: NDArray[np.int64]) -> Constraints:
        """Copy that also replaces the rows and columns ``dofs`` (k,) by those of the identity."""
        if self and not self.identity:
            raise OperatorError(
                "rows or columns of the operator are eliminated: "
                "write A.unconstrained.constrained(dofs)"
            )
        union = np.union1d(self.rows, dofs) if len(self.rows) else dofs
        return Constraints(union, union, self.identity or 1.0)

    def plus(self, other: Constraints) -> Constraints:
        """Constraints of the sum of two operators with the same constrained rows and columns."""
        identity = self.identity + other.identity
        if self.identity and not identity:
            raise OperatorError(
                "the diagonals of the constrained rows cancel in the sum, which loses prescribed "
                "values: write (A.unconstrained - B.unconstrained).constrained(dofs)"
            )
        return replace(self, identity=identity)

    def check_imposed(self, values: Any, comm: Communicator) -> None:
        """Raise if values are prescribed but no rank has a constrained dof. Collective.

        The number zero passes: it is the default of `Operator.rhs`. All values pass if
        `constrained` was called, even without dofs.
        """
        if self.identity:
            return
        # all ranks take part, also if some give zero and others do not
        given, dofs = comm.max(int(number_of(values) != 0.0)), comm.max(len(self.columns))
        if given and not dofs:
            raise OperatorError(
                "values are given, but no dof is constrained where they could be imposed: write "
                "A = A.constrained(V.boundary_dofs()) first, then A.rhs(b, values)"
            )

    def of_block(self, product: Product, test: str, field: str) -> Constraints:
        """Constraints of one operator block. Positions refer to vectors of its two spaces."""
        rows, columns = product.within(test, self.rows), product.within(field, self.columns)
        if test == field:
            return Constraints(rows, columns, self.identity, self.symmetric)
        return Constraints(rows, columns, symmetric=False)

    def __bool__(self) -> bool:
        return bool(len(self.rows) or len(self.columns))

    def __str__(self) -> str:
        if self.identity or not self:
            return f"{len(self.rows)} constrained"
        if np.array_equal(self.rows, self.columns):
            return f"{len(self.rows)} eliminated"
        return f"{len(self.rows)} rows and {len(self.columns)} columns eliminated"

    def scaled(self, factor: float, dtype: np.dtype[Any]) -> Constraints:
        """Copy of the constraints for the operator times a factor."""
        if not self.identity:
            return self
        if not factor:
            raise OperatorError(
                "an operator with constrained dofs times zero has no conditions any more: write "
                "(0.0 * A.unconstrained).constrained(dofs)"
            )
        return replace(self, identity=product_of_factors(factor, self.identity, dtype))


FREE = Constraints()
_copies: WeakKeyDictionary[Constraints, dict[Memory, NDArray[Any]]] = WeakKeyDictionary()


def product_of_factors(factor: float, other: float, dtype: np.dtype[Any]) -> float:
    """Product of two factors of an operator."""
    product, limits = factor * other, np.finfo(dtype)
    if factor and other and not float(limits.tiny) <= abs(product) <= float(limits.max):
        raise OperatorError(
            f"the operator's factor {other:g} times {factor:g} is out of the range of its type, "
            f"{dtype}: scale the coefficients of its forms instead"
        )
    return product
