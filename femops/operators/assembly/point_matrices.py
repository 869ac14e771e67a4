"""Matrices D of a term: the linear maps of its q-function at quadrature points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.jacobians import Geometry
from femops.operators.integrals.fusion import scaled_points
from femops.operators.integrals.term import Term
from femops.pointwise.expressions.graph import Node, same
from femops_kernels.pointwise.qdata import element_values


def entry_numbers(term: Term) -> NDArray[np.int64]:
    """Number of the distinct entry at each place of D: (slots_out, ncomp, slots_in, ncomp).

    0 stands for a zero. k stands for the k-th distinct entry, counted from one, and -k for its
    negative.
    """
    assert term.source is not None
    qfunction, entries = term.qfunction, term.source.qfunction.structure
    entries = entries if term.original is None else entries.T
    slots, n_out, n_in = 1 + qfunction.dim, qfunction.ncomp_out, qfunction.ncomp_in
    grid = entries.reshape(slots, n_out, slots, n_in)
    used: NDArray[np.int64] = grid[
        np.ix_(qfunction.slots_out, range(n_out), qfunction.slots_in, range(n_in))
    ]
    return used


def distinct_values(
    term: Term, start: int, stop: int, numbers: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Distinct entries (n, points, entries) of D in elements start <= e < stop.

    Entries are read from the term's data if stored there, else computed.
    """
    assert term.source is not None
    distinct = term.source.qfunction.distinct
    wanted = range(len(distinct)) if numbers is None else [k - 1 for k in numbers]
    kept = term.rounds or "data" in term.__dict__
    if not kept or not same(term.qdata_split.point, distinct):
        return _computed(term, start, stop, [distinct[k] for k in wanted])
    values = _stored(term, start, stop)
    return values if numbers is None else values[..., wanted]


def _stored(term: Term, start: int, stop: int) -> NDArray[np.float64]:
    """Numbers (n, points, numbers) that kernels read at points, in the precision of their data."""
    form = term.source
    assert form is not None
    if term.rounds and term.filled:
        values = form.values(term.qdata_split.point, form.geometry.block(start, stop))
        values = values.astype(term.data_dtype).astype(np.float64)
    else:
        values = _kept(term.data.points, start, stop)
    if term.scale != 1.0:
        scaled = scaled_points(term)
        rounded = (values[..., scaled] * term.scale).astype(term.data_dtype)
        values[..., scaled] = rounded.astype(np.float64) / term.scale
    return values


def _kept(lanes: NDArray[Any], start: int, stop: int) -> NDArray[np.float64]:
    """Numbers (n, points, numbers) of elements start <= e < stop, read from an array in lanes."""
    width = lanes.shape[-1]
    first = start // width
    values = element_values(lanes[first : -(-stop // width)], stop - first * width)
    # in C order: NumPy rounds products of other layouts in another way
    return values[start - first * width :].astype(np.float64, order="C")


def constant_in_elements(term: Term) -> bool:
    """True if D is constant in each element, except for the quadrature weights."""
    form = term.source
    assert form is not None
    numbers = form.qdata_split("partial").qfunction.numbers
    return (
        not term.rounds
        and not numbers.point
        and not numbers.mapped
        and isinstance(form.geometry, Geometry)
    )


def element_factors(term: Term, start: int, stop: int) -> NDArray[np.float64]:
    """Distinct entries (n, entries) of a D that is constant in elements, without weights.

    Entries are read from the term's data if stored there, else computed.
    """
    assert term.source is not None
    form = term.source
    if "data" in term.__dict__ and same(term.qdata_split.element, form.qfunction.distinct):
        return _kept(term.data.elements[:, np.newaxis], start, stop)[:, 0]
    return form.values(form.qfunction.distinct, form.center.block(start, stop))[:, 0]


def _computed(term: Term, start: int, stop: int, nodes: list[Node]) -> NDArray[np.float64]:
    """Evaluate nodes of the expression graph at the quadrature points: (n, points, nodes).

    If D is constant in elements, nodes are evaluated at the centre and multiplied by the weights.
    """
    form = term.source
    assert form is not None
    if not constant_in_elements(term):
        known = None
        if term.rounds:
            numbers = (node.number for node in term.qdata_split.point)
            stored = np.moveaxis(_stored(term, start, stop), -1, 0)
            known = dict(zip(numbers, stored, strict=True))
        return form.values(nodes, form.geometry.block(start, stop), known=known)
    values = form.values(nodes, form.center.block(start, stop))
    return values * form.quadrature.cell_weights(form.geometry.dim)[:, np.newaxis]


def point_matrices(term: Term, start: int, stop: int) -> NDArray[np.float64]:
    """Matrices D, (slots_out, ncomp, slots_in, ncomp, n, points), of elements start <= e < stop."""
    return spread(distinct_values(term, start, stop), entry_numbers(term))


def spread(values: NDArray[np.float64], entries: NDArray[np.int64]) -> NDArray[np.float64]:
    """Build D from its distinct entries (n, points, entries), placed by `entry_numbers`."""
    out = np.zeros((*entries.shape, *values.shape[:2]))
    for at, number in np.ndenumerate(entries):
        if number:
            out[at] = np.sign(number) * values[..., abs(number) - 1]
    return out
