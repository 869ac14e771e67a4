"""The p-Laplacian."""

from __future__ import annotations

from typing import Any, Unpack

from femops.forms.form import NonlinearOptions, built_in, scalars
from femops.forms.residual import build_residual
from femops.operators.integrals.coefficients import Coefficient
from femops.operators.residual import Residual
from femops.pointwise.expressions.tensors import inner
from femops.spaces.base import Space


def _p_laplacian(u: Any, p: Any, epsilon: Any) -> dict[str, Any]:
    return {"grad": (epsilon**2 + inner(u.grad, u.grad)) ** (0.5 * p - 1.0) * u.grad}


@built_in(NonlinearOptions)
def p_laplacian(
    V: Space, p: Coefficient, epsilon: Coefficient = 1e-3, **options: Unpack[NonlinearOptions]
) -> Residual:
    r"""The regularised p-Laplacian.

    :math:`\int_\Omega (\varepsilon^2 + |\nabla u|^2)^{(p - 2) / 2}\, \nabla u : \nabla v\, dx`.

    Parameters
    ----------
    V : Space
    p : number, callable, array or GridFunction
        Exponent, positive. 2 gives the Laplacian.
    epsilon : number, callable, array or GridFunction
        Regularisation, in units of the gradient. It is positive, so that the form is smooth where
        the gradient vanishes.
    **options
        See `femops.forms.form.Options`.
    """
    given = scalars(positive=True, p=p, epsilon=epsilon)
    return build_residual(_p_laplacian, V, given, options)
