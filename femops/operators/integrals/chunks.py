"""Plans of sweeps: how the elements of spaces are divided into chunks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from femops.geometry.boundary import BoundaryFaces
from femops.geometry.interior import MINUS, InteriorFaces
from femops.operators.integrals.arguments import Arguments
from femops.parallel.mesh import DistributedMesh
from femops.spaces.domain_space import DomainSpace
from femops.spaces.face_space import FaceSpace
from femops.spaces.h1_l2 import L2
from femops.spaces.side_space import SideSpace
from femops_kernels.cpu.first_touch import placed_plan
from femops_kernels.cpu.machine import tuning_key
from femops_kernels.cpu.plan import (
    CHUNK_BYTES,
    Plan,
    elements_per_chunk,
    equal_chunks,
    make_nonowned_plan,
    make_owned_plan,
    make_plan,
)
from femops_kernels.derived import Derived
from femops_kernels.simd.runs import DofRuns
from femops_kernels.tuning.database import find

Ints = NDArray[np.int64]

# Sweep over many vectors: fewest elements of a chunk, and number of chunks of a large mesh.
_FEWEST_ELEMENTS, _VECTOR_CHUNKS = 64, 64

_plans = Derived[DomainSpace, Plan]()


def _element_start(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic]) -> Ints:
    """First element of each chunk of a sweep, and the number of elements: (chunks + 1,)."""
    first = fields.first
    ne, mesh = first.domain.num_elements, first.volume.distributed
    if not ne:
        return np.zeros(1, dtype=np.int64)
    if isinstance(first.domain, BoundaryFaces | InteriorFaces):
        groups = first.domain.group_start
        each = max(1, _chunk(fields, tests, dtype, ne) * (len(groups) - 1) // ne)
        return np.unique(np.append(groups[:-1:each], ne))
    if mesh is None or mesh.element_groups is None or not first.domain.covers:
        return equal_chunks(ne, _chunk(fields, tests, dtype, ne))
    return _chunk_starts(mesh, ne, _chunk(fields, tests, dtype, mesh.num_elements))


def _chunk_starts(mesh: DistributedMesh | None, ne: int, chunk: int) -> Ints:
    """First element of each chunk, and ``ne``. The chunks do not depend on the number of ranks."""
    if mesh is None or mesh.element_groups is None:
        return equal_chunks(ne, chunk)
    starts = [np.arange(a, b, chunk) for a, b in pairwise(mesh.element_groups.tolist())]
    return np.concatenate([*starts, [ne]])


def _chunk(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], ne: int) -> int:
    """Number of elements of a chunk, chosen so that its copies of vector entries stay in cache.

    With several fields the copies of all fields stay in cache together.
    """
    if len(fields.spaces) > 1:
        nodes = sum(_nodes(space, ne) * space.ncomp for space in fields.spaces.values())
        return elements_per_chunk(ne, nodes, 1, dtype.itemsize)
    sides, chunk_bytes = [*fields.spaces.values(), *tests.spaces.values()], CHUNK_BYTES
    whole = fields.first.volume
    # sizes tuned on this machine are not used where ranks or machines must agree on chunks
    if whole.comm.size == 1 and not whole.any_width:
        settings = find(tuning_key(chunk_words(sides[0], sides[-1], dtype)))
        chunk_bytes = int(settings.get("chunk_bytes", CHUNK_BYTES))
    return min(
        elements_per_chunk(ne, _nodes(space, ne), space.ncomp, dtype.itemsize, chunk_bytes)
        for space in sides
    )


def chunk_words(trial: DomainSpace, test: DomainSpace, dtype: np.dtype[np.generic]) -> str:
    """Key of the tuning database for the best chunk size. Equal keys have equal best sizes."""
    sides = "; ".join(f"{space.ncomp} x {space.order + 1} nodes" for space in (trial, test))
    return f"chunks: {trial.dim}-D; {sides}; {dtype}"


def _nodes(space: DomainSpace, ne: int) -> float:
    """Number of nodes per element, where shared nodes count once."""
    if not space.domain.covers or space.domain.num_elements == ne:
        return space.touched / ne
    return float(space.volume.global_ndofs / ne)


def chunk_batches(
    fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], width: int
) -> Ints:
    """First batch of each chunk of a sweep, and the number of batches: (chunks + 1,)."""
    return -(-_element_start(fields, tests, dtype) // width)


def plans(
    fields: Arguments,
    tests: Arguments,
    dtype: np.dtype[np.generic],
    width: int,
    *,
    layered: bool = True,
) -> list[tuple[Plan, Plan]]:
    """Plans of a sweep: for each field, a plan to read and a plan to write.

    The second plan belongs to the test function with the field's name. If there is no such test
    function, the pair has the field's plan twice. All operators on the spaces share the plans.
    Plans that are ``layered`` have only those nodes of an element behind a face that its basis
    needs there.
    """
    starts, tested = _element_start(fields, tests, dtype), {**fields.spaces, **tests.spaces}
    return [
        (_plan(space, width, starts, layered), _plan(tested[name], width, starts, layered))
        for name, space in fields.spaces.items()
    ]


def vector_plans(
    trial: DomainSpace, test: DomainSpace, dtype: np.dtype[np.generic]
) -> tuple[Plan, Plan]:
    """Plans of a sweep over many vectors. Each node is a run, and each element a batch."""
    ne, mesh = trial.domain.num_elements, trial.volume.distributed
    if mesh is not None and mesh.element_groups is not None:
        # chunks are the same on any number of ranks
        starts = _element_start(Arguments.of(trial), Arguments.of(test), dtype)
    else:
        # dofs shared by chunks are copied and added, so chunks are few, but each thread needs some
        starts = equal_chunks(ne, max(_FEWEST_ELEMENTS, -(-ne // _VECTOR_CHUNKS)))
    return _vector_plan(trial, starts), _vector_plan(test, starts)


def _vector_plan(space: DomainSpace, starts: Ints) -> Plan:
    made = partial(_make_vector_plan, space, starts)
    return _plans.get(space, made, "vectors", starts.tobytes())


def _make_vector_plan(space: DomainSpace, starts: Ints) -> Plan:
    plan = _make_plan(space, 1, starts, single=True)
    return replace(plan, starts=plan.starts.astype(np.int32))


def _plan(space: DomainSpace, width: int, starts: Ints, layered: bool) -> Plan:
    layers = _layers(space) if layered else 0
    made = partial(_make_plan, space, width, starts, layers=layers)
    return _plans.get(space, made, width, starts.tobytes(), layers)


def _layers(space: DomainSpace) -> int:
    """Number of layers of nodes that a sweep needs of elements behind faces; 0 for all nodes.

    Elements that share dofs have their nodes in several runs. On reproducible meshes results are
    added element by element. There all nodes are read.
    """
    apart = isinstance(space.volume, L2) and not space.volume.any_width
    if not (isinstance(space, FaceSpace) and space.has_end and apart):
        return 0
    layers = space.basis.layers(slopes=True)
    return layers if layers < space.p1d else 0


def _make_plan(
    space: DomainSpace, width: int, starts: Ints, single: bool = False, layers: int = 0
) -> Plan:
    behind = space if isinstance(space, FaceSpace) and space.has_end else None
    broken = space.p1d == 1 or isinstance(space.volume if behind else space, L2)
    runs = DofRuns(space.dim, space.p1d, broken, single, layers)
    whole, own = space.restriction, space.restriction.owned
    # kernels turn the elements behind faces, but for many vectors their dofs are turned before
    indices = behind.element_indices(layers) if behind and not single else whole.indices
    given = indices, own, width, starts, runs, whole.ndofs - own
    if space.domain.covers:
        return placed_plan(make_plan(*given, met=whole.first_touch[1:]))
    mesh = space.volume.distributed
    apart = mesh is not None and mesh.reproducible
    owned = None if apart else _owned_start(space, starts)
    if owned is not None:
        runs = replace(runs, single=single or behind is None)
        sizes = own, width, starts, owned
        return placed_plan(make_owned_plan(indices, *sizes, _met(space), runs, whole.ndofs - own))
    plan = make_nonowned_plan(*given, apart=apart, even=space.domain.two_sided)
    return placed_plan(plan)


def _owned_start(space: DomainSpace, starts: Ints) -> Ints | None:
    """First dof of the elements of each chunk of faces, and the number of dofs.

    These are the minus elements of faces between elements. None if elements share dofs, or a chunk
    begins within a group of faces.
    """
    faces, whole = space.domain, space.volume
    if not isinstance(faces, BoundaryFaces | InteriorFaces) or not isinstance(whole, L2):
        return None
    if not np.isin(starts, faces.group_start).all():
        return None
    first = faces.group_elements[np.searchsorted(faces.group_start, starts, side="right") - 1]
    first[0], first[-1] = 0, faces.group_elements[-1]
    return np.asarray(first * whole.p1d**whole.dim)


def _met(space: DomainSpace) -> Ints:
    """Number of dofs that a sweep has met after each face (nf,).

    These are the dofs of all elements up to the last one behind a face so far. Plus sides have
    zeros, as their elements are also met as minus elements.
    """
    faces, minus = space.domain, isinstance(space, SideSpace) and space.side == MINUS
    if isinstance(faces, BoundaryFaces):
        elements = faces.elements
    elif isinstance(faces, InteriorFaces) and minus:
        elements = faces.elements[MINUS]
    else:
        return np.zeros(faces.num_elements, dtype=np.int64)
    return np.asarray((np.maximum.accumulate(elements) + 1) * space.volume.p1d**space.volume.dim)
