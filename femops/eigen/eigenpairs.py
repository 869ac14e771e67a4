"""Results of eigensolvers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.fields.multivector import MultiVector

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class SubspaceState:
    """Vectors of an iteration, from which another iteration can start.

    Attributes
    ----------
    vectors : MultiVector
        Orthonormal Ritz vectors, with guard vectors.
    values : (n,) array
        Ritz values of the vectors, ascending.
    """

    vectors: MultiVector
    values: Floats


@final
@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """Eigenvalues and eigenvectors, with a report of the iteration.

    Attributes
    ----------
    values : (k,) float64
        Eigenvalues, ascending. A multiple eigenvalue is repeated.
    vectors : MultiVector
        Eigenvectors: ``vectors[i]`` belongs to ``values[i]``, and X^T M X = 1.
    residuals : (k,) float64
        Norms of A x - lambda M x, see `chebyshev_subspace`.
    tolerance : float
        Bound of the residuals of a converged result.
    converged : bool
        Whether all residuals are within the tolerance, and a search has found no lower eigenvalue.
    iterations : int
        Number of times that Ritz vectors were computed.
    products : int
        Number of products of A with a vector.
    state : SubspaceState
        Vectors from which another run can start.
    history : tuple of float
        Largest residual after each iteration. Empty without ``history=True``.
    reason : str
        Limit that ended the iteration, and cause of slow convergence. Empty if the iteration has
        converged.
    filter_dtype : dtype
        Type of the numbers in the last filter, or that of the vectors after `lobpcg`.
    """

    values: Floats
    vectors: MultiVector
    residuals: Floats = field(repr=False)
    tolerance: float
    converged: bool
    iterations: int
    products: int
    state: SubspaceState = field(repr=False)
    history: tuple[float, ...] = field(default=(), repr=False)
    reason: str = ""
    filter_dtype: np.dtype[Any] = np.dtype(np.float64)  # noqa: RUF009  (never changed)
