"""Results of eigensolvers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.fields.multivector import MultiVector

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class SubspaceState:
    """Vectors of an iteration, from which another iteration can begin.

    Attributes
    ----------
    vectors : MultiVector
        An orthonormal basis of Ritz vectors, guard vectors too.
    values : (n,) array
        Their Ritz values, ascending.
    """

    vectors: MultiVector
    values: Floats


@final
@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """Eigenvalues and eigenvectors, with a report of how they were found.

    Attributes
    ----------
    values : (k,) float64
        Ascending eigenvalues; a multiple one occurs as often as its multiplicity.
    vectors : MultiVector
        ``vectors[i]`` belongs to ``values[i]``; X^T M X = 1.
    residuals : (k,) float64
        Norms of A x - lambda M x, see `chebyshev_subspace`.
    tolerance : float
        Bound of the residuals of a converged result.
    converged : bool
        Whether all residuals are within the tolerance, and no lower eigenvalue is missing.
    iterations : int
        How often Ritz vectors were computed.
    products : int
        Products of A with a vector.
    state : SubspaceState
        Vectors from which another run can begin.
    history : tuple of float
        With ``history=True`` the largest residual after each iteration; else empty.
    reason : str
        Empty if the iteration has converged. Otherwise it names the limit that has ended the
        iteration, and the cause of slow convergence.
    """

    values: Floats
    vectors: MultiVector
    residuals: Floats
    tolerance: float
    converged: bool
    iterations: int
    products: int
    state: SubspaceState
    history: tuple[float, ...] = ()
    reason: str = ""
