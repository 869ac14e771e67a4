"""Change of basis from the coefficients of vectors to the nodal values of a cycle."""

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
    """Converts right-hand sides to the nodal basis, and solutions back to coefficients.

    A relaxation divides by the diagonal. With Gauss-Lobatto nodes this reduces the upper part of
    the spectrum. With Bernstein coefficients it does not, because element matrices are far from
    diagonal. With Hermite-like functions of low order opposite ends are coupled: cycles would take
    two to three times as many iterations at order 2 to 4. With Gauss nodes the penalties of stiff
    faces are in the entries of all nodes of an element.

    `right` (size + padding,): right-hand side in the basis of the operator. Entries at constrained
    dofs are not read.
    """

    def __init__(self, A: Operator, nodal: Space, dtype: np.dtype[Any]) -> None:
        space = A.space
        updates = self._updates = backend_of(space).updates
        vectors: list[Array] = [updates.vector(space.size, dtype) for _ in range(4)]
        self.right, self._product, self._solution, self._weights = vectors
        shared = space.sum_elements(np.ones(space.restriction.indices.shape))
        self._weights[: space.size] = updates.put(np.repeat(1.0 / shared, space.ncomp))
        self._weights[updates.put(A.constrained_dofs)] = 0.0
        self.condition = float(np.linalg.cond(interpolation_matrix(nodal, space))) ** space.dim
        up, down = summed_interpolation(nodal, space, dtype)
        self._up, self._down = up.apply, down.apply

    def enter(self, right: Array) -> None:
        """Overwrite ``right`` by the attribute of the same name, converted to the nodal basis."""
        factors = 0.0, 1.0, 0.0, 0.0
        self._updates.step(self._product, None, self.right, self._weights, None, factors)
        self._down(self._product, right)

    def leave(self, x: Array) -> Array:
        """Convert nodal values (size + padding,) to coefficients. The next call overwrites them."""
        self._up(x, self._product)
        factors = 1.0, 0.0, 0.0, 0.0
        self._updates.step(self._solution, self._product, None, self._weights, None, factors)
        return self._solution
