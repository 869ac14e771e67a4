"""Helmholtz: the integral of kappa grad u . grad v - k^2 u v."""

from __future__ import annotations

from typing import Any, Unpack

from femops.forms.form import FormOptions, build, built_in, scalars
from femops.operators.integrals.coefficients import Coefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _helmholtz(u: Any, k: Any, kappa: Any) -> dict[str, Any]:
    return {"value": -(k * k) * u, "grad": kappa * u.grad}


@built_in(FormOptions)
def helmholtz(
    V: Space, k: Coefficient = 1.0, kappa: Coefficient = 1.0, **options: Unpack[FormOptions]
) -> Operator:
    r"""Helmholtz operator, :math:`\int_\Omega \kappa \nabla u : \nabla v - k^2 u \cdot v\, dx`.

    The operator is symmetric. It is indefinite if k exceeds the lowest resonance. Then solve with
    `femops.minres`, not `femops.cg`. On a space of several components the operator acts on each.

    Parameters
    ----------
    V : Space
        Trial and test space.
    k : number, callable, array or GridFunction
        Wave number, in 1 / length (times the root of kappa's unit). A constant, a function of x
        (dim, n) that returns (n,), an array (ne, nq) at the quadrature points, or a field. The sign
        does not matter.
    kappa : number, callable, array or GridFunction
        Scalar coefficient of the gradients, in the same forms as k.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Partial assembly: -w det(J) k^2 and the upper triangle of w det(J) J^-1 kappa J^-T are stored
    at each point, 2, 4 or 7 numbers in 1, 2 and 3 dimensions.  If all elements are affine, numbers
    that are constant in each element are stored once per element. Other numbers are stored at the
    points.
    """
    return build(_helmholtz, V, None, scalars(k=k, kappa=kappa), options)
