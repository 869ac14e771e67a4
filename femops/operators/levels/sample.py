"""A piece of an operator's terms: the same forms on the first elements of the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.legendre import LegendreGeometry
from femops.operators.integrals.bilinear import BilinearForm
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.snapshots import Field, Sampled
from femops.operators.integrals.state import HostState, State
from femops.operators.integrals.term import Term
from femops.spaces.base import Space
from femops.spaces.boundary_space import volume_space
from femops_meshes.mesh import Mesh
from femops_meshes.partitioning.parts import first_elements

Summands = Sequence[tuple[float, Term]]


def first_terms(summands: Summands, count: int) -> list[tuple[float, Term]]:
    """The terms on the first elements, with the coefficients that they have there.

    Parameters
    ----------
    summands : sequence of (float, Term)
        Terms of forms, on one mesh.
    count : int
        Number of elements; on a distributed mesh, of this rank's.
    """
    whole = summands[0][1].spaces[0]
    mesh, part = whole.mesh, first_elements(whole.mesh, count)
    if part is mesh and whole.distributed is None:
        return list(summands)
    LegendreGeometry.share(mesh, part)
    known: dict[Space, Space] = {}
    return [(factor, _term(term, part, known)) for factor, term in summands]


def _term(term: Term, part: Mesh, known: dict[Space, Space]) -> Term:
    source = term.source
    assert source is not None
    form = _form(source, part, known)
    piece = Term.make(form, term.dtype, term.width, term.level, term.data_dtype)
    return piece if term.original is None else piece.transposed()


def _form(form: BilinearForm, part: Mesh, known: dict[Space, Space]) -> BilinearForm:
    trial = _space(volume_space(form.trial), part, known)
    state: State | None = None
    if form.state is not None:
        fields = (form.state.field(name) for name in form.state.spaces)
        pieces = (_field(field, part, known) for field in fields)
        state = HostState(dict(zip(form.state.spaces, pieces, strict=True)))
    given = {name: _given(g, part, known) for name, g in form.coefficients.items()}
    return replace(
        form,
        trial=trial,
        test=_space(volume_space(form.test), part, known),
        coefficients=given,
        traced=form.qfunction,
        state=state,
    )


def _space(space: Space, part: Mesh, known: dict[Space, Space]) -> Space:
    """The space on the part."""
    if space not in known:
        known[space] = type(space)(part, space.order, space.ncomp, space.basis.family)
    return known[space]


def _first(whole: Space, part: Space, l_vec: NDArray[Any]) -> NDArray[Any]:
    """Entries of an l_vec in the first elements, as an l_vec of the space on them."""
    found = np.empty((part.ndofs, *l_vec.shape[1:]), l_vec.dtype)
    indices = part.restriction.indices
    found[indices] = l_vec[whole.restriction.indices[: len(indices)]]
    return found


def _field(field: Field, part: Mesh, known: dict[Space, Space]) -> Field:
    """The field on the part."""
    space = _space(field.space, part, known)
    return Field(space, _first(field.space, space, field.l_vec))


def _given(given: FormCoefficient, part: Mesh, known: dict[Space, Space]) -> FormCoefficient:
    value: Any = given.value
    if isinstance(value, Field):
        value = _field(value, part, known)
    elif isinstance(value, Sampled):
        value = value.first(part.num_elements)
    return replace(given, value=value)
