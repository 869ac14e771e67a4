"""Integrals of residuals, functionals and operators, as gradients need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.geometry.domain import Domain
from femops.operators import Functional, Operator, Residual
from femops.operators.integrals.arguments import FIELD
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.integral import Integral
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.product import Product


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """An integral of a function of fields.

    Attributes
    ----------
    function : callable
        See `femops.form`.
    energy : bool
        Whether it is the integrand of a functional: ``{"value": number}``.
    fields : dict of Space
        Spaces of the function's arguments by name; also of the test functions, if it is no
        functional.
    place : DomainSpace
        Functions of one of these spaces on the domain.
    quadrature : Quadrature1D
    coefficients : dict of FormCoefficient
    kind : (numpy.dtype, int)
        Type of the arithmetic, and slots of its lanes.
    factor : float
    """

    function: Callable[..., Any]
    energy: bool
    fields: Mapping[str, Space]
    place: DomainSpace
    quadrature: Quadrature1D
    coefficients: Mapping[str, FormCoefficient]
    kind: tuple[np.dtype[Any], int]
    factor: float

    @property
    def domain(self) -> Domain:
        """Elements or faces."""
        return self.place.domain

    def on_domain(self, space: Space) -> DomainSpace:
        """Functions of a space on the elements or faces, with derivatives."""
        return self.place.with_slopes(True).on(space)

    def times(self, factor: float) -> Piece:
        """The integral with another factor."""
        return replace(self, factor=factor * self.factor)


def pieces_of(given: Residual | Functional | Operator) -> list[Piece]:
    """List the integrals of a residual, a functional or an operator.

    Raises
    ------
    OperatorError
        Something else, or an operator between two spaces, or a transposed one that is not
        symmetric.
    """
    if isinstance(given, Functional):
        given = given.derivative
    if isinstance(given, Residual):
        return [_piece(one.form, one.kind, one.factor, one.of_energy) for one in given.parts]
    if not isinstance(given, Operator):
        raise OperatorError(
            f"derivatives are of a residual, a functional or an operator, not of a "
            f"{type(given).__name__}"
        )
    found = []
    for factor, term in given.summands:
        form = term.source
        if term.original is not None or not form.fields.same(form.tests) or form.state.spaces:
            raise OperatorError(
                f"{given!r} can't be differentiated: it is a transpose, a derivative, or between "
                "two spaces; write it as a femops.residual"
            )
        found.append(_piece(form, (term.dtype, term.width), factor))
    return found


def _piece(
    form: Integral, kind: tuple[np.dtype[Any], int], factor: float, energy: bool = False
) -> Piece:
    whole = form.fields.whole
    spaces = whole.spaces if isinstance(whole, Product) else {FIELD: whole}
    made = form.quadrature, form.coefficients, kind, factor
    return Piece(form.function, energy, spaces, form.fields.first, *made)
