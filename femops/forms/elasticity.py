"""Linear elasticity."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from femops.forms.form import build, check_displacements, scalars
from femops.forms.options import FormOptions, built_in
from femops.operators.integrals.coefficients import Coefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space


def _elasticity(u: Any, lam: Any, mu: Any) -> dict[str, Any]:
    strain = u.sym_grad
    return {"grad": lam * u.div * np.eye(len(strain)) + 2.0 * mu * strain}


@built_in(FormOptions)
def elasticity(
    V: Space, lam: Coefficient = 1.0, mu: Coefficient = 1.0, **options: Unpack[FormOptions]
) -> Operator:
    r"""Linear elasticity of an isotropic material.

    :math:`\int_\Omega \lambda\, (\nabla \cdot u)(\nabla \cdot v) + 2 \mu\, \varepsilon(u) :
    \varepsilon(v)\, dx` with :math:`\varepsilon(u) = (\nabla u + \nabla u^T) / 2`.

    Parameters
    ----------
    V : Space
        Trial and test space, with as many components as dimensions.
    lam, mu : number, callable, array or GridFunction
        Lame's parameters, in units of stress, of any sign.
    **options
        See `femops.forms.options.Options`.

    Notes
    -----
    Partial assembly: J^-1 and w det(J) are stored at each point, 5 numbers in 2-D and 10 in 3-D. If
    all elements are affine, they are stored once per element. D itself has more distinct entries,
    45 in 3-D. The parameters are stored too: at each point, in each element, or once if they are
    constant.
    """
    check_displacements(V, elasticity)
    return build(_elasticity, V, None, scalars(lam=lam, mu=mu), options)
