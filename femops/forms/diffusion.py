"""Diffusion: the integral of kappa grad u . grad v."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from femops.forms.form import FormOptions, build, built_in
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _diffusion(u: Any, kappa: Any) -> dict[str, Any]:
    if np.ndim(kappa) == 2:
        return {"grad": u.grad @ kappa.T}
    return {"grad": kappa * u.grad}


@built_in(FormOptions)
def diffusion(V: Space, kappa: Coefficient = 1.0, **options: Unpack[FormOptions]) -> Operator:
    r"""Diffusion operator, :math:`\int_\Omega \kappa \nabla u : \nabla v\, dx`.

    On a space of several components the operator acts on each component (vector diffusion).

    Parameters
    ----------
    V : Space
        Trial and test space.
    kappa : number, callable, array or GridFunction
        Conductivity: a scalar, a diagonal (dim,) or a tensor (dim, dim). A constant; a function of
        x (dim, n) that returns (n,), (dim, n) or (dim, dim, n); an array (ne, nq), (ne, nq, dim) or
        (ne, nq, dim, dim) at the quadrature points; or a field.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Partial assembly: w det(J) J^-1 kappa J^-T is stored at each point, 1, 3 or 6 numbers in 1, 2
    and 3 dimensions (1, 4 or 9 if kappa is not symmetric).  If all elements are affine and kappa is
    constant in each, these numbers are stored once per element. If a scalar kappa varies on affine
    elements, kappa is stored at each point, and J^-1 and det(J) in each element.

    kappa need not be positive. The operator may be a term of a sum, or kappa may change its sign in
    space. If `femops.cg` detects that the operator is not definite, it raises an error.
    """
    given = FormCoefficient("kappa", kappa, ((), (V.dim,), (V.dim, V.dim)))
    return build(_diffusion, V, None, {"kappa": given}, options)
