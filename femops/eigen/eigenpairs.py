"""Results of eigensolvers, and checks of their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SolverError
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


def check_numbers(numbers: Mapping[str, Any], free: int) -> None:
    """Raise if an eigensolver's option is no number or out of range, with ``free`` free dofs."""
    for name, least in {"k": 1, "guard": 0, "maxiter": 1, "max_products": 1, "seed": 0}.items():
        value = numbers[name]
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        optional = name in {"guard", "max_products"} and value is None
        if not (whole and value >= least) and not optional:
            raise SolverError(f"{name} = {value!r}: give a whole number >= {least}")
    if not free:
        raise SolverError("no dof is free: constrain fewer dofs")
    if numbers["k"] > free:
        raise SolverError(f"k = {numbers['k']}, but only {free} dofs are free: give at most {free}")
    tol = numbers["tol"]
    real = isinstance(tol, int | float | np.integer | np.floating) and not isinstance(tol, bool)
    if not (real and 0.0 < tol < np.inf):
        raise SolverError(f"tol = {tol!r}: give a number > 0")
