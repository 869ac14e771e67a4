"""Functionals that users define by a function."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Rule
from femops.errors import OperatorError
from femops.forms.form import (
    NonlinearOptions,
    arguments_of,
    check_fields,
    check_names,
    with_options,
)
from femops.operators.execution.host import backend_of
from femops.operators.functional import Functional
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient, float_type
from femops.pointwise.trace import FormFunction
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import checked
from femops_kernels.cpu.machine import lane_width


@with_options(NonlinearOptions)
@checked(OperatorError)
def functional(
    function: FormFunction,
    space: Space | Product,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Rule | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
    **coefficients: Any,
) -> Functional:
    r"""Integral of a function of fields, with its derivative: an energy, a drag, a mean.

    Parameters
    ----------
    function : callable
        ``function(*fields, x, **coefficients)`` as for `femops.form`. It returns a number f, for
        the functional :math:`\int_\Omega f(u, \nabla u)\, dx`. f need not be linear.
    space : Space or Product
        Space of the fields.
    boundary : "all", True, int, name, or several, optional
        Integrate over the boundary, as for `femops.form`.
    faces : {"interior"}, optional
        Integrate over the faces between elements, as for `femops.form`.
    **options
        See `femops.forms.form.Options`.
    **coefficients
        See `femops.form`. The call copies them.

    Returns
    -------
    Functional
        ``J(u)`` is a number, ``J.derivative`` the `Residual` that is its derivative.

    Raises
    ------
    TraceError
        If the function can't be traced. The message names the line.
    OperatorError
        If coefficients have a wrong shape, or values that are not finite.
    SpaceError
        If the mesh does not have a boundary attribute.

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
    kind = float_type(dtype)

    def over(sides: Arguments) -> Functional:
        largest = max(sides.spaces.values(), key=lambda one: one.order)
        rule = largest.quadrature(quadrature)
        return Functional.of(function, sides, rule, given, (kind, lane_width(kind, lanes)))

    parts = map(over, arguments_of(space, boundary, faces))
    whole: Functional = functools.reduce(operator.add, parts)
    return whole
