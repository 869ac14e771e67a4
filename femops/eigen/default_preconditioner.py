"""Preconditioner that `lobpcg` makes if none is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from femops.errors import SolverError
from femops.forms.mass import mass
from femops.operators import Operator
from femops.solvers.inner_products import Sums
from femops.solvers.multigrid import multigrid
from femops.solvers.multigrid.level import NotPositiveError
from femops.solvers.preconditioner import Preconditioner
from femops.spaces.base import Space

# The mass is so many times the one with which a stretched body would have the eigenvalue one. Any
# factor from a millionth to ten takes about as many iterations.
_LITTLE = 1e-3


def default_preconditioner(A: Any) -> Preconditioner:
    """Multigrid of A, or of A plus a little mass if A is singular. Collective.

    Multigrid leaves out constants and rigid motions that A takes to zero. So vectors would lack the
    eigenvectors of the eigenvalue zero.

    Raises
    ------
    SolverError
        `multigrid` refuses A.
    """
    try:
        made = multigrid(A)
    except NotPositiveError as error:
        raise SolverError(
            "multigrid found A not to be positive definite: give "
            "preconditioner=femops.multigrid(B) of a positive operator B like A, as A + s * M with "
            "-s below the lowest eigenvalue, or A without its negative terms"
        ) from error
    return multigrid(_with_mass(A)) if made.hierarchy.solver.singular else made


def _with_mass(A: Operator) -> Operator:
    free, sums = A.unconstrained, Sums(A.space)
    M, x = mass(A.space, dtype=A.dtype, level=A.level), _stretch(A.space, A.dtype)
    energy = sums.dot(x, free @ x) / sums.dot(x, M @ x)
    shifted: Operator = free + _LITTLE * energy * M
    return shifted.constrained(A.constrained_dofs)


def _stretch(space: Space, dtype: np.dtype[Any]) -> Any:
    """Field that stretches along x, and shrinks along y if it has several components."""
    nodes, comm = space.mesh.coordinates, space.comm
    total = comm.sum(np.array([*nodes.sum(axis=(0, 1)), nodes.shape[0] * nodes.shape[1]]))
    center = total[:-1] / total[-1]

    def stretched(x: Any) -> Any:
        moved = x - center[:, np.newaxis]
        parts = [moved[0], -moved[1 % len(x)]] + [0.0 * x[0]] * space.ncomp
        return np.stack(parts[: space.ncomp]) if space.ncomp > 1 else moved[0]

    return space.interpolate(stretched).astype(dtype)
