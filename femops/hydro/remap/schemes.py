"""Rates of change of a function on moving or fixed meshes, by Remhos' numbers of their methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.errors import HydroError
from femops.hydro.remap.high_order import HighOrder, LocalInverse, Neumann, multiplied
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import AnyMesh, Lattice, Neighbours
from femops.hydro.remap.tables import Tables
from femops.parallel import Communicator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TINY = 1e-200  # keeps quotients finite in constant elements; small beside small functions, too


class LowOrder(ABC):
    """Rate of change of first order: a matrix in each element, and lumped fluxes at the faces.

    Subclasses have different matrices.
    """

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    def rate(self, matrices: Matrices, u: Floats) -> Floats:
        """Rate of change (ne, n) of coefficients u (ne, n)."""
        total = self._inside(matrices, u)
        self._neighbours.add(matrices.inflow_sums * self._neighbours.jumps(u), total)
        return total / matrices.lumped

    @abstractmethod
    def _inside(self, matrices: Matrices, u: Floats) -> Floats:
        """Integrals (ne, n) over the elements, without faces."""


@final
class Upwind(LowOrder):
    """`lo` 1: the advection matrix with the least diffusion that makes it monotone."""

    def _inside(self, matrices: Matrices, u: Floats) -> Floats:
        return multiplied(matrices.upwind, u)


@final
class PreconditionedUpwind(LowOrder):
    """`lo` 2: as `lo` 1, for the advection matrix times a matrix that makes it sparser.

    That is the lumped mass matrix times the inverse of the consistent one. Less diffusion makes the
    sparser matrix monotone.
    """

    def _inside(self, matrices: Matrices, u: Floats) -> Floats:
        return multiplied(matrices.preconditioned_upwind, u)


@final
class ResidualDistribution(LowOrder):
    """`lo` 3: an element's integral is distributed to dofs by their distance from its bounds."""

    def _inside(self, matrices: Matrices, u: Floats) -> Floats:
        total, result = multiplied(matrices.advection, u), np.zeros_like(u)
        for sign in (1.0, -1.0):
            gain = np.maximum(sign * total, 0.0).sum(axis=-1, keepdims=True)
            result += sign * gain * _shares(sign * u)
        return np.asarray(result)


@final
class SubcellDistribution(LowOrder):
    """`lo` 4: as `lo` 3, but the integrals over subcells are distributed within subcells.

    Shapes: `corners` (ncells, 2**dim).
    """

    def __init__(self, neighbours: Neighbours, corners: Ints) -> None:
        super().__init__(neighbours)
        self._corners = np.ascontiguousarray(corners.T)
        n = int(corners.max()) + 1
        # entries of corners that each dof has, with the entry after all of them as filling
        places = [np.flatnonzero(self._corners.reshape(-1) == dof) for dof in range(n)]
        self._places = np.full((max(map(len, places)), n), corners.size)
        for dof, mine in enumerate(places):
            self._places[: len(mine), dof] = mine

    def _inside(self, matrices: Matrices, u: Floats) -> Floats:
        total, result = multiplied(matrices.advection, u), np.zeros_like(u)
        cells = np.stack([np.take(u, dofs, axis=1) for dofs in self._corners])
        fluctuations = np.add.reduce(matrices.subcells * cells)
        for sign in (1.0, -1.0):
            gain = np.maximum(sign * total, 0.0).sum(axis=-1, keepdims=True)
            gains = np.maximum(sign * fluctuations, 0.0)
            of_cells, scale = gains.sum(axis=-1, keepdims=True), 1.0 / (gain + _TINY)
            shares = _shares(sign * u) * (1.0 - np.minimum(scale * of_cells, 1.0))
            nodal = self._at_dofs(gains * _shares(sign * cells, axis=0))
            shares += np.minimum(scale, 1.0 / (of_cells + _TINY)) * nodal
            result += sign * gain * shares
        return np.asarray(result)

    def _at_dofs(self, of_corners: Floats) -> Floats:
        """Add numbers at corners of subcells up at dofs: (2**dim, ne, ncells) -> (ne, n)."""
        ncorners, ne, ncells = of_corners.shape
        flat = np.zeros((ne, ncorners * ncells + 1))
        flat[:, :-1].reshape(ne, ncorners, ncells)[...] = of_corners.swapaxes(0, 1)
        result = np.take(flat, self._places[0], axis=1)
        for places in self._places[1:]:
            result += np.take(flat, places, axis=1)
        return np.asarray(result)


def _shares(u: Floats, axis: int = -1) -> Floats:
    """Distances to the maximum along an axis, scaled to the sum 1."""
    room = u.max(axis=axis, keepdims=True) - u
    return np.asarray(room / (room.sum(axis=axis, keepdims=True) + _TINY))


_ROUND_OFF = 1e-10  # part of the largest coefficient by which low order may leave its bounds


@final
class ClipScale:
    """`fct` 2: clip each dof to its bounds, then scale gains or losses until the mass is kept.

    The bounds of a dof are the least and the largest coefficient in the elements that meet at its
    node.
    """

    def __init__(self, lattice: Lattice, comm: Communicator) -> None:
        self._lattice, self._comm = lattice, comm

    def rate(self, lumped: Floats, u: Floats, high: Floats, low: Floats, dt: float) -> Floats:
        """Rate of change (ne, n) whose Euler step of length dt keeps the bounds. Collective.

        Shapes: `lumped` (ne, n), `u`, `high`, `low` (ne, n).
        """
        least, largest = self._lattice.bounds(u)
        moved, per_step = u + dt * low, lumped / dt
        below, above = least - moved, largest - moved
        ends = np.abs(u).max(initial=0.0), max(below.max(initial=0.0), -above.min(initial=0.0))
        size, outside = self._comm.max(np.array(ends))
        if outside > _ROUND_OFF * size:
            limit = -self._comm.max(-_longest(u, low, least, largest, dt, size))
            raise HydroError(
                f"a step of {dt:g} makes new extremes: here the limit is {limit:.3g}, take a "
                "smaller dt or a coarser mesh"
            )
        change = lumped * (high - low)
        np.clip(change, per_step * below, per_step * above, out=change)
        gains, losses = np.maximum(change, 0.0), np.minimum(change, 0.0)
        gain, loss = gains.sum(axis=1, keepdims=True), losses.sum(axis=1, keepdims=True)
        surplus = gain + loss
        # one of the two is scaled, where they do not balance
        gains *= np.where(surplus > 0.0, -loss / np.where(gain > 0.0, gain, 1.0), 1.0)
        losses *= np.where(surplus < 0.0, -gain / np.where(loss < 0.0, loss, -1.0), 1.0)
        return np.asarray(low + (gains + losses) / lumped)


def _longest(
    u: Floats, low: Floats, least: Floats, largest: Floats, dt: float, size: float
) -> float:
    """Longest step of low order that keeps the bounds in this rank's elements."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(low > 0.0, largest - u, least - u) / low
    moving = dt * np.abs(low) > _ROUND_OFF * size
    return float(np.min(room, where=moving, initial=np.inf))


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
