"""Residuals and functionals that users define by a function, which may be nonlinear."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Rule
from femops.errors import OperatorError
from femops.forms.form import (
    NonlinearOptions,
    Options,
    arguments_of,
    by_domain,
    check_fields,
    check_names,
    with_options,
)
from femops.operators.execution.host import backend_of
from femops.operators.integrals.coefficients import FormCoefficient, float_type
from femops.operators.integrals.nonlinear import NONE, Functionals, NonlinearIntegral
from femops.operators.residual import Residual
from femops.pointwise.sides import PARTS
from femops.pointwise.trace import FormFunction
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_common.arguments import checked, type_name
from femops_kernels.cpu.machine import lane_width


@with_options(NonlinearOptions)
@checked(OperatorError)
def residual(
    function: FormFunction | Mapping[str, FormFunction],
    space: Space | Product,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    integrals: Sequence[str] = (),
    minima: Sequence[str] = (),
    symmetric: bool = False,
    quadrature: int | Rule | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
    **coefficients: Any,
) -> Residual:
    r"""Residual and functionals defined by a user's function of the fields at a point.

    Parameters
    ----------
    function : callable
        Function as for `femops.form`, but it may be nonlinear. For one field u it returns
        ``{"value": f, "grad": F}``, for the residual :math:`\int_\Omega f(u, \nabla u) \cdot v +
        F(u, \nabla u) : \nabla v\, dx`.  On a product it returns these factors by the names of the
        spaces, ``{"u": {"grad": F}, "p": {"value": g}}``. Test functions with zero factors may be
        left out. The dictionary also has a number for each functional, such as ``{"energy": w}``.
        Several functions, by the domain of their integrals ("cells", "interior", "boundary"), are
        one residual: their sum, without functionals.
    space : Space or Product
        Space of the fields and of the test functions.
    boundary : "all", True, int, name, or several, optional
        Integrate over the boundary, as for `femops.form`. The result can be added to a residual
        over the elements.
    faces : {"interior"}, optional
        Integrate over the faces between elements, as for `femops.form`.
    integrals : names, optional
        Functionals that are integrals over the mesh, or over the boundary.
    minima : names, optional
        Functionals that are minima over the quadrature points.
    symmetric : bool
        Whether Jacobians are symmetric though their expressions do not show it, as in associated
        plasticity. Then one half of the derivatives is computed, and serves for the other half too.
        It is not checked.
    **options
        See `femops.forms.form.Options`.
    **coefficients
        See `femops.form`. The call copies them.

    Returns
    -------
    Residual
        The residual. Its derivative comes from differentiation of the traced expressions.

    Raises
    ------
    TraceError
        If the function can't be traced (the message names the line), or a coefficient has the name
        of one of the arguments above.
    OperatorError
        If coefficients have a wrong shape or are not finite, or a functional's name is taken.
    SpaceError
        If the mesh does not have a boundary attribute.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((3,)), order=2)
    >>> F = femops.residual(lambda u: {"value": u**3, "grad": u.grad}, V)
    >>> u = V.interpolate(lambda x: 1 + x[0])
    >>> bool(abs(F.residual(u).sum() - 15 / 4) < 1e-12)  # the integral of (1 + x)^3
    True

    Radiation from the boundary, added to it:

    >>> G = F + femops.residual(lambda u, s: {"value": s * u**4}, V, boundary="all", s=2.0)
    >>> bool(abs((G.residual(u) - F.residual(u)).sum() - 2 * (1 + 16)) < 1e-12)
    True

    Two fields, and functionals:

    >>> W = femops.Product(c=V, h=femops.L2(V.mesh, order=1))
    >>> def reaction(c, h):
    ...     return {"c": {"grad": h * c.grad}, "h": {"value": c**2}, "mass": c, "least": c + h}
    >>> F = femops.residual(reaction, W, integrals=["mass"], minima=["least"])
    >>> c = V.interpolate(lambda x: x[0])
    >>> u = W.join(c=c, h=1.0 + 0.0 * W.spaces["h"].zeros())
    >>> found, functionals = F.evaluate(u)
    >>> bool(abs(functionals["mass"] - 0.5) < 1e-14 and functionals["least"] > 1.0)
    True
    >>> bool(abs(W.split(found)[1].sum() - 1 / 3) < 1e-14)  # the integral of x^2
    True
    """
    options: NonlinearOptions = {"quadrature": quadrature, "dtype": dtype, "lanes": lanes}
    if isinstance(function, Mapping):
        _check_domains(faces, integrals, minima)
        make: Any = residual
        parts = by_domain(function, boundary, coefficients)
        total: Residual = functools.reduce(
            operator.add,
            [make(one, space, **own, symmetric=symmetric, **options) for one, own in parts],
        )
        return total
    fields = space.names if isinstance(space, Product) else ()
    check_names(function, len(fields) or 1, residual)
    functionals = Functionals(_names(integrals, "integrals"), _names(minima, "minima"))
    _check_functionals(functionals, fields, faces)
    given = {name: FormCoefficient(name, value) for name, value in coefficients.items()}
    return build_residual(
        function, space, given, options, functionals, boundary, faces, symmetric=symmetric
    )


def _check_domains(faces: str | None, *functionals: Sequence[str]) -> None:
    """Raise if arguments of one function are given with functions by domain."""
    if faces is not None:
        raise OperatorError("functions by domain name their faces: leave out faces=")
    if any(functionals):
        raise OperatorError(
            "functions by domain have no functionals: add femops.residual(function, space, ...) of "
            "the function that has them"
        )


def _names(given: Any, what: str) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise OperatorError(f"{what} are {type(given).__name__}: give a list of names")
    return names


def _check_functionals(functionals: Functionals, fields: Sequence[str], faces: str | None) -> None:
    names = functionals.names
    known = {*fields, "value", "grad", *(PARTS if faces is not None else ())}
    taken = [name for name in names if name in known or names.count(name) > 1]
    if taken:
        raise OperatorError(
            f"{taken[0]!r} is the name of two results of a residual: rename the functional"
        )


def build_residual(
    function: FormFunction,
    space: Space | Product,
    coefficients: Mapping[str, FormCoefficient],
    options: NonlinearOptions,
    functionals: Functionals = NONE,
    boundary: Any = None,
    faces: str | None = None,
    *,
    symmetric: bool = False,
) -> Residual:
    """Build a residual from a function and checked coefficients; see `residual`."""
    o = Options(**options)
    if not isinstance(space, Space | Product):
        raise OperatorError(
            f"a residual was given {type_name(type(space))} for a space: make one with "
            "femops.H1(mesh, order)"
        )
    backend_of(space).check_lanes(o.lanes)
    if isinstance(space, Product):
        check_fields(function, space, coefficients)
    kind, integrals = float_type(o.dtype), []
    for sides in arguments_of(space, boundary, faces):
        rule = max(sides.spaces.values(), key=lambda one: one.order).quadrature(o.quadrature)
        given = functionals, rule, coefficients, (kind, lane_width(kind, o.lanes))
        integral = NonlinearIntegral(function, sides, *given, symmetric=symmetric)
        if integral.is_zero:
            raise OperatorError(f"{integral.name} returns nothing: give factors of test functions")
        integrals.append(integral)
    return Residual(space, kind, integrals)
