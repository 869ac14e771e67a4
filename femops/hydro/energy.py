"""Mass matrix of the energy, and the norm of the energy that Laghos prints.

A state has the values of the energy at Gauss points. Their mass matrix has a small condition number
at every degree m. With Bernstein coefficients the condition number would grow like 4^(dim m), and
at high orders round-off in the inverse would change the energy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import femops
from femops.basis import bernstein_coefficients
from femops.fields.norms import exact_sum
from femops_meshes.coordinates.interpolation import tensor_apply

Floats = NDArray[np.float64]


def mass_and_inverse(
    part: femops.Mesh, order: int, rho: Any, rule: femops.basis.Quadrature1D
) -> tuple[Floats, Floats]:
    """Mass matrices of this rank's elements, and their inverses, each (ne, n, n).

    Before the inversion each matrix is scaled to a diagonal of 1. So different magnitudes of
    quadrature weights and densities cost no digits.

    A product with an inverse has as many operations as two triangular solves, but the operations do
    not wait for each other. `femops.tensor.solve_triangular` with Cholesky factors took 3 times as
    long for 4096 blocks of 27 by 27, and 5 times as long for 512 blocks of 8 by 8.
    """
    space = femops.L2(part, order)
    n = space.p1d**part.dim
    blocks = femops.mass(space, rho=rho, quadrature=rule).assemble().tobsr((n, n)).data
    scale = 1.0 / np.sqrt(np.diagonal(blocks, axis1=1, axis2=2))
    both = scale[:, :, np.newaxis] * scale[:, np.newaxis, :]
    return blocks, np.asarray(np.linalg.inv(blocks * both) * both)


def bernstein_norm(space: femops.L2, energy: Floats) -> float:
    """Euclidean norm of the Bernstein coefficients of an energy. Collective.

    Shapes: `energy` (size,).
    """
    lines = [bernstein_coefficients(space.basis.nodes)] * space.dim
    values = tensor_apply(lines, energy.reshape(-1, space.p1d**space.dim))
    return float(np.sqrt(exact_sum((values * values).reshape(-1), space.comm)))
