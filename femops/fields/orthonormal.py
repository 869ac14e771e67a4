"""Small matrices that make vectors orthonormal, from their Gram matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from femops.errors import VectorError

Array = NDArray[Any]

# Round-off of a Gram matrix with ones on the diagonal is about the machine's precision times its
# size. Eigenvalues below this multiple of the round-off count as zero.
_ROUND_OFF = 100.0
GOOD = 100.0
"""Condition number of a Gram matrix below which one round makes vectors orthonormal."""


def scaled(gram: Array) -> tuple[Array, Array]:
    """Scale a Gram matrix to ones on the diagonal. Return it, and the factors (nvec,).

    Rows and columns are multiplied by the factors. Rows of zero vectors stay zero.
    """
    if not np.isfinite(gram).all():
        raise VectorError("inner products of the vectors are not finite: look where they come from")
    diagonal = gram.diagonal().real
    if (diagonal < 0.0).any():
        raise VectorError("the mass is found not to be positive definite")
    factors = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0.0)
    return factors[:, np.newaxis] * ((gram + gram.conj().T) / 2) * factors, factors


def orthonormalising(gram: Array, eps: float) -> tuple[Array, int, float]:
    """Matrix (nvec, nvec) that makes vectors with this Gram matrix orthonormal.

    Shapes: `gram` (nvec, nvec), `matrix` (nvec, nvec).
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
