"""Checks that the numbers of float32 operators are in range, done when an operator is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.domain import DomainBlock
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.number_types import check_range, largest_of
from femops.operators.integrals.term import Term
from femops.parallel.collective_checks import check
from femops.pointwise.expressions.graph import ancestors
from femops.pointwise.trace import NORMAL, POSITION

_NONE = np.empty(0, dtype=object)
# Kinds of checked numbers, in the words of a message.
_WHAT = (
    "constants that kernels read",
    "factors of fields and test functions",
    "coordinates",
    "determinants of the elements' maps",
    "reciprocals of these determinants",
)


def in_range(term: Term) -> Term:
    """Return the term after a check that its numbers fit in float32. Collective.

    Terms of float64 are not checked.  Stored numbers are checked where they are computed.  This
    function checks numbers that kernels compute: the entries of D, and at the matrix-free level
    coordinates and determinants.

    Raises
    ------
    OperatorError
        If a number would become infinite, or if all numbers of one kind would become zero.
    """
    form = term.source
    if term.dtype != np.float32 or form is None or form.state.spaces:
        return term  # a bad state shows in its residual
    comm = form.fields.whole.comm
    with check(comm):  # a rank may have an inverted element
        largest = _largest(term, form)
    largest = comm.max(largest)
    for what, most in zip(_WHAT, largest.tolist(), strict=True):
        if most:
            check_range(f"{form.name}: the {what}", most, term.dtype, whole=True)
    return term


def _largest(term: Term, form: Integral) -> NDArray[np.float64]:
    """Largest absolute values of each kind of numbers in `_WHAT`, on this rank."""
    mapped = term.qfunction.numbers.mapped
    largest = np.zeros(len(_WHAT))
    for block in _blocks(form):
        entries = form.values(form.qfunction.distinct, block)
        constants = form.values(term.qdata_split.constant, block, check=False)
        found = [constants, entries]
        if mapped:
            found += [block.points, block.det, 1.0 / block.det]
        for kind, values in enumerate(found):
            largest[kind] = max(largest[kind], largest_of(values))
    return largest


def check_weights(form: Integral, dtype: np.dtype[Any]) -> None:
    """Raise if the volumes of all elements are out of a float32 integral's range. Collective.

    Raises
    ------
    OperatorError
        The largest Jacobian determinant or surface measure at element centers is out of range.
    """
    if dtype == np.float32:
        comm = form.fields.whole.comm
        with check(comm):
            largest = max((largest_of(block.weighted_det) for block in form.center), default=0.0)
        largest = comm.max(largest)
        if largest:
            check_range(f"{form.name}: {_WHAT[3]}", largest, dtype, whole=True)


def _blocks(form: Integral) -> Iterator[DomainBlock]:
    """Yield blocks of points at which `in_range` checks numbers.

    One point in each element is enough if only the geometry varies within elements. Other
    coefficients are known at the quadrature points only.
    """
    known, static = form.known, form.qfunction.trace.static
    used = {node.number for node in ancestors(form.qfunction.distinct)}
    placed = {node.number for name in (POSITION, NORMAL) for node in static.get(name, _NONE).flat}
    if set(form.coefficients) <= known.constants | known.elementwise and not used & placed:
        yield from form.center
    else:
        yield from form.geometry
