"""The chunks in which sweeps go over the elements of spaces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from femops.operators.integrals.arguments import Arguments
from femops.parallel.mesh import DistributedMesh
from femops.spaces.domain_space import DomainSpace
from femops.spaces.h1_l2 import L2
from femops_kernels.cpu.first_touch import placed_plan
from femops_kernels.cpu.machine import tuning_key
from femops_kernels.cpu.plan import (
    CHUNK_BYTES,
    Plan,
    elements_per_chunk,
    equal_chunks,
    make_nonowned_plan,
    make_plan,
)
from femops_kernels.derived import Derived
from femops_kernels.simd.runs import DofRuns
from femops_kernels.tuning.database import find

Ints = NDArray[np.int64]

# Chunks of a sweep over many vectors: elements of each, and how many there are of a large mesh.
_FEWEST_ELEMENTS, _VECTOR_CHUNKS = 64, 64

_plans = Derived[DomainSpace, Plan]()


def _element_start(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic]) -> Ints:
    """First element of each chunk of a sweep from fields to test functions, and the end."""
    first = fields.first
    ne, mesh = first.domain.num_elements, first.volume.distributed
    if not ne:
        return np.zeros(1, dtype=np.int64)
    if mesh is None or mesh.element_groups is None or not first.domain.covers:
        return equal_chunks(ne, _chunk(fields, tests, dtype, ne))
    return _chunk_starts(mesh, ne, _chunk(fields, tests, dtype, mesh.num_elements))


def _chunk_starts(mesh: DistributedMesh | None, ne: int, chunk: int) -> Ints:
    """First element of each chunk, and the end: the same chunks on any number of ranks."""
    if mesh is None or mesh.element_groups is None:
        return equal_chunks(ne, chunk)
    starts = [np.arange(a, b, chunk) for a, b in pairwise(mesh.element_groups.tolist())]
    return np.concatenate([*starts, [ne]])


def _chunk(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], ne: int) -> int:
    """Elements of a chunk.

    The copies of a vector stay in cache: of several fields all together.
    """
    if len(fields.spaces) > 1:
        nodes = sum(_nodes(space, ne) * space.ncomp for space in fields.spaces.values())
        return elements_per_chunk(ne, nodes, 1, dtype.itemsize)
    sides, chunk_bytes = [*fields.spaces.values(), *tests.spaces.values()], CHUNK_BYTES
    whole = fields.first.volume
    # else ranks on other machines, or the same problem there, had other chunks
    if whole.comm.size == 1 and not whole.any_width:
        settings = find(tuning_key(chunk_words(sides[0], sides[-1], dtype)))
        chunk_bytes = int(settings.get("chunk_bytes", CHUNK_BYTES))
    return min(
        elements_per_chunk(ne, _nodes(space, ne), space.ncomp, dtype.itemsize, chunk_bytes)
        for space in sides
    )


def chunk_words(trial: DomainSpace, test: DomainSpace, dtype: np.dtype[np.generic]) -> str:
    """All that the best size of chunks depends on, as the tuning database names it."""
    sides = "; ".join(f"{space.ncomp} x {space.order + 1} nodes" for space in (trial, test))
    return f"chunks: {trial.dim}-D; {sides}; {dtype}"


def _nodes(space: DomainSpace, ne: int) -> float:
    """Nodes per element, where those that elements share count once."""
    if not space.domain.covers or space.domain.num_elements == ne:
        return space.touched / ne
    return float(space.volume.global_ndofs / ne)


def chunk_batches(
    fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], width: int
) -> Ints:
    """First batch of each chunk of a sweep from fields to test functions, and the end."""
    return -(-_element_start(fields, tests, dtype) // width)


def plans(
    fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], width: int
) -> list[tuple[Plan, Plan]]:
    """Plans of such a sweep, of each field and of the test function of its name.

    Where there is no such test function, the field's twice.  All operators on the spaces share
    them.
    """
    starts, tested = _element_start(fields, tests, dtype), {**fields.spaces, **tests.spaces}
    return [
        (_plan(space, width, starts), _plan(tested[name], width, starts))
        for name, space in fields.spaces.items()
    ]


def vector_plans(
    trial: DomainSpace, test: DomainSpace, dtype: np.dtype[np.generic]
) -> tuple[Plan, Plan]:
    """Plans of a sweep over many vectors, in which each node is a run and each element a batch."""
    ne, mesh = trial.domain.num_elements, trial.volume.distributed
    if mesh is not None and mesh.element_groups is not None:
        # the same on any number of ranks
        starts = _element_start(Arguments.of(trial), Arguments.of(test), dtype)
    else:
        # what chunks share is copied and added: the fewer the better, but threads want some
        starts = equal_chunks(ne, max(_FEWEST_ELEMENTS, -(-ne // _VECTOR_CHUNKS)))
    return _vector_plan(trial, starts), _vector_plan(test, starts)


def _vector_plan(space: DomainSpace, starts: Ints) -> Plan:
    made = partial(_make_vector_plan, space, starts)
    return _plans.get(space, made, "vectors", starts.tobytes())


def _make_vector_plan(space: DomainSpace, starts: Ints) -> Plan:
    plan = _make_plan(space, 1, starts, single=True)
    return replace(plan, starts=plan.starts.astype(np.int32))


def _plan(space: DomainSpace, width: int, starts: Ints) -> Plan:
    made = partial(_make_plan, space, width, starts)
    return _plans.get(space, made, width, starts.tobytes())


def _make_plan(space: DomainSpace, width: int, starts: Ints, single: bool = False) -> Plan:
    single = single or space.has_end  # the dofs of turned elements are not in order
    runs = DofRuns(space.dim, space.p1d, space.p1d == 1 or isinstance(space, L2), single)
    whole, own = space.restriction, space.restriction.owned
    given = whole.indices, own, width, starts, runs, whole.ndofs - own
    if space.domain.covers:
        return placed_plan(make_plan(*given))
    mesh = space.volume.distributed
    plan = make_nonowned_plan(*given, apart=mesh is not None and mesh.reproducible)
    return placed_plan(plan)
