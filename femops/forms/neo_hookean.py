"""Compressible neo-Hookean elasticity."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from femops.forms.form import NonlinearOptions, built_in, check_displacements, scalars
from femops.forms.residual import build_residual
from femops.operators.integrals.coefficients import Coefficient
from femops.operators.residual import Residual
from femops.pointwise.expressions.tensors import det, inv
from femops.spaces.base import Space


def _neo_hookean(u: Any, lam: Any, mu: Any) -> dict[str, Any]:
    gradient = np.atleast_2d(u.grad)
    deformation = np.eye(len(gradient)) + gradient
    inverse = inv(deformation)
    stress = mu * (deformation - inverse.T) + lam * np.log(det(deformation)) * inverse.T
    return {"grad": stress}


@built_in(NonlinearOptions)
def neo_hookean(
    V: Space, lam: Coefficient = 1.0, mu: Coefficient = 1.0, **options: Unpack[NonlinearOptions]
) -> Residual:
    r"""Compressible neo-Hookean elasticity in the reference configuration.

    :math:`\int_\Omega P(u) : \nabla v\, dx` with the first Piola-Kirchhoff stress
    :math:`P = \mu (F - F^{-T}) + \lambda \ln(\det F)\, F^{-T}`, :math:`F = I + \nabla u` (Bonet and
    Wood, Nonlinear Continuum Mechanics for Finite Element Analysis, 6.28).  In 2-D this is plane
    strain. The derivative at u = 0 is linear elasticity with the same parameters.

    Parameters
    ----------
    V : Space
        Space of displacements, with as many components as dimensions.
    lam, mu : number, callable, array or GridFunction
        Lame's parameters, in units of stress, of any sign.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    If a state inverts an element (det F <= 0), the residual is NaN. Then `femops.newton` shortens
    its step.
    """
    check_displacements(V, neo_hookean)
    return build_residual(_neo_hookean, V, scalars(lam=lam, mu=mu), options)
