"""Ritz values and Ritz vectors of a pair of operators, and their residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, eigh

from femops.eigen.pencil import Array, Pencil
from femops.errors import SolverError
from femops.fields.multivector import MultiVector
from femops.fields.reproducible import group_totals

Floats = NDArray[np.float64]
ROUND_OFF = "round-off"
"""Name of the limit of an iteration whose residuals are round-off."""
AT_ROUND_OFF = (
    "Residuals have stalled near the round-off of products with A. Give a larger tol, or a larger "
    "k if all k eigenvalues are zero"
)
"""Cause and advice where round-off is the limit."""
LEAST = float(np.sqrt(np.finfo(float).tiny))
"""Least bound of residuals, which is above zero even if all eigenvalues are zero."""
NEAR = 1e4
"""Residuals that stall are round-off if they are at most this multiple of the measured one."""


def mass_products(X: MultiVector, pencil: Pencil) -> MultiVector | None:
    """Return the products of vectors with M, or None if M is diagonal. Collective."""
    return None if pencil.mass is None else pencil.mass.apply_many(X)


def ritz_vectors(X: MultiVector, AX: MultiVector, pencil: Pencil) -> Floats:
    """Overwrite orthonormal vectors by the Ritz vectors. Return the Ritz values. Collective.

    Shapes: returned (nvec,).
    """
    small = X.gram(AX)
    values, vectors = pencil.A.space.comm.broadcast(np.linalg.eigh((small + small.T) / 2))
    X @= vectors
    AX @= vectors
    return np.asarray(values)


def lowest_pairs(small: Array, gram: Array, n: int, scale: float) -> tuple[Floats, Array]:
    """Lowest n eigenpairs of a small Hermitian pencil, with a round-off of about ``scale``.

    With zero, the round-off is that of the largest eigenvalue. Else the inverse of the pencil,
    shifted by twice the scale, gives the pairs. Its largest eigenvalues are those wanted.
    """
    try:
        if scale > 0.0:
            shift, ends = 2.0 * scale, (len(gram) - n, len(gram) - 1)
            try:
                found, vectors = eigh(gram, small + shift * gram, subset_by_index=ends)
            except LinAlgError:  # the lowest value has fallen below the shift
                found = np.zeros(1)
            if found[0] > 0.0:
                found, vectors = found[::-1], vectors[:, ::-1]
                return 1.0 / found - shift, vectors / np.sqrt(found)
        values, vectors = eigh(small, gram, subset_by_index=(0, n - 1))
    except (LinAlgError, ValueError) as error:
        raise SolverError(
            "products of A or M are not finite, or M is not positive definite"
        ) from error
    return values, vectors


def product_round_off(X: MultiVector, pencil: Pencil) -> Floats:
    """Norms (nvec,) of the round-off of products of A with vectors. Collective.

    It is measured: the entries of a third of the product with 3 x are rounded in another way.
    """
    third = pencil.A.apply_many(3.0 * X)
    third /= 3.0
    third -= pencil.A.apply_many(X)
    return residuals(X, third, None, np.zeros(X.nvec), pencil)


def size_of_wanted(values: Floats, k: int, kind: np.dtype[Any]) -> float:
    """Size of the k lowest eigenvalues. If they are zero, a small part of the other eigenvalues."""
    sizes, eps = np.abs(values), float(np.finfo(kind).eps)
    return float(max(sizes[:k].max(), np.sqrt(eps) * sizes.max()))


def all_ritz_pairs(X: MultiVector, k: int, n: int, pencil: Pencil) -> tuple[Floats, MultiVector]:
    """Lowest n Ritz pairs of a basis of all vectors, exact for the k lowest. Collective."""
    small, gram = X.gram(pencil.A.apply_many(X)), X.mass_gram(pencil.norm_mass)
    values, _ = lowest_pairs(small, gram, n, 0.0)
    found = lowest_pairs(small, gram, n, size_of_wanted(values, k, X.dtype))
    values, vectors = pencil.A.space.comm.broadcast(found)
    return values, X @ vectors


def residuals(
    X: MultiVector, AX: MultiVector, MX: MultiVector | None, values: Floats, pencil: Pencil
) -> Floats:
    """Overwrite AX by residuals A x - lambda M x. Return their norms (nvec,). Collective.

    Norms are weighted by the inverse of M's diagonal.

    Parameters
    ----------
    X, AX, MX : MultiVector
        Vectors, and their products with A and M. MX is None for a diagonal mass.
    values : (nvec,) array
        Ritz values.
    pencil : Pencil
    """
    space = pencil.A.space
    padded = np.zeros((X.npanels, X.width))
    padded.reshape(-1)[: X.nvec] = values
    factors = space.memory.put(padded.astype(X.dtype))
    parts = (_squares(X, AX, MX, factors, pencil, rows) for rows in X.row_blocks())
    if space.any_width:
        summed = group_totals(space, parts, padded.shape, padded.dtype)
    else:
        summed = space.comm.sum(sum(parts, np.zeros(padded.shape)))
    return np.asarray(np.sqrt(summed.reshape(-1)[: X.nvec]))


def _squares(
    X: MultiVector,
    AX: MultiVector,
    MX: MultiVector | None,
    factors: Array,
    pencil: Pencil,
    rows: slice,
) -> Floats:
    """Overwrite ``rows`` of AX by residuals. Return the sums (npanels, width) of their squares."""
    memory, sums = pencil.A.space.memory, []
    for k, panel in enumerate(X.panels):
        massed = panel[rows] if MX is None else MX.panels[k][rows]
        if MX is None and pencil.weights is not None:
            massed = massed * pencil.weights[rows, np.newaxis]
        residual = AX.panels[k][rows] - factors[k] * massed
        residual *= pencil.free[rows, np.newaxis]
        AX.panels[k][rows] = residual
        scaled = residual
        if pencil.scales is not None:
            scaled = residual * pencil.scales[rows, np.newaxis]
        sums.append(memory.get(memory.xp.einsum("ij,ij->j", residual.conj(), scaled).real))
    return np.array(sums, dtype=np.float64)
