"""Convection: the integral of (beta . grad u) v."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from femops.forms.form import FormOptions, build, built_in
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _convection(u: Any, beta: Any) -> dict[str, Any]:
    return {"value": u.grad @ np.atleast_1d(beta)}


@built_in(FormOptions)
def convection(V: Space, beta: Coefficient, **options: Unpack[FormOptions]) -> Operator:
    r"""Convection operator, :math:`\int_\Omega (\beta \cdot \nabla u) \cdot v\, dx`.

    The operator is not symmetric. ``A.T`` is its transpose.

    Parameters
    ----------
    V : Space
        Trial and test space.
    beta : sequence, callable, array or GridFunction
        Velocity: a constant (dim,), a function of x that returns (dim, n), an array (ne, nq, dim)
        at the quadrature points, or a field of dim components. In 1-D it may be one number.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Partial assembly: w det(J) J^-1 beta is stored at each point, dim numbers. If all elements are
    affine and beta is constant in each, these numbers are stored once per element.
    """
    given = FormCoefficient("beta", beta, ((V.dim,), ()) if V.dim == 1 else ((V.dim,),))
    return build(_convection, V, None, {"beta": given}, options)
