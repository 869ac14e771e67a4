"""Functionals of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.forms.form import arguments_of, check_fields, check_names
from femops.forms.options import NonlinearOptions, with_options
from femops.operators.execution.choice import backend_of
from femops.operators.functional import Functional
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.number_types import float_type
from femops.pointwise.trace import FormFunction
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_kernels.cpu.machine import lane_width
from femops_meshes.arguments import checked


@with_options(NonlinearOptions)
@checked(OperatorError)
def functional(
    function: FormFunction,
    space: Space | Product,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
    **coefficients: Any,
) -> Functional:
    r"""Integral of a function of fields: energies, drag, means, and their derivatives.

    Parameters
    ----------
    function : callable
        ``function(*fields, x, **coefficients)`` as for `femops.form`, which returns a number: the
        functional is :math:`\int_\Omega f(u, \nabla u)\, dx`.  It need not be linear.
    space : Space or Product
        Of the fields.
    boundary : "all", True, int, name, or several, optional
        Integrate over the boundary instead, as for `femops.form`.
    **options
        See `femops.forms.options.Options`.
    **coefficients
        As for `femops.form`; they are read when the functional is made.

    Returns
    -------
    Functional
        ``J(u)`` is a number, ``J.derivative`` the `Residual` that is its derivative.

    Raises
    ------
    TraceError
        A function that can't be traced; the message names the line.
    OperatorError
        Coefficients of a wrong shape or with values that are not finite.
    SpaceError
        A boundary integral over an attribute that the mesh does not have.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((3,)), order=2)
    >>> J = femops.functional(lambda u: 0.5 * femops.inner(u.grad, u.grad) + u**4, V)
    >>> u = V.interpolate(lambda x: x[0])
    >>> bool(abs(J(u) - 0.7) < 1e-14)
    True
    >>> gradient = J.derivative.residual(u)
    >>> bool(abs(gradient.sum() - 1.0) < 1e-14)  # in the direction 1: the integral of 4 x^3
    True
    """
    fields = space.names if isinstance(space, Product) else ()
    check_names(function, len(fields) or 1, functional)
    given = {name: FormCoefficient(name, value) for name, value in coefficients.items()}
    if isinstance(space, Product):
        check_fields(function, space, given)
    backend_of(space).check_lanes(lanes)
    sides = arguments_of(space, boundary)
    largest = max(sides.spaces.values(), key=lambda one: one.order)
    rule, kind = largest.quadrature(quadrature), float_type(dtype)
    return Functional.of(function, sides, rule, given, (kind, lane_width(kind, lanes)))
