"""Whole meshes on one rank, which are sent out in parts and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import femops_meshes
from femops.parallel.comm import Array, Communicator, gathered
from femops_meshes import Mesh, MixedMesh, Part, Partition
from femops_meshes.coarsening import Coarsening
from femops_meshes.forest import Forest
from femops_meshes.mixed import joined_parts
from femops_meshes.partitioning.parts import entity_rows, leaf_mesh
from femops_meshes.partitioning.pieces import equal_pieces

Ints = NDArray[np.int64]

WIDEST = 16
"""Elements of the widest batch."""

GROUPS = 840
"""Largest number of element groups. With it ranks have about equally many groups."""


_ARRAYS: dict[str, Callable[[Part], Array]] = {
    "own": lambda part: part.elements,
    "vertices": lambda part: part.vertices,
    "interface": lambda part: part.interface,
    "elements": lambda part: part.mesh.elements,
    "coordinates": lambda part: part.mesh.coordinates,
    "element_attributes": lambda part: part.mesh.element_attributes,
    "boundary": lambda part: part.mesh.boundary,
    "boundary_attributes": lambda part: part.mesh.boundary_attributes,
    "file_elements": lambda part: part.mesh.file_elements,
}
"""Arrays of a part that are sent to its rank."""

_PLACES: dict[str, Callable[[Part], Array]] = {
    "parent": lambda part: _coarsening(part).parent,
    "low": lambda part: _coarsening(part).low,
    "high": lambda part: _coarsening(part).high,
}
"""Further arrays to send: the positions of a part's elements in the coarser mesh."""


def _leaf_places(part: Part) -> Array:
    """Root, level and path (ne, 3) of each leaf."""
    assert part.leaves is not None
    return np.stack([part.leaves.root, part.leaves.level, part.leaves.path], axis=1)


def _with_leaves(forest: Forest, places: Array) -> Forest:
    """Forest with other leaves, given as by `_leaf_places`."""
    root, level, path = places.T.copy()
    return replace(forest, root=root, level=level.astype(np.int8), path=path)


_LEAVES: dict[str, Callable[[Part], Array]] = {
    "rows": lambda part: entity_rows(part.mesh.topology, slice(None), part.numbers),
    "sides": lambda part: part.mesh.topology.boundary_faces,
    "leaves": _leaf_places,
}
"""Further arrays to send: what a part of a locally refined mesh has of its trees."""


def _coarsening(part: Part) -> Coarsening:
    found: Coarsening | None = part.mesh.whole_coarser
    assert found is not None
    return found


