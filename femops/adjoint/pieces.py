"""Integrals of residuals, functionals and operators, as gradients need them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from femops.adjoint.integrand import SUFFIXES
from femops.basis import Rule
from femops.errors import OperatorError
from femops.geometry.domain import Domain
from femops.operators import Functional, Operator, Residual
from femops.operators.integrals.arguments import FIELD, Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.integral import STATE, Integral
from femops.operators.integrals.nonlinear import NonlinearIntegral
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.product import Product


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """An integral of a function of fields."""

    function: Callable[..., Any]
    # whether the function is the integrand of a functional and returns ``{"value": number}``
    energy: bool
    # whether the integral is part of a residual. If the function is an energy, the residual is
    # the derivative of the energy.
    tested: bool
    # space of each argument of the function, by name. The test functions of a residual have the
    # same spaces.
    fields: Mapping[str, Space]
    place: DomainSpace  # one of these spaces, restricted to the elements or faces of the integral
    quadrature: Rule
    coefficients: Mapping[str, FormCoefficient]
    kind: tuple[np.dtype[Any], int]  # type of the arithmetic, and slots of its lanes
    factor: float

    @property
    def domain(self) -> Domain:
        """Elements or faces."""
        return self.place.domain

    def arguments(self, product: Product) -> Arguments:
        """The fields of a product on the elements or faces of the integral, with derivatives."""
        if self.domain.two_sided:
            return Arguments.on_faces(product, self.domain)
        place = self.place.with_slopes(True)
        return Arguments({n: place.on(space) for n, space in product.spaces.items()}, product)

    def times(self, factor: float) -> Piece:
        """Return a copy whose factor is multiplied by a number."""
        return replace(self, factor=factor * self.factor)


def pieces_of(given: Residual | Functional | Operator) -> list[Piece]:
    """List the integrals of a residual, a functional or an operator."""
    tested = not isinstance(given, Functional)
    if isinstance(given, Functional):
        given = given.derivative
    if isinstance(given, Residual):
        for part in given.parts:
            _check_current(part)
        parts = given.parts
        return [_piece(p.form, p.kind, p.factor, energy=p.of_energy, tested=tested) for p in parts]
    if not isinstance(given, Operator):
        raise OperatorError(
            f"derivatives are of a residual, a functional or an operator, not of a "
            f"{type(given).__name__}"
        )
    found = []
    for factor, term in given.summands:
        if term.original is not None or not _is_plain(term.source):
            raise OperatorError(
                f"{given!r} can't be differentiated: it is a transpose, a derivative, a block, or "
                "between two spaces; write it as a femops.residual"
            )
        _check_current(term.source)
        found.append(_piece(term.source, (term.dtype, term.width), factor))
    return found


def _check_current(traced: NonlinearIntegral | Integral) -> None:
    """Raise if a variable that the function reads has changed: derivatives call it again."""
    if not traced.is_current:
        raise OperatorError(
            f"{traced.name} reads a variable that has changed since the form was made: give it as "
            "a coefficient, or make the form again"
        )


def _is_plain(form: Integral) -> bool:
    """True if the function alone defines the form: one space or product, no derivative or block."""
    derived = any(name.startswith(STATE) for name in form.qfunction.trace.static)
    return form.fields.same(form.tests) and not derived and not _is_block(form)


def _is_block(form: Integral) -> bool:
    """True if a form's function takes more fields than the form has."""
    others = [*inspect.signature(form.function).parameters.values()][len(_spaces(form)) :]
    given = {*form.coefficients, "x", "n", "h"}
    return any(
        p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        for p in others
        if p.name not in given
    )


def _spaces(form: Integral) -> Mapping[str, Space]:
    whole = form.fields.whole
    return whole.spaces if isinstance(whole, Product) else {FIELD: whole}


def _piece(
    form: Integral,
    kind: tuple[np.dtype[Any], int],
    factor: float,
    *,
    energy: bool = False,
    tested: bool = True,
) -> Piece:
    for name in form.coefficients:
        if name.endswith(SUFFIXES):
            raise OperatorError(f"gradients have a field {name!r} of their own: rename {name}")
    made = form.quadrature, form.coefficients, kind, factor
    return Piece(form.function, energy, tested, _spaces(form), form.fields.first, *made)
