"""Load vector: the integral of f v."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.boundary import BoundaryGeometry
from femops.boundary_space import BoundarySpace
from femops.geometry import Geometry
from femops.operators.coefficients import PlainCoefficient, at_points
from femops_meshes.interpolation import tensor_apply


def load(
    V: Space,
    f: PlainCoefficient,
    *,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    r"""Load vector, :math:`b_i = \int_\Omega f \cdot v_i\, dx`.

    Parameters
    ----------
    V : Space
        Test space.
    f : number, callable or array
        A constant, a function of x (shape (dim, n)) that returns (n,) or (ncomp, n), or an array
        (ne, nq[, ncomp]); one value for all components is (n,) or (ne, nq).
    quadrature : int or Quadrature1D, optional
        Points per direction (Gauss), or a rule; p + 2 Gauss points if omitted.
    dtype : dtype
        Type of the result, float64 or float32; sums are formed in float64.

    Returns
    -------
    l_vec of V

    Raises
    ------
    OperatorError
        f of another shape or with values that are not finite.
    """
    rule = V.quadrature(quadrature)
    return load_vector(V, Geometry(V.mesh, rule), f, "f", dtype)


def load_vector(
    V: Space | BoundarySpace,
    geometry: Geometry | BoundaryGeometry,
    f: PlainCoefficient,
    name: str,
    dtype: DTypeLike,
) -> NDArray[Any]:
    """Integral of f v over the elements of a space, or over the faces of one.

    Parameters
    ----------
    V, f, dtype
        See `load`.
    geometry : Geometry or BoundaryGeometry
        Of these elements.
    name : str
        Of f, for messages.
    """
    kind, points = V.zeros(dtype).dtype, geometry.quadrature.points
    shape = () if V.ncomp == 1 else (V.ncomp,)
    transposed = [V.basis.interpolation(points).T] * V.dim
    e_vec = np.empty((geometry.num_elements, V.p1d**V.dim, *shape))
    for block in geometry:
        values = at_points(f, block, name, (shape, ()) if shape else ((),))
        if values.ndim == 2 and shape:  # one value for all components
            values = values[..., np.newaxis]
        weights = block.weighted_det.reshape(*block.weighted_det.shape, *(1,) * len(shape))
        e_vec[block.start : block.stop] = tensor_apply(transposed, weights * values)
    return V.restriction.scatter_add(e_vec).astype(kind, copy=False)
