"""The p-Laplacian."""

from __future__ import annotations

from typing import Any, Unpack

from femops.errors import OperatorError
from femops.forms.options import NonlinearOptions, with_options
from femops.forms.residual import build_residual
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.residual import Residual
from femops.pointwise.expressions.tensors import inner
from femops.spaces.base import Space
from femops_meshes.arguments import checked


def _p_laplacian(u: Any, p: Any, epsilon: Any) -> dict[str, Any]:
    return {"grad": (epsilon**2 + inner(u.grad, u.grad)) ** (0.5 * p - 1.0) * u.grad}


@with_options(NonlinearOptions)
@checked(OperatorError)
def p_laplacian(
    V: Space,
    p: Coefficient,
    epsilon: Coefficient = 1e-3,
    **options: Unpack[NonlinearOptions],
) -> Residual:
    r"""The regularised p-Laplacian.

    :math:`\int_\Omega (\varepsilon^2 + |\nabla u|^2)^{(p - 2) / 2}\, \nabla u : \nabla v\, dx`.

    Parameters
    ----------
    V : Space
    p : number, callable, array or GridFunction
        The exponent, positive; 2 gives the Laplacian.
    epsilon : number, callable, array or GridFunction
        Regularisation, in units of the gradient; positive, so that the form is smooth where the
        gradient vanishes.
    **options
        See `femops.forms.options.Options`.

    Returns
    -------
    Residual

    Raises
    ------
    OperatorError
        A coefficient of another shape, with values that are not finite, or not positive.
    SpaceError, GeometryError
        Too few quadrature points; inverted elements.
    """
    coefficients = {
        "p": FormCoefficient("p", p, ((),), positive=True),
        "epsilon": FormCoefficient("epsilon", epsilon, ((),), positive=True),
    }
    return build_residual(_p_laplacian, V, coefficients, options)
