"""Diffusion: the integral of kappa grad u . grad v."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.forms.coefficients import Coefficient, at_points
from femops.geometry import GeometryBlock
from femops.operators.operator import Operator
from femops.operators.term import Term
from femops.pointwise import diffusion_program
from femops.pointwise.program import upper_triangle


def diffusion(
    V: Space,
    kappa: Coefficient = 1.0,
    *,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
) -> Operator:
    r"""Diffusion operator, :math:`\int_\Omega \kappa \nabla u : \nabla v\, dx`.

    On a space of several components it acts on each of them alike (vector diffusion).

    Parameters
    ----------
    V : Space
        Trial and test space.
    kappa : number, callable or array
        Conductivity: a scalar, the diagonal (dim,) or a symmetric tensor (dim, dim); constant, or
        a function of x (shape (dim, n)) that returns (n,), (dim, n) or (dim, dim, n), or an array
        (ne, nq), (ne, nq, dim) or (ne, nq, dim, dim).
    quadrature : int or Quadrature1D, optional
        Points per direction (Gauss), or a rule; p + 2 Gauss points if omitted.
    dtype : dtype
        float64 or float32: type of the vectors, the stored data and the arithmetic.
    lanes : int, optional
        SIMD slots; what the machine has if omitted.

    Returns
    -------
    Operator

    Raises
    ------
    OperatorError
        A coefficient of another shape, one that is not symmetric, or values that are not finite.
    SpaceError, GeometryError
        Too few quadrature points; inverted elements.

    Notes
    -----
    Partial assembly: the symmetric w det(J) J^-1 kappa J^-T is stored at each point; 1, 3 or 6
    numbers.
    """
    dim = V.dim

    def qdata(block: GeometryBlock) -> NDArray[Any]:
        values = at_points(kappa, block, V.mesh.num_elements, "kappa", ((), (dim,), (dim, dim)))
        inverse = block.inverse  # [..., a, i] = d xi_a / d x_i
        skew = np.abs(values - values.swapaxes(-1, -2)) if values.ndim == 4 else np.zeros(1)
        round_off = 1e-12 * np.abs(values).max(initial=0.0)
        if skew.max(initial=0.0) > round_off:
            raise OperatorError("kappa is not symmetric: diffusion takes symmetric tensors")
        weighted = inverse * block.weighted_det[..., np.newaxis, np.newaxis]
        if values.ndim == 4:
            weighted = weighted @ values
        else:
            weighted = weighted * values.reshape(*values.shape[:2], 1, -1)
        pairs = upper_triangle(dim)
        out = np.empty((*values.shape[:2], len(pairs)))
        for k, (a, b) in enumerate(pairs):
            out[..., k] = (weighted[..., a, :] * inverse[..., b, :]).sum(axis=-1)
        return out

    program = diffusion_program(dim, V.ncomp)
    return Operator.of_term(
        Term.make("diffusion", V, V.quadrature(quadrature), program, qdata, dtype, lanes)
    )
