"""Fusion of terms into one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.term import Term
from femops.pointwise import fuse
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.pointwise.qdata import Data


def fused(terms: Sequence[tuple[float, Term]]) -> Term:
    """One term for the sum of fusible terms with factors."""
    qfunction = fuse([term.qfunction for _, term in terms])
    first = terms[0][1]
    scaled = [_scaled(term, factor) for factor, term in terms]
    mapped = max(scaled, key=lambda data: len(data.modes))
    edges = first.chunk_batches
    data = Data(
        _joined([data.points for data in scaled], 2, edges),
        _joined([data.elements for data in scaled], 1, edges),
        mapped.modes,
        np.concatenate([data.constants for data in scaled]),
    )
    name = " + ".join(term.name for _, term in terms)
    return replace(first, name=name, qfunction=qfunction, source=None, given=data, original=None)


def _scaled(term: Term, factor: float) -> Data:
    """Data of a term times a factor."""
    if factor == 1.0:
        return term.data
    data, kinds = term.data, term.qfunction.numbers.slices()
    points, elements, constants = (
        array.copy() for array in (data.points, data.elements, data.constants)
    )
    for k in term.qfunction.scaled:
        kind = next(i for i, part in enumerate(kinds) if part.start <= k < part.stop)
        parts = {0: np.moveaxis(elements, 1, 0), 4: constants, 5: np.moveaxis(points, 2, 0)}
        part = parts[kind][k - kinds[kind].start, ...]
        # rounded once, whatever type is stored
        np.multiply(part, factor, out=part, dtype=np.float64, casting="same_kind")
    return replace(data, points=points, elements=elements, constants=constants)


def _joined(arrays: Sequence[NDArray[Any]], axis: int, edges: NDArray[np.int64]) -> NDArray[Any]:
    """Concatenation near the threads that read it."""
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    out = placed_array(tuple(shape), arrays[0].dtype, edges)
    np.concatenate(arrays, axis=axis, out=out)
    return out
