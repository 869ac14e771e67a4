"""Sample of an operator's terms: the same forms on the first elements of the mesh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.legendre import LegendreGeometry
from femops.operators.integrals.arguments import FIELD, Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.snapshots import Field, Sampled
from femops.operators.integrals.state import NO_STATE, HostState, State
from femops.operators.integrals.term import Sum, Term
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops_meshes.mesh import Mesh
from femops_meshes.partitioning.parts import first_elements


def first_terms(summands: Sum, count: int) -> Sum:
    """Restrict terms and their coefficients to the first elements of the mesh."""
    whole = summands.first.spaces[0]
    mesh, part = whole.mesh, first_elements(whole.mesh, count)
    if part is mesh and whole.distributed is None:
        return summands
    LegendreGeometry.share(mesh, part)
    known: dict[Any, Any] = {}
    return summands.map(lambda term: _term(term, part, known))


def _term(term: Term, part: Mesh, known: dict[Any, Any]) -> Term:
    source = term.source
    assert source is not None
    form = _form(source, part, known)
    piece = Term.make(form, term.dtype, term.width, term.level, term.data_dtype)
    return piece if term.original is None else piece.transposed()


def _form(form: Integral, part: Mesh, known: dict[Any, Any]) -> Integral:
    state: State = NO_STATE
    if form.state.spaces:
        fields = (form.state.field(name) for name in form.state.spaces)
        pieces = (_field(field, part, known) for field in fields)
        state = HostState(dict(zip(form.state.spaces, pieces, strict=True)))
    given = {name: _given(g, part, known) for name, g in form.coefficients.items()}
    return replace(
        form,
        fields=_arguments(form.fields, part, known),
        tests=_arguments(form.tests, part, known),
        coefficients=given,
        traced=form.qfunction,
        state=state,
    )


def _arguments(whole: Arguments, part: Mesh, known: dict[Any, Any]) -> Arguments:
    """Restrict fields or test functions to a part of the mesh."""
    spaces = {name: _space(s.volume, part, known) for name, s in whole.spaces.items()}
    product = whole.whole
    if not isinstance(product, Product):
        return Arguments.of(spaces[FIELD])
    if product not in known:
        every = {name: _space(space, part, known) for name, space in product.spaces.items()}
        known[product] = Product(**every)
    return Arguments(spaces, known[product])


def _space(space: Space, part: Mesh, known: dict[Any, Any]) -> Space:
    """Restrict a space to a part of the mesh. Each space is restricted once."""
    if space not in known:
        known[space] = type(space)(part, space.order, space.ncomp, space.basis.family)
    found: Space = known[space]
    return found


def _first(whole: Space, part: Space, l_vec: NDArray[Any]) -> NDArray[Any]:
    """Restrict an l_vec to the space ``part``, which is on the first elements of the mesh."""
    found = np.empty((part.ndofs, *l_vec.shape[1:]), l_vec.dtype)
    indices = part.restriction.indices
    found[indices] = l_vec[whole.restriction.indices[: len(indices)]]
    return found


def _field(field: Field, part: Mesh, known: dict[Any, Any]) -> Field:
    """Restrict a field to a part of the mesh."""
    space = _space(field.space, part, known)
    return Field(space, _first(field.space, space, field.l_vec), space.restriction.indices)


def _given(given: FormCoefficient, part: Mesh, known: dict[Any, Any]) -> FormCoefficient:
    value: Any = given.value
    if isinstance(value, Field):
        value = _field(value, part, known)
    elif isinstance(value, Sampled):
        value = value.first(part.num_elements)
    return replace(given, value=value)
