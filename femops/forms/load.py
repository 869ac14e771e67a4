"""Load vector: the integral of f v + F : grad v."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.geometry import Geometry, GeometryBlock
from femops.operators.coefficients import PlainCoefficient, at_points
from femops_meshes.interpolation import tensor_apply

Floats = NDArray[np.float64]


def load(
    V: Space,
    f: PlainCoefficient | None = None,
    *,
    flux: PlainCoefficient | None = None,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    r"""Load vector, :math:`b_i = \int_\Omega f \cdot v_i + F : \nabla v_i\, dx`.

    Parameters
    ----------
    V : Space
        Test space.
    f : number, callable or array, optional
        A constant, a function of x (shape (dim, n)) that returns (n,) or (ncomp, n), or an array
        (ne, nq[, ncomp]); one value for all components is (n,) or (ne, nq).
    flux : array or callable, optional
        F, that multiplies the gradient, as a heat flux or a stress does: a constant (dim,), or
        (ncomp, dim) with more than one component; a function of x that returns (dim, n) or
        (ncomp, dim, n); or an array (ne, nq[, ncomp], dim).
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
        Neither f nor flux, or one of another shape or with values that are not finite.
    """
    if f is None and flux is None:
        raise OperatorError("a load of nothing: give f, flux or both")
    rule = V.quadrature(quadrature)
    values, slopes = V.basis.interpolation(rule.points).T, V.basis.gradient(rule.points).T
    e_vec = np.zeros((V.mesh.num_elements, V.p1d**V.dim, *_components(V)))
    for block in Geometry(V.mesh, rule):
        here = e_vec[block.start : block.stop]
        if f is not None:
            here += tensor_apply([values] * V.dim, _sources(V, f, block))
        if flux is not None:
            for k, along in enumerate(_reference_fluxes(V, flux, block)):
                here += tensor_apply([slopes if d == k else values for d in range(V.dim)], along)
    return V.restriction.scatter_add(e_vec).astype(V.zeros(dtype).dtype, copy=False)


def _components(V: Space) -> tuple[int, ...]:
    return () if V.ncomp == 1 else (V.ncomp,)


def _sources(V: Space, f: PlainCoefficient, block: GeometryBlock) -> Floats:
    """F times the weight, (n, nq[, ncomp]); one value will do for all components."""
    shape = _components(V)
    values = at_points(f, block, V.mesh.num_elements, "f", (shape, ()) if shape else ((),))
    if values.ndim == 2 and shape:
        values = values[..., np.newaxis]
    weights = block.weighted_det.reshape(*block.weighted_det.shape, *(1,) * len(shape))
    return weights * np.broadcast_to(values, (*weights.shape[:2], *shape))


def _reference_fluxes(V: Space, flux: PlainCoefficient, block: GeometryBlock) -> list[Floats]:
    """W det(J) F J^-T: what multiplies each reference derivative, (n, nq[, ncomp]) each."""
    shape = (*_components(V), V.dim)
    values = at_points(flux, block, V.mesh.num_elements, "flux", (shape,))
    factors = block.weighted_det[..., np.newaxis, np.newaxis] * block.inverse
    pulled = np.einsum("eq...i,eqji->jeq...", values, factors)
    return list(pulled)
