"""The chunks in which sweeps go over the elements of spaces."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.boundary_space import AnySpace, BoundarySpace, touched
from femops.space import L2
from femops_kernels.placement import placed_plan
from femops_kernels.plan import (
    Plan,
    elements_per_chunk,
    first_batches,
    make_foreign_plan,
    make_plan,
)
from femops_kernels.runs import Runs

_plans: WeakKeyDictionary[AnySpace, dict[tuple[int, int], Plan]] = WeakKeyDictionary()


def _chunk(trial: AnySpace, test: AnySpace, dtype: np.dtype[np.generic]) -> int:
    """Elements of a chunk."""
    ne = trial.mesh.num_elements
    return min(
        elements_per_chunk(ne, touched(space) / ne, space.ncomp, dtype.itemsize)
        for space in (trial, test)
    )


def chunk_batches(
    trial: AnySpace, test: AnySpace, dtype: np.dtype[np.generic], width: int
) -> NDArray[np.int64]:
    """First batch of each chunk of a sweep from one space to the other, and the end."""
    return first_batches(trial.mesh.num_elements, width, _chunk(trial, test, dtype))


def plans(
    trial: AnySpace, test: AnySpace, dtype: np.dtype[np.generic], width: int
) -> tuple[Plan, Plan]:
    """Plans of such a sweep; shared by all operators on the spaces."""
    chunk = _chunk(trial, test, dtype)
    return _plan(trial, width, chunk), _plan(test, width, chunk)


def _plan(space: AnySpace, width: int, chunk: int) -> Plan:
    kept, key = _plans.setdefault(space, {}), (width, chunk)
    if key not in kept:
        make = make_foreign_plan if isinstance(space, BoundarySpace) else make_plan
        runs = Runs(space.dim, space.p1d, space.p1d == 1 or isinstance(space, L2))
        kept[key] = placed_plan(make(space.restriction.indices, space.ndofs, width, chunk, runs))
    return kept[key]
