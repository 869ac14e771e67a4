"""Convection of discontinuous functions with upwind fluxes."""

from __future__ import annotations

import functools
import operator
from typing import Any, Unpack

import numpy as np

from femops.forms.form import FormOptions, arguments_of, build_sides, built_in
from femops.geometry.boundary import has_outer
from femops.geometry.interior import are_joined
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import Coefficient, on_several_domains
from femops.operators.operator import Operator
from femops.pointwise.trace import FormFunction
from femops.spaces.base import Space


def _inside(u: Any, velocity: Any) -> dict[str, Any]:
    return {"grad": -np.multiply.outer(np.asarray(u.value), velocity)}


def _between(u: Any, n: Any, velocity: Any) -> dict[str, Any]:
    speed = velocity.mean @ n
    out, back = np.maximum(speed, 0.0), np.minimum(speed, 0.0)
    return {"jump": out * u.minus.value + back * u.plus.value}


def _out(u: Any, n: Any, velocity: Any) -> dict[str, Any]:
    return {"value": np.maximum(velocity @ n, 0.0) * u.value}


@built_in(FormOptions)
def upwind_convection(V: Space, velocity: Coefficient, **options: Unpack[FormOptions]) -> Operator:
    r"""Convection of discontinuous functions in conservative form, with upwind fluxes.

    .. math::
        -\int_\Omega u\, b \cdot \nabla v\, dx + \int_F (b \cdot n)\, u^\mathrm{up} [v]\, ds
        + \int_\mathrm{out} (b \cdot n)\, u v\, ds

    On faces F between elements :math:`u^\mathrm{up}` is the value on the side that the velocity b
    comes from. Values that flow in over the boundary are zero, or belong to the right-hand side.
    With the mass matrix M, :math:`M \dot u = -A u` transports u.

    Parameters
    ----------
    V : Space
        Trial and test space, usually `femops.L2`. Components are transported one by one.
    velocity : array, callable or GridFunction
        Velocity b (dim,), in units of length per time. If a field has two values on a face, the
        form uses their mean. On a glued face of a periodic mesh a function of x is evaluated at
        the minus side's x.
    **options
        See `femops.forms.form.Options`.
    """
    given = {"velocity": on_several_domains("velocity", velocity, ((V.dim,),))}
    domains: list[tuple[FormFunction, list[Arguments]]] = []
    if V.order > 0:  # finite volumes have no gradient inside
        domains.append((_inside, Arguments.over(V)))
    if are_joined(V.distributed or V.mesh):
        domains.append((_between, Arguments.on_sides(V)))
    if has_outer(V.distributed or V.mesh):
        domains.append((_out, arguments_of(V, True)))
    terms = [build_sides(function, at, at, given, options) for function, at in domains]
    return functools.reduce(operator.add, terms)
