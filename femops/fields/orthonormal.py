"""Small matrices that make vectors orthonormal, from their Gram matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from femops.errors import VectorError

Array = NDArray[Any]

# Of a Gram matrix with ones on the diagonal, round-off is about the machine's precision times its
# size: what is less than so many times that counts as zero.
_ROUND_OFF = 100.0
GOOD = 100.0
"""Condition number of a Gram matrix below which vectors are made orthonormal at once."""


def scaled(gram: Array) -> tuple[Array, Array]:
    """A Gram matrix with ones on the diagonal, and what rows and columns were multiplied with.

    Rows of vectors that are zero stay so.

    Raises
    ------
    VectorError
        A number that is not finite, or one below zero on the diagonal.
    """
    if not np.isfinite(gram).all():
        raise VectorError("inner products of the vectors are not finite: look where they come from")
    diagonal = gram.diagonal().real
    if (diagonal < 0.0).any():
        raise VectorError("the mass is found not to be positive definite")
    factors = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0.0)
    return factors[:, np.newaxis] * ((gram + gram.conj().T) / 2) * factors, factors


def orthonormalising(gram: Array, eps: float) -> tuple[Array, int, float]:
    """The matrix (nvec, nvec) that makes vectors orthonormal that have this Gram matrix.

    Parameters
    ----------
    gram : (nvec, nvec) array
    eps : float
        Precision of the vectors.

    Returns
    -------
    matrix : (nvec, nvec) array
        The inverse of Cholesky's factor; where that cannot be, by the eigenvectors.
    missing : int
        How many vectors become zero, as others depend on them: the last ones.
    condition : float
        About the condition number of the Gram matrix, with ones on its diagonal.

    Raises
    ------
    VectorError
        The matrix is not positive semidefinite.
    """
    small, factors = scaled(gram)
    least = _ROUND_OFF * len(gram) * eps
    try:
        upper = cholesky(small)
        pivots = np.abs(upper.diagonal())
        condition = float((pivots.max() / pivots.min()) ** 2)
        if condition * least < 1.0:
            inverse = solve_triangular(upper, np.eye(len(gram)))
            return factors[:, np.newaxis] * inverse, 0, condition
    except LinAlgError:
        pass
    values, vectors = np.linalg.eigh(small)
    if values[0] < -np.sqrt(least) * values[-1]:
        raise VectorError("the mass is found not to be positive definite")
    kept = values > least * values[-1]
    count = int(np.count_nonzero(kept))
    matrix = np.zeros_like(vectors)
    matrix[:, :count] = vectors[:, kept] / np.sqrt(values[kept])
    return factors[:, np.newaxis] * matrix, len(gram) - count, np.inf
