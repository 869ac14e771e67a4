"""Type of a cycle's numbers: float32 if the numbers of the operator fit into it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
from femops.operators import Operator
from femops.operators.coarsening import in_precision
from femops.solvers.multigrid.level import scattered
from femops.spaces.product import Product

Vector = NDArray[Any]
SINGLE = np.dtype(np.float32)
# Numbers of A for which a cycle in float32 is chosen, and those for which it is possible: solutions
# are larger than the inverse of these numbers by up to the condition number.
_CHOSEN, _POSSIBLE = (1e-20, 1e20), (1e-25, 1e30)
_LEAST = 1e-30  # smallest entry of a product
_SAME = 1e-3  # relative difference of products in the two types
_TOGETHER = 2**15  # entries of vectors that are worked on at once

BEYOND = "numbers of A are beyond the range of float32"


def cycle_type(
    A: Operator, asked: np.dtype[Any] | None, product: Vector | None
) -> tuple[np.dtype[Any], str]:
    """Type of the cycle's numbers, and the reason for it. Collective.

    If ``asked`` is None, the cycle is in float32 if the numbers of A fit into it with a margin,
    else in the type of A. On a reproducible mesh it is in the type of A, because the bits of cycles
    in float32 depend on the number of ranks.

    Shapes: `product` (size,).
    """
    kind = asked or A.dtype
    if kind == SINGLE:
        sizes = _sizes(A, trial_product(A) if product is None else product)
        if not sizes.within(_POSSIBLE):
            wrong = sizes.most if sizes.most >= _POSSIBLE[1] else min(sizes.least, sizes.entry)
            raise SolverError(refusal(A, f"A has numbers of size {wrong:.1e}"))
        return kind, "as asked" if asked else "as A"
    if asked is not None:
        return asked, "as asked"
    if A.space.any_width:
        return kind, "the mesh is reproducible"
    if product is None:
        return kind, "the cycle is a direct solver"
    return (SINGLE, "its precision suffices") if fits(A, product) else (kind, BEYOND)


def fits(A: Operator, product: Vector) -> bool:
    """True if the numbers of A fit into float32 with a margin; see `trial_product`. Collective."""
    return _sizes(A, product).within(_CHOSEN)


def refusal(A: Operator, numbers: str) -> str:
    """Message that the numbers of an operator do not fit into a cycle in float32."""
    least, most = _POSSIBLE
    cure = "leave dtype out" if A.dtype == np.float64 else "make A with dtype='float64'"
    return (
        f"{numbers}, a multigrid cycle in float32 takes {least:.0e} to {most:.0e}: {cure}, or "
        "scale the coefficients or the coordinates"
    )


def in_single(A: Operator) -> Operator | None:
    """Copy of an operator in float32. None if rounding changes products. Collective."""
    with np.errstate(over="ignore", invalid="ignore"):  # the trial product shows losses
        short = in_precision(A, SINGLE, A.level)
        return short if rounds_well(trial_product(A), short) else None


def rounds_well(exact: Vector, rounded: Operator) -> bool:
    """True if a product with A hardly changes when A is rounded to float32. Collective.

    The product changes if its intermediate numbers are out of range, such as volumes of elements.

    Shapes: `exact` (size,).
    """
    comm, product = rounded.space.comm, trial_product(rounded)
    parts = (_most(np.subtract(product[k], exact[k], dtype=np.float64)) for k in _parts(product))
    difference = max(parts, default=0.0)
    return bool(comm.max(difference) <= _SAME * comm.max(_most(exact)))


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


def _sizes(A: Operator, product: Vector) -> _Sizes:
    """Sizes of the summands' nonzero factors, of a product, and of the product over each factor."""
    comm, largest = A.space.comm, A.space.comm.max(_most(product))
    entry = -comm.max(-_least(product))
    factors = [abs(factor) for factor, _ in A.summands if factor]
    free = comm.max(int(len(product) > len(A.constrained_dofs)))
    numbers = list(factors)
    if largest or (free and A.dtype == SINGLE):  # where float32 may have underflowed
        numbers += [largest, *(largest / factor for factor in factors)]
    return _Sizes(min(numbers, default=0.0), max(numbers, default=0.0), entry)


def _most(values: Vector) -> float:
    """Largest absolute value; infinite if a value is not a number."""
    most = float(np.maximum(values.max(initial=0.0), -values.min(initial=0.0)))
    return math.inf if math.isnan(most) else most


def _least(values: Vector) -> float:
    """Smallest absolute value other than zero; infinite if there is none."""
    sizes = (abs(values[k]) for k in _parts(values))
    least = (float(part.min(initial=np.inf, where=part > 0.0)) for part in sizes)
    return min(least, default=math.inf)


def _parts(values: Vector) -> Iterator[slice]:
    """Slices of a vector that stay in cache."""
    return (slice(k, k + _TOGETHER) for k in range(0, len(values), _TOGETHER))


def trial_product(A: Operator) -> Vector:
    """Product (size,) of A and a vector of numbers near 1, on the host. Collective.

    It has the type of A, and is zero at constrained dofs.
    """
    memory, space = A.space.memory, A.space
    fields = space.spaces.values() if isinstance(space, Product) else (space,)
    x = np.concatenate([scattered(V.first_dof * V.ncomp, V.size, A.dtype) for V in fields])
    product: Vector = memory.get(A.apply(memory.put(x)))
    product[A.constrained_dofs] = 0.0
    return product
