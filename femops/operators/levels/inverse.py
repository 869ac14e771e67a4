"""Exact inverses of the blocks of elements from 1-D matrices, without forming the blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.backend import Work
from femops.operators.execution.host import backend_of
from femops.operators.integrals.constraints import FREE
from femops.operators.integrals.term import Sum, Term
from femops.operators.levels.points import Points, kept_at_points
from femops_kernels.compiled import CompiledOperator
from femops_kernels.spec import PointSpec, SeparableSpec

Floats = NDArray[np.float64]


def block_inverse(summands: Sum) -> CompiledOperator | None:
    """Compile the inverse of a sum on discontinuous functions, if 1-D matrices give it exactly.

    The blocks are B^T D B with the same number in D for all components. In each direction B has as
    many points as nodes, or D is constant in each element up to the weights of the rule. Then the
    inverse is B^-1 D^-1 B^-T, or the product of inverse 1-D mass matrices.

    All ranks decide together. Collective.
    """
    first = summands.first
    space = first.spaces[0]
    backend = backend_of(space)
    if not all(_is_scalar(term) for _, term in summands):
        return None
    ready = summands.map(lambda term: term.at_level("partial").ready("partial"))
    parts = Points(ready, FREE, "partial")
    inverse = _of_directions(parts)
    if space.comm.max(int(inverse is None)):  # on a reproducible mesh all ranks choose kernels
        inverse = _of_points(parts) or inverse
    missing = inverse is None and first.domain.num_elements > 0
    if space.comm.max(int(missing)):
        return None
    products = backend.launch_products
    launch = backend.idle() if inverse is None else products(space, space, inverse)
    return backend.operator([(1.0, launch)])


def _is_scalar(term: Term) -> bool:
    """True if a term multiplies values alone by one number, of elements and of one space."""
    square = not term.several and term.test is term.trial and term.domain.covers
    if not square or not term.qfunction.slots_in == term.qfunction.slots_out == [0]:
        return False
    structure = term.source.qfunction.structure
    on_diagonal = np.diagonal(structure)
    once = bool(np.all(structure[structure != 0] == 1))
    return once and np.count_nonzero(structure) == np.count_nonzero(on_diagonal) == term.trial.ncomp


def _of_directions(parts: Points) -> Work | None:
    """Specification and data of the inverse, if D is constant in each element."""
    spec, data = parts.work[0]
    if len(parts.work) > 1 or not isinstance(spec, SeparableSpec):
        return None
    factors = _reciprocals(data.elements, parts)
    if factors is None:
        return None
    mass = tuple(np.linalg.inv(matrix).astype(np.float64) for matrix in spec.mass)
    return replace(spec, mass=mass, stiffness=mass), replace(data, elements=factors)


def _of_points(parts: Points) -> Work | None:
    """Specification and data of the inverse, if there are as many points as nodes.

    A point must have one number in all. Sums with more numbers, such as one of the element besides,
    are left to dense blocks.
    """
    kept = replace(parts, summands=parts.summands.map(kept_at_points))
    (spec, data), numbers = kept.work[0], kept.fused[0][1].qfunction.numbers
    square = isinstance(spec, PointSpec) and spec.source.shape == (spec.q1d,) * spec.dim
    if len(kept.work) > 1 or not square or not numbers.point == numbers.total == 1:
        return None
    assert isinstance(spec, PointSpec)
    points = _reciprocals(data.points, parts)
    if points is None:
        return None
    bases = (np.linalg.inv(basis).T.astype(np.float64) for basis in spec.source.bases)
    side = replace(spec.source, bases=tuple(bases))
    return replace(spec, sources=(side,), targets=(side,)), replace(data, points=points)


def _reciprocals(numbers: NDArray[Any], parts: Points) -> NDArray[Any] | None:
    """Reciprocals (nbatch, ..., width) of numbers of elements times the factor of the sum.

    None if a number is zero, or a reciprocal overflows. Slots behind the last element keep zeros.
    """
    result = np.zeros_like(numbers)
    with np.errstate(all="ignore"):
        scaled = parts.fused[0][0] * numbers
        np.divide(1.0, scaled, out=result, where=scaled != 0.0)
    slots = np.moveaxis(result, -1, 1).reshape(-1, *numbers.shape[1:-1])
    elements = slots[: parts.summands.first.domain.num_elements]
    return result if np.all(np.isfinite(elements) & (elements != 0.0)) else None
