"""Values and gradients of element vectors, on tensor grids and at single points.

The functions are pure, and use sum factorisation. `femops.spaces` and `femops.fields` call them for
each block of elements.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.basis import Basis1D
from femops_meshes.coordinates.interpolation import tensor_apply

Floats = NDArray[np.float64]


def reference_values(basis: Basis1D, points: ArrayLike, dim: int, e_vec: Floats) -> Floats:
    """Values (n, k**dim[, ncomp]) on a tensor grid of k points; dofs (n, p1d**dim[, ncomp])."""
    return tensor_apply([basis.interpolation(points)] * dim, e_vec)


def reference_gradient(basis: Basis1D, points: ArrayLike, dim: int, e_vec: Floats) -> list[Floats]:
    """Derivatives (n, k**dim[, ncomp]) along each reference direction, x first."""
    interpolation, derivative = basis.interpolation(points), basis.gradient(points)
    return [
        tensor_apply([derivative if d == k else interpolation for d in range(dim)], e_vec)
        for k in range(dim)
    ]


def physical_gradient(slopes: Floats, inverse: Floats) -> Floats:
    """Gradient in space by the chain rule: du/dx_i = sum_j du/dxi_j dxi_j/dx_i.

    Shapes: `slopes` (n, k[, ncomp], dim), `inverse` (n, k, dim, dim), returned (n, k[, ncomp],
    dim).
    """
    result = np.zeros_like(slopes)
    factors = inverse if slopes.ndim == 3 else inverse[..., np.newaxis, :, :]
    for i, j in np.ndindex(factors.shape[-2:]):
        result[..., i] += slopes[..., j] * factors[..., j, i]
    return result


def point_values(basis: Basis1D, points: Floats, e_vec: Floats) -> Floats:
    """Values at one point in each element: (n, p1d**dim[, ncomp]) dofs -> (n[, ncomp]).

    ``points`` (n, dim) has the reference coordinates of each element's point.
    """
    return _contracted([basis.interpolation(x) for x in points.T], e_vec)


def point_weights(basis: Basis1D, points: Floats) -> Floats:
    """Values (n, p1d**dim) of all basis functions of an element at reference points (n, dim)."""
    result = np.ones((len(points), 1))
    for x in points.T:  # x fastest: the later direction varies more slowly
        along = basis.interpolation(x)
        result = (along[:, :, np.newaxis] * result[:, np.newaxis]).reshape(len(points), -1)
    return result


def point_gradient(basis: Basis1D, points: Floats, e_vec: Floats) -> list[Floats]:
    """Derivatives (n[, ncomp]) at one point in each element, along each direction, x first."""
    values = [basis.interpolation(x) for x in points.T]
    slopes = [_slopes(basis, x) for x in points.T]
    return [
        _contracted([*values[:k], slopes[k], *values[k + 1 :]], e_vec) for k in range(len(values))
    ]


def _slopes(basis: Basis1D, x: Floats) -> Floats:
    """Derivatives (n, p1d) of the basis at points, with the same bits for any number of points."""
    if not basis.is_nodal:
        return basis.gradient(x)
    # one product per point: in a large one BLAS rounds a row by the number of rows
    rows = np.matmul(basis.interpolation(x)[:, np.newaxis], basis.gradient(basis.nodes))
    return np.asarray(rows[:, 0])


def _contracted(lines: list[Floats], e_vec: Floats) -> Floats:
    """Contract the dofs of element e with row e of a matrix (n, p1d) per direction, x first."""
    n, trailing = len(e_vec), e_vec.shape[2:]
    inner = math.prod(e_vec.shape[1:])
    data = e_vec
    for line in reversed(lines):  # the slowest direction first, so that the rest is contiguous
        inner //= line.shape[1]
        data = np.einsum("nk,nkr->nr", line, data.reshape(n, line.shape[1], inner))
    return data.reshape(n, *trailing)
