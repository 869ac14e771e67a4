"""A change of basis around a cycle: coefficients outside, nodal values inside."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators import Operator
from femops.operators.execution.choice import backend_of
from femops.operators.execution.transfer import interpolation_matrix, summed_interpolation
from femops.spaces.base import Space

Array = NDArray[Any]


@final
class BasisChange:
    """Right-hand sides to the nodal basis, and solutions back from it.

    Relaxations by the diagonal reduce the upper part of the spectrum for Gauss-Lobatto nodes, not
    for Bernstein coefficients, whose matrices of elements are far from diagonal.

    Parameters
    ----------
    A : Operator
        Of the vectors outside.
    nodal : Space
        Of the same order on the same mesh.
    dtype : dtype
        Of the cycle.

    Attributes
    ----------
    right : array
        The right-hand side outside; entries at constrained dofs are not read.
    condition : float
        Condition number of the change in each element.
    """

    def __init__(self, A: Operator, nodal: Space, dtype: np.dtype[Any]) -> None:
        space = A.space
        updates = self._updates = backend_of(space).updates
        for name in ("right", "_product", "_found", "_weights"):
            setattr(self, name, updates.vector(space.size, dtype))
        shared = space.sum_elements(np.ones(space.restriction.indices.shape))
        self._weights[: space.size] = updates.put(np.repeat(1.0 / shared, space.ncomp))
        self._weights[updates.put(A.constrained_dofs)] = 0.0
        self.condition = float(np.linalg.cond(interpolation_matrix(nodal, space))) ** space.dim
        up, down = summed_interpolation(nodal, space, dtype)
        self._up, self._down = up.apply, down.apply

    right: Array
    _product: Array
    _found: Array
    _weights: Array

    def enter(self, right: Array) -> None:
        """Overwrite the right-hand side of the cycle by that of the coefficients."""
        factors = 0.0, 1.0, 0.0, 0.0
        self._updates.step(self._product, None, self.right, self._weights, None, factors)
        self._down(self._product, right)

    def leave(self, x: Array) -> Array:
        """The coefficients of a solution by nodal values, until the next one."""
        self._up(x, self._product)
        found, factors = self._found, (1.0, 0.0, 0.0, 0.0)
        self._updates.step(found, self._product, None, self._weights, None, factors)
        return found
