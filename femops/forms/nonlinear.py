"""Nonlinear forms of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.forms.form import check_names
from femops.forms.options import NonlinearOptions, Options, with_options
from femops.operators.execution.choice import backend_of
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.nonlinear import NonlinearForm
from femops.pointwise.trace import FormFunction
from femops.spaces.base import Space
from femops_meshes.arguments import checked


@with_options(NonlinearOptions)
@checked(OperatorError)
def nonlinear_form(
    function: FormFunction,
    space: Space,
    *,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
    **coefficients: Any,
) -> NonlinearForm:
    r"""Nonlinear form that is given as a function of the field at one point.

    Parameters
    ----------
    function : callable
        As for `femops.form`, but it need not be linear in u: the form is
        :math:`\int_\Omega f(u, \nabla u) \cdot v + F(u, \nabla u) : \nabla v\, dx` with what the
        function returns as ``{"value": f, "grad": F}``.
    space : Space
        Of u and v.
    **options
        See `femops.forms.options.Options`.
    **coefficients
        As for `femops.form`; they are read when the form is made.

    Returns
    -------
    NonlinearForm
        Its derivative is made from the same function, by differentiation of the traced
        expressions.

    Raises
    ------
    TraceError
        A function that can't be traced; the message names the line. A coefficient that is called
        like one of the arguments above.
    OperatorError
        Coefficients of a wrong shape or with values that are not finite; a `Product`: nonlinear
        forms have one field.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((3,)), order=2)
    >>> F = femops.nonlinear_form(lambda u: {"value": u**3, "grad": u.grad}, V)
    >>> u = V.interpolate(lambda x: 1 + x[0])
    >>> bool(abs(F.residual(u).sum() - 15 / 4) < 1e-12)  # the integral of (1 + x)^3
    True
    """
    check_names(function, 1, nonlinear_form)
    given = {name: FormCoefficient(name, value) for name, value in coefficients.items()}
    options: NonlinearOptions = {"quadrature": quadrature, "dtype": dtype, "lanes": lanes}
    return build_nonlinear(function, space, given, options)


def build_nonlinear(
    function: FormFunction,
    space: Space,
    coefficients: Mapping[str, FormCoefficient],
    options: NonlinearOptions,
) -> NonlinearForm:
    """Nonlinear form of a function whose coefficients are known to be checked."""
    o = Options(**options)
    if not isinstance(space, Space):
        raise OperatorError(
            f"a nonlinear form was given a {type(space).__name__} for a space: it has one field, "
            "make its space with femops.H1(mesh, order)"
        )
    backend_of(space).check_lanes(o.lanes)
    rule = space.quadrature(o.quadrature)
    return NonlinearForm(function, space, rule, coefficients, o.dtype, o.lanes)
