"""Rates of change of a function on moving or fixed meshes, by Remhos' numbers of their methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.hydro.remap.high_order import HighOrder, LocalInverse, Neumann
from femops.hydro.remap.limiter import ClipScale
from femops.hydro.remap.low_order import (
    LowOrder,
    PreconditionedUpwind,
    ResidualDistribution,
    SubcellDistribution,
    Upwind,
)
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import AnyMesh, Lattice, Neighbours
from femops.hydro.remap.tables import Tables

Floats = NDArray[np.float64]

HIGH_ORDER: dict[int, type[HighOrder]] = {1: Neumann, 3: LocalInverse}
"""Methods of high order by the number of `ho`."""

LOW_ORDER: dict[int, Callable[[Neighbours, Tables], LowOrder]] = {
    1: lambda neighbours, _: Upwind(neighbours),
    2: lambda neighbours, _: PreconditionedUpwind(neighbours),
    3: lambda neighbours, _: ResidualDistribution(neighbours),
    4: lambda neighbours, tables: SubcellDistribution(neighbours, tables.corners),
}
"""Methods of low order by the number of `lo`."""

LIMITERS = (2,)
"""Limiters by the number of `fct`."""

_SUBCELLS = 4  # the low-order method that needs them


class Scheme(ABC):
    """Rate of change of the coefficients of a function."""

    @abstractmethod
    def rate(self, matrices: Matrices, u: Floats, dt: float) -> Floats:
        """Rate of change (ne, n) of coefficients u (ne, n), for Euler steps of length dt."""


@final
class Unlimited(Scheme):
    """One method alone."""

    def __init__(self, method: HighOrder | LowOrder) -> None:
        self._method = method

    def rate(self, matrices: Matrices, u: Floats, dt: float) -> Floats:  # noqa: ARG002
        return self._method.rate(matrices, u)


@final
class Limited(Scheme):
    """As much of a method of high order as the bounds allow, else a method of low order."""

    def __init__(self, high: HighOrder, low: LowOrder, limiter: ClipScale) -> None:
        self._high, self._low, self._limiter = high, low, limiter

    def rate(self, matrices: Matrices, u: Floats, dt: float) -> Floats:
        """See `Scheme.rate`. Raises `HydroError` if the step of low order leaves the bounds."""
        high, low = self._high.rate(matrices, u), self._low.rate(matrices, u)
        return self._limiter.rate(matrices.lumped, u, high, low, dt)


def scheme(mesh: AnyMesh, tables: Tables, ho: int, lo: int, fct: int) -> Scheme:
    """Make the scheme that the options ``ho``, ``lo`` and ``fct`` choose. 0 stands for no method.

    Collective if ranks share the mesh. Then so are the scheme's rates.
    """
    for option, number, known in (
        ("ho", ho, [0, *HIGH_ORDER]),
        ("lo", lo, [0, *LOW_ORDER]),
        ("fct", fct, [0, *LIMITERS]),
    ):
        if number not in known:
            there = ", ".join(map(str, known))
            raise HydroError(f"{option} is {number}: the methods here are {there}")
    if lo == _SUBCELLS and tables.order == 1:
        raise HydroError("lo 4 needs subcells, and order 1 has none: take order 2 or lo 3")
    if fct and not (ho and lo):
        raise HydroError(f"fct {fct} limits ho by lo: give both, got ho {ho} and lo {lo}")
    if not fct and bool(ho) == bool(lo):
        raise HydroError(f"without fct give one of ho and lo, got ho {ho} and lo {lo}")
    neighbours = Neighbours(mesh, tables.order)
    if not fct:
        return Unlimited(HIGH_ORDER[ho](neighbours) if ho else LOW_ORDER[lo](neighbours, tables))
    limiter = ClipScale(Lattice(mesh, tables.order), neighbours.comm)
    return Limited(HIGH_ORDER[ho](neighbours), LOW_ORDER[lo](neighbours, tables), limiter)
