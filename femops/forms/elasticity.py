"""Linear elasticity."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from femops.errors import OperatorError
from femops.forms.form import FormOptions, build, built_in, check_displacements, scalars
from femops.operators.integrals.coefficients import Coefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space
from femops_common.arguments import number_of


def _elasticity(u: Any, lam: Any, mu: Any) -> dict[str, Any]:
    strain = u.sym_grad
    return {"grad": lam * u.div * np.eye(len(strain)) + 2.0 * mu * strain}


def _by_young(u: Any, E: Any, nu: Any) -> dict[str, Any]:
    mu = E / (2.0 * (1.0 + nu))
    return _elasticity(u, 2.0 * nu / (1.0 - 2.0 * nu) * mu, mu)


_by_young.__name__ = _elasticity.__name__  # messages show the name that users know


@built_in(FormOptions)
def elasticity(
    V: Space,
    lam: Coefficient | None = None,
    mu: Coefficient | None = None,
    *,
    E: Coefficient | None = None,
    nu: Coefficient | None = None,
    **options: Unpack[FormOptions],
) -> Operator:
    r"""Linear elasticity of an isotropic material.

    :math:`\int_\Omega \lambda\, (\nabla \cdot u)(\nabla \cdot v) + 2 \mu\, \varepsilon(u) :
    \varepsilon(v)\, dx` with :math:`\varepsilon(u) = (\nabla u + \nabla u^T) / 2`. The material is
    given by Lame's parameters, or by Young's modulus and Poisson's ratio:
    :math:`\mu = E / (2 (1 + \nu))` and :math:`\lambda = 2 \mu \nu / (1 - 2 \nu)`. In 2-D this is
    plane strain.

    Parameters
    ----------
    V : Space
        Trial and test space, with as many components as dimensions.
    lam, mu : number, callable, array or GridFunction
        Lame's parameters, in units of stress, of any sign. 1 by default.
    E, nu : number, callable, array or GridFunction
        Young's modulus, in units of stress, and Poisson's ratio, between -1 and 0.5. Give both, and
        neither lam nor mu. `Operator.update` knows the coefficients by the names given here.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Partial assembly: J^-1 and w det(J) are stored at each point, 5 numbers in 2-D and 10 in 3-D. If
    all elements are affine, they are stored once per element. D itself has more distinct entries,
    45 in 3-D. The parameters are stored too: at each point, in each element, or once if they are
    constant.
    """
    check_displacements(V, elasticity)
    if E is None and nu is None:
        lame = scalars(lam=1.0 if lam is None else lam, mu=1.0 if mu is None else mu)
        return build(_elasticity, V, None, lame, options)
    if E is None or nu is None or lam is not None or mu is not None:
        raise OperatorError("elasticity takes lam and mu, or both E and nu: give one of the pairs")
    ratio = number_of(nu)
    if ratio is not None and not -1.0 < ratio < 0.5:
        raise OperatorError(
            f"nu is {ratio:g}: give a Poisson's ratio between -1 and 0.5; for an incompressible "
            "material solve for a pressure too (docs/solids.md)"
        )
    return build(_by_young, V, None, scalars(E=E, nu=nu), options)
