"""The p-Laplacian."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.forms.nonlinear import build_nonlinear
from femops.operators.integrals.coefficients import Coefficient, Given
from femops.operators.nonlinear import NonlinearForm
from femops.pointwise.tensors import inner
from femops.spaces.base import Space


def _p_laplacian(u: Any, p: Any, epsilon: Any) -> dict[str, Any]:
    return {"grad": (epsilon**2 + inner(u.grad, u.grad)) ** (0.5 * p - 1.0) * u.grad}


def p_laplacian(
    V: Space,
    p: Coefficient,
    epsilon: Coefficient = 1e-3,
    *,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
) -> NonlinearForm:
    r"""The regularised p-Laplacian.

    :math:`\int_\Omega (\varepsilon^2 + |\nabla u|^2)^{(p - 2) / 2}\, \nabla u : \nabla v\, dx`.

    Parameters
    ----------
    V : Space
    p : number, callable, array or GridFunction
        The exponent; 2 gives the Laplacian.
    epsilon : number, callable, array or GridFunction
        Regularisation, in units of the gradient; positive, so that the form is smooth where the
        gradient vanishes.
    quadrature : int or Quadrature1D, optional
        Points per direction (Gauss), or a rule; p + 2 Gauss points if omitted.
    dtype : dtype
        float64 or float32: type of the vectors, the stored data and the arithmetic.
    lanes : int, optional
        SIMD slots; what the machine has if omitted.

    Returns
    -------
    NonlinearForm

    Raises
    ------
    OperatorError
        A coefficient of another shape, with values that are not finite, or not positive.
    SpaceError, GeometryError
        Too few quadrature points; inverted elements.
    """
    coefficients = {
        "p": Given("p", p, ((),), positive=True),
        "epsilon": Given("epsilon", epsilon, ((),), positive=True),
    }
    return build_nonlinear(_p_laplacian, V, quadrature, coefficients, dtype, lanes)
