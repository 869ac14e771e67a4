"""Mass: the integral of rho u v."""

from __future__ import annotations

from typing import Any, Unpack

from femops.forms.form import FormOptions, build, built_in, scalars
from femops.operators.integrals.coefficients import Coefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _mass(u: Any, rho: Any) -> dict[str, Any]:
    return {"value": rho * u}


@built_in(FormOptions)
def mass(V: Space, rho: Coefficient = 1.0, **options: Unpack[FormOptions]) -> Operator:
    r"""Mass operator, :math:`\int_\Omega \rho\, u \cdot v\, dx`.

    On a space of several components the operator acts on each component (vector mass).

    Parameters
    ----------
    V : Space
        Trial and test space.
    rho : number, callable, array or GridFunction
        Density: a constant, a function of x (dim, n) that returns (n,), an array (ne, nq)
        at the quadrature points, or a field.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Partial assembly: w det(J) rho is stored at each point, one number (Table 1, "near-optimal
    evaluation"). If all elements are affine and rho is constant in each, the number is stored once
    per element.

    rho need not be positive. The operator may be a term of a sum, like -k^2 in Helmholtz's
    operator. If `femops.cg` detects that the operator is not definite, it raises an error.
    """
    return build(_mass, V, None, scalars(rho=rho), options)
