"""Plans of sweeps: how the elements of spaces are divided into chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops.geometry.boundary import BoundaryFaces
from femops.geometry.domain import size_of_groups
from femops.geometry.interior import InteriorFaces
from femops.operators.integrals.arguments import Arguments
from femops.parallel.mesh import DistributedMesh
from femops.spaces.domain_space import DomainSpace
from femops.spaces.face_space import FaceSpace
from femops.spaces.hanging import of_elements
from femops_kernels.cpu.first_touch import placed_plan
from femops_kernels.cpu.machine import tuning_key
from femops_kernels.cpu.plan import (
    CHUNK_BYTES,
    FEWEST_CHUNKS,
    HangingBatches,
    Plan,
    elements_per_chunk,
    equal_chunks,
    make_nonowned_plan,
    make_owned_plan,
    make_plan,
)
from femops_kernels.exclusive import Derived
from femops_kernels.tuning.database import find

Ints = NDArray[np.int64]

# Sweep over many vectors: fewest elements of a chunk, and number of chunks of a large mesh.
_FEWEST_ELEMENTS, _VECTOR_CHUNKS = 64, 64

_plans = Derived[DomainSpace, Plan]()


@final
@dataclass(frozen=True)
class _Chunks:
    """Chunks of a sweep."""

    start: Ints  # (n + 1,): first element, or face, of each chunk, and the number of elements
    # (n + 1,): for faces, the elements whose dofs a chunk may own: chunk c those from
    # ``owned[c]`` up to ``owned[c + 1]``. Some of its faces may belong to other elements.
    owned: Ints | None = None

    @property
    def key(self) -> bytes:
        """Bytes that differ for different divisions."""
        return self.start.tobytes() + (b"" if self.owned is None else self.owned.tobytes())


def _chunks(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic]) -> _Chunks:
    """Divide the elements or the faces of a sweep into chunks."""
    first = fields.first
    faces, ne, mesh = first.domain, first.domain.num_elements, first.volume.distributed
    if not ne:
        return _Chunks(np.zeros(1, dtype=np.int64))
    each = _elements_together(fields, tests, dtype)
    if isinstance(faces, BoundaryFaces | InteriorFaces):
        groups, size = len(faces.group_start) - 1, int(faces.group_elements[1])
        if not each or each % size:
            each = size * max(1, _chunk(fields, tests, dtype, ne) * groups // ne)
        return _of_groups(faces, each // size)
    if mesh is None or mesh.element_groups is None or not faces.on_elements:
        return _Chunks(equal_chunks(ne, each or _chunk(fields, tests, dtype, ne)))
    return _Chunks(_chunk_starts(mesh, ne, _chunk(fields, tests, dtype, mesh.num_elements)))


def _of_groups(faces: BoundaryFaces | InteriorFaces, each: int) -> _Chunks:
    """Chunks of ``each`` groups of faces."""
    groups = len(faces.group_start) - 1
    taken = np.append(np.arange(0, groups, each), groups)
    return _Chunks(faces.group_start[taken], faces.group_elements[taken])


def _elements_together(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic]) -> int:
    """Number of elements of a chunk which a sweep over cells and one over faces have in common.

    So the sweeps can go through the chunks together, and a chunk's dofs are still in a cache when
    its faces follow. The number is 0 if elements share dofs, or the mesh is so small that it would
    have too few chunks.
    """
    sides, first = [*fields.spaces.values(), *tests.spaces.values()], fields.first.volume
    volumes = {id(side.volume): side.volume for side in sides}
    ne, mesh = first.mesh.num_elements, first.distributed
    grouped = mesh is not None and mesh.element_groups is not None
    size, discontinuous = size_of_groups(ne), all(V.element.broken for V in volumes.values())
    if grouped or not discontinuous or ne < FEWEST_CHUNKS * size:
        return 0
    nodes = sum(V.element.size * V.ncomp for V in volumes.values())
    fit: float = min(CHUNK_BYTES / (2 * dtype.itemsize * nodes), ne // FEWEST_CHUNKS)
    return size * max(1, round(fit / size))


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
    if not space.domain.on_elements or space.domain.num_elements == ne:
        return space.touched / ne
    return float(space.volume.global_ndofs / ne)


def chunk_batches(
    fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], width: int
) -> Ints:
    """First batch of each chunk of a sweep, and the number of batches: (chunks + 1,)."""
    return -(-_chunks(fields, tests, dtype).start // width)


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
    chunks, tested = _chunks(fields, tests, dtype), {**fields.spaces, **tests.spaces}
    return [
        (_plan(space, width, chunks, layered), _plan(tested[name], width, chunks, layered))
        for name, space in fields.spaces.items()
    ]


def vector_plans(
    fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic], *, layered: bool
) -> list[tuple[Plan, Plan]]:
    """Plans of a sweep over many vectors; see `plans`. Each node is a run, each element a batch."""
    chunks, tested = _vector_chunks(fields, tests, dtype), {**fields.spaces, **tests.spaces}
    return [
        (_vector_plan(space, chunks, layered), _vector_plan(tested[name], chunks, layered))
        for name, space in fields.spaces.items()
    ]


def _vector_chunks(fields: Arguments, tests: Arguments, dtype: np.dtype[np.generic]) -> _Chunks:
    domain, mesh = fields.first.domain, fields.first.volume.distributed
    if mesh is not None and mesh.element_groups is not None:
        # chunks are the same on any number of ranks
        return _chunks(fields, tests, dtype)
    if isinstance(domain, InteriorFaces) and domain.num_elements:
        groups = len(domain.group_start) - 1
        return _of_groups(domain, -(-groups // _VECTOR_CHUNKS))
    # dofs shared by chunks are copied and added, so chunks are few, but each thread needs some
    ne = domain.num_elements
    return _Chunks(equal_chunks(ne, max(_FEWEST_ELEMENTS, -(-ne // _VECTOR_CHUNKS))))


def _vector_plan(space: DomainSpace, chunks: _Chunks, layered: bool) -> Plan:
    layers = _layers(space) if layered else 0
    made = partial(_make_vector_plan, space, chunks, layers)
    return _plans.get(space, made, "vectors", chunks.key, layers)


def _make_vector_plan(space: DomainSpace, chunks: _Chunks, layers: int) -> Plan:
    plan = _make_plan(space, 1, chunks, single=True, layers=layers)
    return replace(plan, starts=plan.starts.astype(np.int32))


def _plan(space: DomainSpace, width: int, chunks: _Chunks, layered: bool) -> Plan:
    layers = _layers(space) if layered else 0
    made = partial(_make_plan, space, width, chunks, layers=layers)
    return _plans.get(space, made, width, chunks.key, layers)


def _layers(space: DomainSpace) -> int:
    """Number of layers of nodes that a sweep needs of elements behind faces; 0 for all nodes.

    Elements that share dofs have their nodes in several runs. On reproducible meshes results are
    added element by element. There all nodes are read.
    """
    apart = space.volume.element.broken and not space.volume.any_width
    if not (isinstance(space, FaceSpace) and space.has_end and apart):
        return 0
    if space.restriction.hanging is not None:
        return 0
    layers = space.basis.layers(slopes=True)
    return layers if layers < space.p1d else 0


def _make_plan(
    space: DomainSpace, width: int, chunks: _Chunks, single: bool = False, layers: int = 0
) -> Plan:
    plan = _conforming_plan(space, width, chunks, single, layers)
    hanging = space.restriction.hanging
    if hanging is None:
        return plan
    rows, parts = hanging.hanging, hanging.parts
    if isinstance(space, FaceSpace) and space.has_end and not single:  # in the elements' order
        whole = space.hanging_behind
        rows = rows if whole is None else of_elements(whole, space.behind)
        parts = space.own_parts()
    ne = space.domain.num_elements
    return replace(plan, hanging=HangingBatches.of(rows, parts, ne, width, plan.runs))


def _conforming_plan(
    space: DomainSpace, width: int, chunks: _Chunks, single: bool, layers: int
) -> Plan:
    behind = space if isinstance(space, FaceSpace) and space.has_end else None
    runs = space.element.runs(single=single, layers=layers)
    whole, own = space.restriction, space.restriction.owned
    # kernels turn the elements behind faces, but for many vectors their dofs are turned before
    indices = behind.element_indices(layers) if behind and not single else whole.indices
    if single:  # layer by layer from the face
        indices = indices[:, : runs.num_nodes]
    given = indices, own, width, chunks.start, runs, whole.ndofs - own
    if space.domain.covers:
        touched = whole.first_touch[1:]
        return placed_plan(make_plan(*given, num_touched=touched, flipped=whole.flipped))
    if space.domain.on_elements:  # of a part of a mesh of several shapes
        owned = whole.first_touch[chunks.start]
        sizes = own, width, chunks.start, owned
        plan = make_owned_plan(indices, *sizes, runs, whole.ndofs - own, even=True)
        return placed_plan(plan)
    mesh = space.volume.distributed
    apart = mesh is not None and mesh.reproducible
    if chunks.owned is not None and space.volume.element.broken and not apart:
        runs = replace(runs, single=single or behind is None)
        owned = chunks.owned * space.volume.element.size + (space.volume.restriction.first or 0)
        sizes = own, width, chunks.start, owned
        return placed_plan(make_owned_plan(indices, *sizes, runs, whole.ndofs - own))
    plan = make_nonowned_plan(*given, apart=apart, even=space.domain.two_sided)
    return placed_plan(plan)
