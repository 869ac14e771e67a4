"""Type of a cycle's numbers: float32 if the numbers of the operator fit into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.solvers.multigrid.level import scattered

_SINGLE = np.dtype(np.float32)
# Numbers of A for which a cycle in float32 is chosen, and those for which it is possible: solutions
# are larger than the inverse of these numbers by up to the condition number.
_CHOSEN, _POSSIBLE = (1e-20, 1e20), (1e-25, 1e30)
_LEAST = 1e-30  # smallest entry of a product
_SAME = 1e-3  # relative difference of products in the two types

BEYOND = "numbers of A are beyond the range of float32"


def cycle_type(
    A: Operator, asked: np.dtype[Any] | None, *, direct: bool
) -> tuple[np.dtype[Any], str]:
    """Type of the cycle's numbers, and the reason for it. Collective.

    If ``asked`` is None, the cycle is in float32 if the numbers of A fit into it with a margin,
    else in the type of A. On a reproducible mesh it is in the type of A, because the bits of cycles
    in float32 depend on the number of ranks.

    Parameters
    ----------
    A : Operator
    asked : dtype, optional
    direct : bool
        Whether the cycle is a direct solver alone.

    Raises
    ------
    SolverError
        The cycle must be in float32, because of ``asked`` or the type of A, and the numbers of A do
        not fit into float32.
    """
    kind = asked or A.dtype
    if kind == _SINGLE:
        sizes = _sizes(A)
        if not sizes.within(_POSSIBLE):
            wrong = sizes.most if sizes.most >= _POSSIBLE[1] else min(sizes.least, sizes.entry)
            raise SolverError(refusal(A, f"A has numbers of size {wrong:.1e}"))
        return kind, "as asked" if asked else "as A"
    if asked is not None:
        return asked, "as asked"
    if A.space.any_width:
        return kind, "the mesh is reproducible"
    if direct:
        return kind, "the cycle is a direct solver"
    chosen = _sizes(A).within(_CHOSEN)
    return (_SINGLE, "its precision suffices") if chosen else (kind, BEYOND)


def refusal(A: Operator, numbers: str) -> str:
    """Message that the numbers of an operator do not fit into a cycle in float32."""
    least, most = _POSSIBLE
    cure = "leave dtype out" if A.dtype == np.float64 else "make A with dtype='float64'"
    return (
        f"{numbers}, a multigrid cycle in float32 takes {least:.0e} to {most:.0e}: {cure}, or "
        "scale the coefficients or the coordinates"
    )


def rounds_well(A: Operator, rounded: Operator) -> bool:
    """True if a product with A hardly changes when A is rounded to float32. Collective.

    It changes if numbers behind the product are out of range, such as the volumes of elements.
    """
    exact, found = _product(A), _product(rounded)
    comm = A.space.comm
    difference = np.nan_to_num(abs(found - exact), nan=np.inf).max(initial=0.0)
    largest = comm.max(float(abs(exact).max(initial=0.0)))
    return bool(comm.max(float(difference)) <= _SAME * largest)


@final
@dataclass(frozen=True)
class _Sizes:
    """Smallest and largest number of an operator, and the smallest entry of a product with it."""

    least: float
    most: float
    entry: float

    def within(self, limits: tuple[float, float]) -> bool:
        """True if a cycle can work with the operator in a type with these limits."""
        return limits[0] < self.least and self.most < limits[1] and self.entry > _LEAST


def _sizes(A: Operator) -> _Sizes:
    """Sizes of A: of its factors, of a product with A, and of that product over each factor."""
    comm = A.space.comm
    product = np.nan_to_num(abs(_product(A)), nan=np.inf)
    largest = comm.max(float(product.max(initial=0.0)))
    entry = -comm.max(-float(product[product > 0.0].min(initial=np.inf)))
    factors = [abs(factor) for factor, _ in A.summands]
    free = comm.max(int(len(product) > len(A.constrained_dofs)))
    numbers = list(factors)
    if largest or (free and A.dtype == _SINGLE):  # where float32 may have underflowed
        numbers += [largest, *(largest / factor for factor in factors)]
    return _Sizes(min(numbers), max(numbers), entry)


def _product(A: Operator) -> NDArray[np.float64]:
    """Multiply A by a vector of numbers near 1, and set constrained dofs to 0. Collective."""
    memory, first = A.space.memory, A.space.first_dof * A.space.ncomp
    x = scattered(first, A.space.size).astype(A.dtype)
    product: NDArray[np.float64] = memory.get(A.apply(memory.put(x))).astype(np.float64)
    product[A.constrained_dofs] = 0.0
    return product
