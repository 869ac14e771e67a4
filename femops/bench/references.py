"""Rows of Table 1 that femops does not have: dense bases, and element matrices formed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.operators import Operator
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.assembly.point_matrices import point_matrices
from femops.spaces.domain_space import DomainSpace

Floats = NDArray[np.float64]


@final
class DenseBases:
    """Matrices that take dofs of an element to the points, of an operator of one form.

    Parameters
    ----------
    operator : Operator
        On a space, at the level "partial".
    """

    def __init__(self, operator: Operator) -> None:
        [(_, self._term)] = operator._summands
        self._operator, self._ne = operator, self._term.domain.num_elements
        self._points = self._term.trial.num_points(self._term.quadrature)
        qfunction = self._term.qfunction
        self._into = self._bases(self._term.trial, qfunction.slots_in)
        self._out = self._bases(self._term.test, qfunction.slots_out)
        self._alike = np.array_equal(self._into, self._out)

    def _bases(self, space: DomainSpace, slots: list[int]) -> Floats:
        """Matrices (slots, points, nodes): Kronecker products of 1-D matrices, x fastest."""
        dense = []
        for slot in slots:
            full: NDArray[Any] = np.ones((1, 1))
            for d, points in enumerate(space.points_along(self._term.quadrature)):
                gives = space.basis.gradient if d == slot - 1 else space.basis.interpolation
                full = np.kron(gives(points), full)
            dense.append(full)
        return np.array(dense)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the bases, and of the data at the points."""
        bases = self._into.nbytes + (0 if self._alike else self._out.nbytes)
        return int(bases + self._operator.cost().stored_bytes)

    @property
    def assembly_flops(self) -> int:
        """Operations for the bases, of a D that is given."""
        q1d, dim = self._term.quadrature.q1d, self._term.trial.dim
        sides = [(self._term.trial.p1d, self._into), (self._term.test.p1d, self._out)]
        return sum(
            len(bases) * sum((q1d * p1d) ** k for k in range(2, dim + 1))
            for p1d, bases in sides[: 1 if self._alike else 2]
        )

    @property
    def flops(self) -> int:
        """Operations of an application: B, D and the transpose of B."""
        bases = sum(
            2 * side.ncomp * matrices.size
            for side, matrices in ((self._term.trial, self._into), (self._term.test, self._out))
        )
        return int(self._ne * (bases + self._points * self._term.qfunction.flops))

    def application(self) -> Callable[[Floats], Floats]:
        """Function that applies the operator, by products of NumPy."""
        trial, d = self._term.trial, point_matrices(self._term, 0, self._ne)
        indices = trial.restriction.indices

        def apply(x: Floats) -> Floats:
            dofs = x.reshape(-1, trial.ncomp)[indices]  # (elements, nodes, components)
            values = np.tensordot(self._into, dofs, (2, 1))
            fluxes = np.einsum("acsbeq,sqeb->aqec", d, values, optimize=True)
            sums = np.tensordot(self._out, fluxes, ((0, 1), (0, 1)))
            result = np.zeros((trial.size // trial.ncomp, trial.ncomp))
            np.add.at(result, indices, sums.transpose(1, 0, 2))
            return result.reshape(-1)

        return apply


def naive_flops(operator: Operator) -> int:
    """Operations that products of dense bases take more than sum factorisation, for matrices."""
    [(_, term)] = operator._summands
    assembly = ElementAssembly(term)
    points, nodes = term.trial.num_points(term.quadrature), term.trial.p1d**term.trial.dim
    entries = np.swapaxes(assembly.entries != 0, 1, 2)  # (slots, slots, components, components)
    pairs = entries.sum(axis=(0, 1))
    # D times the trial basis, the product by the test basis, the sum of all pairs
    each = points * nodes + nodes * nodes * 2 * points
    naive = int((pairs * each - nodes * nodes * (pairs > 0)).sum())
    return int(term.domain.num_elements * (naive - assembly.flops()))
