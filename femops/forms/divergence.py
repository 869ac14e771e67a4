"""Divergence: the integral of q div u, between two spaces."""

from __future__ import annotations

from typing import Any, Unpack

from femops.errors import OperatorError
from femops.forms.form import FormOptions, build, built_in
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _divergence(u: Any) -> dict[str, Any]:
    return {"value": u.div}


@built_in(FormOptions)
def divergence(V: Space, Q: Space, **options: Unpack[FormOptions]) -> Operator:
    r"""Divergence from a vector to a scalar space, :math:`\int_\Omega q\, \nabla \cdot u\, dx`.

    The transpose, :math:`\int_\Omega q\, \nabla \cdot v\, dx` for all v, is minus the weak gradient
    of q. Integration by parts gives :math:`-\int_\Omega \nabla q \cdot v\, dx` for v without a
    normal component on the boundary.  The operator is rectangular, (Q.size, V.size). Impose
    essential conditions on u by ``eliminated(columns=dofs)``.

    Parameters
    ----------
    V : Space
        Trial space of u: H1 with as many components as dimensions.
    Q : Space
        Test space of q: H1 or L2 with one component, on the same mesh.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Partial assembly: w det(J) J^-1 is stored at each point, dim^2 numbers, or once in each element
    if all elements are affine.
    """
    if V.ncomp != V.dim or Q.ncomp != 1:
        raise OperatorError(
            f"divergence from {V.ncomp} to {Q.ncomp} components: "
            f"make V with ncomp={V.dim} and Q with ncomp=1"
        )
    return build(_divergence, V, Q, {}, options)
