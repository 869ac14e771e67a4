"""Convection: the integral of (beta . grad u) v."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.forms.form import build
from femops.operators.integrals.coefficients import Coefficient, Given
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _convection(u: Any, beta: Any) -> dict[str, Any]:
    return {"value": u.grad @ np.atleast_1d(beta)}


def convection(
    V: Space,
    beta: Coefficient,
    *,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
) -> Operator:
    r"""Convection operator, :math:`\int_\Omega (\beta \cdot \nabla u) \cdot v\, dx`.

    It is not symmetric: ``A.T`` is its transpose.

    Parameters
    ----------
    V : Space
        Trial and test space.
    beta : sequence, callable, array or GridFunction
        Velocity: a constant (dim,), a function of x that returns (dim, n), an array (ne, nq, dim)
        at the quadrature points, or a field of dim components; in 1-D one number will do for (1,).
    quadrature : int or Quadrature1D, optional
        Points per direction (Gauss), or a rule; p + 2 Gauss points if omitted.
    dtype : dtype
        float64 or float32: type of the vectors, the stored data and the arithmetic.
    data_dtype : dtype, optional
        Type of the numbers stored at quadrature points (levels partial, decomposed and none, where
        they store such): float32 in an operator of float64 halves them; see `Operator.at_level`.
    lanes : int, optional
        SIMD slots; what the machine has if omitted.
    level : {"full", "element", "decomposed", "partial", "none", "auto"}
        Level of assembly; see `Operator.at_level`.

    Returns
    -------
    Operator

    Raises
    ------
    OperatorError
        A coefficient of another shape or with values that are not finite; an unknown level, or
        one that would not fit into memory.
    SpaceError, GeometryError
        Too few quadrature points; inverted elements.

    Notes
    -----
    Partial assembly: w det(J) J^-1 beta is stored at each point, dim numbers; once in each element
    if all are affine and beta is constant in each.
    """
    coefficients = {
        "beta": Given("beta", beta, ((V.dim,), ()) if V.dim == 1 else ((V.dim,),)),
    }
    return build(_convection, V, None, quadrature, coefficients, dtype, lanes, level, data_dtype)
