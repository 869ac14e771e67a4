"""Low-order rates of change, whose Euler steps keep the bounds of the neighbourhood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.hydro.remap.high_order import multiplied
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import Neighbours

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