def group_pieces(counts: Sequence[int], size: int) -> tuple[Ints, Ints]:
    """Cut elements into groups of one shape, and give each rank consecutive groups.

    ``counts`` are the numbers of elements of each shape.
    """
    each, first = max(1, -(-sum(counts) // (GROUPS * WIDEST))) * WIDEST, 0
    cuts = list[Ints]()
    for count in counts:
        cuts.append(np.arange(first, first + count, each))
        first += count
    cuts.append(np.array([first]))
    return np.concatenate(cuts), equal_pieces(sum(map(len, cuts)) - 1, size)


def rank_groups(counts: Sequence[int], size: int, rank: int) -> tuple[tuple[int, int], Ints]:
    """Return start and stop of a rank's elements, and the starts (k,) of its groups in them."""
    cuts, pieces = group_pieces(counts, size)
    own = cuts[pieces[rank] : pieces[rank + 1] + 1]
    return (int(own[0]), int(own[-1])), own - own[0]


def groups_of(part: Part, comm: Communicator) -> Ints:
    """Starts (k,) of the element groups of this rank's part, and its number of elements."""
    counts = comm.sum(np.array([len(one.elements) for one in part.parts])).tolist()
    return rank_groups(counts, comm.size, comm.rank)[1]


def shares(
    mesh: Mesh | MixedMesh, size: int, method: str, weights: ArrayLike | None, reproducible: bool
) -> Partition:
    """Partition of a mesh; ``reproducible`` ones cut the curve between groups of elements."""
    if not reproducible:
        return femops_meshes.partition(mesh, size, method, weights)
    cuts, pieces = group_pieces([part.num_elements for part in mesh.parts], size)
    owner = np.repeat(np.arange(size), np.diff(cuts[pieces]))
    return Partition.of(mesh, owner, size)


def scattered(parts: Sequence[Part], comm: Communicator, root: int) -> Part:
    """Send all parts from the root, and return this rank's part. Collective."""
    head: Any = None
    if comm.rank == root:
        mixed = isinstance(parts[root].mesh, MixedMesh)
        head = mixed, len(parts[root].parts)
    mixed, count = comm.broadcast(head, root)
    shapes = [[part.parts[k] for part in parts] for k in range(count)]
    found = [_scattered(each, comm, root) for each in shapes]
    if comm.rank == root:
        return parts[root]
    return Part.joined(found) if mixed else found[0]


def _scattered(parts: Sequence[Part], comm: Communicator, root: int) -> Part:
    """As `scattered`, of elements of one shape."""
    head: Any = None
    if comm.rank == root:
        mesh = parts[root].mesh
        names = dict(mesh.element_names), dict(mesh.boundary_names)
        none = np.empty(0, dtype=np.int64)
        coarser = None if mesh.coarser is None else mesh.coarser.reordered(none)
        leaves = parts[root].leaves
        trees = None if leaves is None else (leaves.reordered(none), mesh.continuous)
        head = parts[root].num_elements, parts[root].num_vertices, names, coarser, trees
    num_elements, num_vertices, names, coarser, trees = comm.broadcast(head, root)
    got: dict[str, Any] = {}
    arrays = _ARRAYS if coarser is None else _ARRAYS | _PLACES
    for name, of in (arrays if trees is None else _ARRAYS | _LEAVES).items():
        others = {rank: of(part) for rank, part in enumerate(parts) if rank != root}
        received = comm.exchange(others)
        if comm.rank != root:
            got[name] = received[root]
    if comm.rank == root:
        return parts[root]
    own, vertices, interface = (got.pop(name) for name in ("own", "vertices", "interface"))
    sizes = num_elements, num_vertices
    if trees is not None:
        rows, sides, places = (got.pop(name) for name in _LEAVES)
        for name in ("elements", "boundary"):
            del got[name]
        mesh, numbers = leaf_mesh(rows, sides, got, names, trees[1])
        leaves = _with_leaves(trees[0], places)
        return Part(mesh, comm.rank, comm.size, own, vertices, interface, *sizes, leaves, numbers)
    if coarser is not None:
        coarser = replace(coarser, **{name: got.pop(name) for name in _PLACES})
    mesh = Mesh(
        **got,
        num_vertices=len(vertices),
        element_names=names[0],
        boundary_names=names[1],
        coarser=coarser,
    )
    return Part(mesh, comm.rank, comm.size, own, vertices, interface, *sizes)


def gathered_mesh(part: Part, comm: Communicator) -> Any:
    """The whole mesh on rank 0, with its trees; None on other ranks. Collective.

    Boundary entries are sorted by element and face.
    """
    found = [_gathered(each, comm) for each in part.parts]
    if isinstance(part.mesh, Mesh) or comm.rank > 0:
        return found[0]
    return joined_parts([each for each in found if each is not None])


def _gathered(part: Part, comm: Communicator) -> Mesh | None:
    """As `gathered_mesh`, of elements of one shape."""
    mesh, leaves, coarser = part.mesh, part.leaves, part.mesh.coarser
    sides = mesh.topology.boundary_faces
    tables = {
        "numbers": part.elements,
        "elements": part.vertices[mesh.elements],
        "coordinates": mesh.coordinates,
        "element_attributes": mesh.element_attributes,
        "file_elements": mesh.file_elements,
        "faces": np.stack([part.elements[sides[:, 0]], sides[:, 1]], axis=1),
        "boundary": np.append(part.vertices, -1)[mesh.boundary],  # -1 for no vertex
        "boundary_attributes": mesh.boundary_attributes,
    }
    extra = _LEAVES if leaves is not None else _PLACES if coarser is not None else {}
    tables |= {name: of(part) for name, of in extra.items() if name not in ("rows", "sides")}
    got: dict[str, Any] = {}
    for name, table in tables.items():
        arrived = comm.exchange({0: np.ascontiguousarray(table)})
        if comm.rank == 0:
            got[name] = np.concatenate([*arrived.values()])
    if comm.rank > 0:
        return None
    order, faces = np.argsort(got.pop("numbers")), got.pop("faces")
    entries = np.lexsort((faces[:, 1], faces[:, 0]))
    for name, values in got.items():
        got[name] = values[entries if name.startswith("boundary") else order]
    if leaves is not None:
        got["forest"] = _with_leaves(leaves, got.pop("leaves"))
    elif coarser is not None:
        got["coarser"] = replace(coarser, **{name: got.pop(name) for name in _PLACES})
    names = mesh.element_names, mesh.boundary_names
    whole = Mesh(
        num_vertices=part.num_vertices, element_names=names[0], boundary_names=names[1], **got
    )
    if leaves is not None:  # cached_property keeps its values here
        whole.__dict__.update(_sides=faces[entries], continuous=mesh.continuous)
    return whole


def whole_trees(part: Part, comm: Communicator) -> Forest:
    """Trees of the whole mesh, on all ranks. Collective."""
    if part.leaves is None:
        whole = gathered_mesh(part, comm)
        found: Forest = comm.broadcast(None if whole is None else whole.trees)
        return found
    order = np.argsort(gathered(comm, part.elements))
    return _with_leaves(part.leaves, gathered(comm, _leaf_places(part))[order])
