"""Derivatives of a sum of integrals by states, adjoints and controls. Each takes one sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.adjoint.controls import Control
from femops.adjoint.integrand import (
    MESH,
    DerivedFunction,
    Variables,
    adjoint_name,
    direction_name,
    place_of,
    state_name,
)
from femops.adjoint.pieces import Piece
from femops.errors import OperatorError
from femops.operators import Residual
from femops.operators.integrals.arguments import tabulated
from femops.operators.integrals.nonlinear import NONE, NonlinearIntegral
from femops.spaces.base import Space
from femops.spaces.product import Product

Vector = NDArray[Any]


def check_finite(space: Space | Product, found: Vector, given: Vector, by: Sequence[str]) -> None:
    """Raise if derivatives are not finite, but the vectors that they depend on are. Collective."""
    xp, comm = space.memory.xp, space.comm
    broken, bad = (int(not xp.isfinite(vector).all()) for vector in (found, given))
    if comm.max(broken) and not comm.max(bad):
        cure = "do not exist, or are beyond the range of float64"
        if found.dtype == np.float32:
            cure = "are beyond the range of float32: take dtype='float64', or scale"
        raise OperatorError(f"derivatives by {', '.join(by)} are not finite: they {cure}")


@final
class Lagrangian:
    r"""Functionals plus residuals times adjoints, as a function of states, adjoints and controls.

    It is :math:`L(u, \lambda, m) = J(u, m) + \lambda^T R(u, m)`.
    """

    def __init__(
        self, pieces: Sequence[Piece], controls: Mapping[str, Control], space: Space | Product
    ) -> None:
        self._pieces, self._controls, self.space = list(pieces), dict(controls), space
        self.dtype = self._pieces[0].kind[0]
        self._residuals: dict[tuple[tuple[str, ...], tuple[str, ...]], Residual | None] = {}
        fields = self._pieces[0].fields
        self.states = tuple(map(state_name, fields))
        self.adjoints = tuple(map(adjoint_name, fields))
        self._spaces = {state_name(name): space for name, space in fields.items()}
        self._spaces |= {adjoint_name(name): space for name, space in fields.items()}
        self._spaces |= {name: control.space for name, control in self._controls.items()}

    def derivative(
        self,
        by: Sequence[str],
        state: Vector,
        adjoint: Vector | None = None,
        along: Mapping[str, Vector] | None = None,
        values: Mapping[str, Vector] | None = None,
    ) -> dict[str, Vector]:
        """Derivative of L by the variables in ``by``. Collective.

        With ``along``, the function that is differentiated is the derivative of L along these
        directions.

        Shapes: `state`, `adjoint` (size,).
        """
        along = {} if along is None else along
        key = tuple(by), tuple(along)
        if key not in self._residuals:
            self._residuals[key] = self._residual(*key)
        residual = self._residuals[key]
        if residual is None:
            return {name: self._spaces[name].zeros(self.dtype) for name in by}
        product = residual.space
        assert isinstance(product, Product)
        known = self.parts(state, self.states)
        if adjoint is not None:
            known |= self.parts(adjoint, self.adjoints)
        held = {n: c.value for n, c in self._controls.items() if c.value is not None}
        held |= {} if values is None else values
        known |= {place_of(name): value for name, value in held.items()}
        known |= {direction_name(name): value for name, value in along.items()}
        whole = product.zeros(self.dtype)
        for name in product.names:
            if name in known:
                whole[product.slice(name)] = known[name]
        found = residual.residual(whole)
        check_finite(self.space, found, whole, by)
        return {name: found[product.slice(place_of(name))] for name in by}

    def parts(self, vector: Vector, names: Sequence[str]) -> dict[str, Vector]:
        """Split a vector of the states' space into parts, by the names of states or adjoints."""
        parts = self.space.split(vector) if isinstance(self.space, Product) else (vector,)
        return dict(zip(names, parts, strict=True))

    def whole(self, parts: Mapping[str, Vector], names: Sequence[str]) -> Vector:
        """Join parts to a vector of the states' space."""
        if not isinstance(self.space, Product):
            return parts[names[0]]
        given = zip(self.space.names, names, strict=True)
        return self.space.join(**{mine: parts[name] for mine, name in given})

    def _residual(self, by: tuple[str, ...], along: tuple[str, ...]) -> Residual | None:
        """Return the derivative as a residual on a product of spaces, or None if it is zero."""
        spaces = {name: self._spaces[name] for name in self.states}
        if any(piece.tested for piece in self._pieces):
            spaces |= {name: self._spaces[name] for name in self.adjoints}
        swept = {place_of(n): c.space for n, c in self._controls.items() if n != MESH}
        tested = {place_of(name): self._spaces[name] for name in by}
        moved = {direction_name(name): self._spaces[name] for name in along}
        product = Product(**(spaces | swept | tested | moved))
        integrals = [self._integral(piece, product, by, along) for piece in self._pieces]
        found = [one for one in integrals if one is not None and not one.is_zero]
        return Residual(product, self.dtype, found) if found else None

    def _integral(
        self, piece: Piece, product: Product, by: tuple[str, ...], along: tuple[str, ...]
    ) -> NonlinearIntegral | None:
        """Return the derivative of one integral, or None if it has none of the variables."""
        mine = {n: c for n, c in self._controls.items() if n in piece.coefficients}
        moving = MESH in self._controls and MESH in {*by, *along}
        known = {*map(state_name, piece.fields), *mine, *([MESH] if moving else [])}
        if piece.tested:
            known |= {*map(adjoint_name, piece.fields)}
        by, directed = (tuple(n for n in names if n in known) for names in (by, along))
        if not by or (along and not directed):
            return None
        variables = Variables(
            {name: space.ncomp for name, space in piece.fields.items()},
            {name: control.shape for name, control in mine.items()},
            frozenset(name for name, control in mine.items() if control.kind == "constant"),
            moving,
        )
        function = DerivedFunction(
            piece.function,
            variables,
            product.names,
            by,
            directed,
            energy=piece.energy,
            tested=piece.tested,
            on_faces=piece.domain.has_normals,
        )
        kept = {n: value for n, value in piece.coefficients.items() if n not in mine}
        sides = piece.arguments(product)
        given = function, sides, NONE, piece.quadrature, kept, piece.kind
        # one application seldom pays for storing the geometry
        stores = tabulated(sides, sides, piece.quadrature) and piece.domain.cell.cube
        level = "partial" if stores else "matrix-free"
        integral = NonlinearIntegral(*given, level=level)
        return integral if piece.factor == 1.0 else integral.times(piece.factor)
