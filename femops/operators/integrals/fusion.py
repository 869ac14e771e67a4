"""Fusion of terms into one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.term import GivenTerm, Sum, Term
from femops.pointwise import fuse
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.pointwise.qdata import Data

_POINT = 5  # the last of the kinds of numbers, see `QFunctionInputs.slices`


def fused(terms: Sum, *, whole: bool = False) -> GivenTerm:
    """Fuse the sum of terms with factors into one term.

    If a device checks or computes data of a term, the fused data have no numbers at points, unless
    ``whole`` is True.
    """
    qfunction = fuse([term.qfunction for _, term in terms])
    first = terms.first
    apart = not whole and any(term.looked_at for _, term in terms)
    parts = [scaled_data(term, factor, points=not apart) for factor, term in terms]
    mapped = max(parts, key=lambda data: len(data.modes))
    edges = first.chunk_batches
    data = Data(
        _joined([data.points for data in parts], 2, edges),
        _joined([data.elements for data in parts], 1, edges),
        mapped.modes,
        np.concatenate([data.constants for data in parts]),
    )
    name = " + ".join(term.name for _, term in terms)
    return GivenTerm(
        name,
        first.fields,
        first.tests,
        first.quadrature,
        qfunction,
        first.dtype,
        first.width,
        first.data_dtype,
        0,
        0,
        data,
        terms if apart else (),
    )


def scaled_points(term: Term) -> list[int]:
    """Positions of the numbers at a point that a factor of the term multiplies."""
    stored = term.qfunction.numbers.slices()[_POINT]
    return [k - stored.start for k in term.qfunction.scaled if stored.start <= k < stored.stop]


def scaled_data(term: Term, factor: float, *, points: bool = True) -> Data:
    """Data of a term times a factor, with the numbers at points or without."""
    data = term.data if points else term.data_without_points
    if factor == 1.0:
        return data
    kinds = term.qfunction.numbers.slices()
    at_points, elements, constants = (
        array.copy() for array in (data.points, data.elements, data.constants)
    )
    arrays = {0: np.moveaxis(elements, 1, 0), 4: constants, _POINT: np.moveaxis(at_points, 2, 0)}
    for k in term.qfunction.scaled:
        kind = next(i for i, part in enumerate(kinds) if part.start <= k < part.stop)
        if kind == _POINT and not points:
            continue
        part = arrays[kind][k - kinds[kind].start, ...]
        # rounded once, whatever type is stored
        np.multiply(part, factor, out=part, dtype=np.float64, casting="same_kind")
    return replace(data, points=at_points, elements=elements, constants=constants)


def _joined(arrays: Sequence[NDArray[Any]], axis: int, edges: NDArray[np.int64]) -> NDArray[Any]:
    """Concatenate arrays in memory near the threads that read the result."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    out = placed_array(tuple(shape), arrays[0].dtype, edges)
    np.concatenate(arrays, axis=axis, out=out)
    return out
