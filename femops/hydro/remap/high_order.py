"""High-order rates of change: upwind discontinuous Galerkin, its mass inverted in each element."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.fields.norms import exact_sum
from femops.hydro.remap.matrices import Matrices
from femops.hydro.remap.neighbours import Neighbours
from femops.tensor import einsum

Floats = NDArray[np.float64]

_ITERATIONS = 20
_TOLERANCE = 1e-4  # tolerance of the residual's norm over all elements, as in Remhos
_SMALL = 1e-3  # first residual below which the tolerance is relative; Remhos' runs have larger ones


class HighOrder(ABC):
    """Rate of change of high order, which may leave the bounds of the function."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours

    def rate(self, matrices: Matrices, u: Floats) -> Floats:
        """Rate of change (ne, n) of coefficients u (ne, n)."""
        total = multiplied(matrices.advection, u)
        jumps = self._neighbours.jumps(u)
        m = jumps.shape[-1]
        fluxes = multiplied(matrices.inflow.reshape(-1, m, m), jumps.reshape(-1, m))
        self._neighbours.add(fluxes.reshape(jumps.shape), total)
        return self._solved(matrices, total)

    @abstractmethod
    def _solved(self, matrices: Matrices, total: Floats) -> Floats:
        """Coefficients (ne, n) of the function with integrals `total` against the basis."""


@final
class Neumann(HighOrder):
    """`ho` 1: at most 20 steps of Jacobi's iteration, with the lumped mass.

    The iteration stops earlier if the residual's norm over all elements is at most 1e-4. Where it
    begins below 1e-3, the tolerance is 1e-4 of the first one. So small functions move, too.
    """

    def _solved(self, matrices: Matrices, total: Floats) -> Floats:
        result, product, goal = np.zeros_like(total), np.zeros_like(total), _TOLERANCE
        for k in range(_ITERATIONS):
            product -= total
            squares = (product * product).sum(axis=1)
            norm = math.sqrt(exact_sum(squares, self._neighbours.comm))
            if k == 0 and norm < _SMALL:
                goal *= norm
            if norm <= goal:
                break
            product /= matrices.lumped
            result -= product
            einsum("ij,j->i", matrices.mass, result, out=product)
        return result


@final
class LocalInverse(HighOrder):
    """`ho` 3: the mass matrix of each element solved exactly."""

    def _solved(self, matrices: Matrices, total: Floats) -> Floats:
        return multiplied(matrices.inverse_mass, total)


def multiplied(matrices: Floats, u: Floats) -> Floats:
    """Products (ne, n) of matrices (ne, n, n) and vectors (ne, n)."""
    return np.asarray(einsum("ij,j->i", matrices, u))
