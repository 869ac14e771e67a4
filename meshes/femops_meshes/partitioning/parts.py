"""Parts of a mesh: the part of one rank, and the part of its first elements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.checks import compress_boundary, compress_vertices
from femops_meshes.errors import MeshArgumentError
from femops_meshes.forest import Forest
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh, joined_parts
from femops_meshes.names import Names
from femops_meshes.partitioning.partition import Partition
from femops_meshes.partitioning.pieces import checked_rank
from femops_meshes.shared_faces import inner_faces
from femops_meshes.side_checks import check_sides
from femops_meshes.topology.entities import entity_codes, entity_dimension, outward_corners
from femops_meshes.topology.topology import Carriers, Topology

Ints = NDArray[np.int64]

_BITS = 3  # of an orientation
_SPARSE = 20  # entries of a table of flags for each number, up to which it is faster than a sort


@final
@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """The share of a mesh that one of `size` ranks holds.

    A part of a locally refined mesh also has the larger edges and faces, and their vertices, of
    which elements of the part have pieces.

    Two parts share a vertex if both have its global number, and an edge or a face if both have the
    global numbers of its vertices. Both number their vertices in the order of the global numbers,
    so shared edges and faces have the same direction in both.

    Attributes
    ----------
    mesh : Mesh or MixedMesh
        The rank's own elements, and the entries of the whole mesh's boundary on them. Cuts between
        parts are no boundary. The mesh may be empty. Its coarsening (`Mesh.coarser`) has all coarse
        elements of the whole mesh.
    rank, size
        Index of the part, and number of parts.
    elements
        Shape (ne,) int64, ascending: number in the whole mesh of each element. Elements of several
        shapes are counted part by part, in `mesh` too.
    vertices
        Shape (nv,) int64, ascending: number in the whole mesh of each vertex.
    interface
        Shape (nf, 2) int64: the faces where the mesh was cut. A row has an element of `mesh` and
        the ternary code of the face in the element. Sorted by element, then by code.
    num_elements, num_vertices
        Numbers of elements and vertices of the whole mesh.
    leaves
        Of a locally refined mesh: the elements' places in its trees. These are no whole trees.
    numbers
        Of a locally refined mesh: for each dimension of entities, vertices first, their numbers in
        the whole mesh, ascending.
    """

    mesh: Any
    rank: int
    size: int
    elements: Ints
    vertices: Ints
    interface: Ints
    num_elements: int
    num_vertices: int
    leaves: Forest | None = None
    numbers: tuple[Ints, ...] = ()

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for array in (self.elements, self.vertices, self.interface):
            array.setflags(write=False)

    @cached_property
    def parts(self) -> tuple["Part", ...]:
        """Its elements of each shape, if the mesh has several; else the part itself.

        Each has the vertices of all shapes.
        """
        if isinstance(self.mesh, Mesh):
            return (self,)
        found, first = [], 0
        for mesh in self.mesh.parts:
            end = first + mesh.num_elements
            cut = self.interface[slice(*np.searchsorted(self.interface[:, 0], [first, end]))]
            own = self.elements[first:end]
            found.append(
                replace(self, mesh=mesh, elements=own, interface=cut - np.array([[first, 0]]))
            )
            first = end
        return tuple(found)

    @staticmethod
    def joined(parts: Sequence["Part"]) -> "Part":
        """Part of a mesh of several shapes, from the elements of each shape; see `parts`."""
        starts = np.cumsum([0, *(len(part.elements) for part in parts)])
        shifts = np.stack([starts[:-1], 0 * starts[:-1]], axis=1)
        cut = [part.interface + shift for part, shift in zip(parts, shifts, strict=True)]
        return replace(
            parts[0],
            mesh=joined_parts([part.mesh for part in parts]),
            elements=np.concatenate([part.elements for part in parts]),
            interface=np.concatenate(cut),
        )

    def __repr__(self) -> str:
        return (
            f"Part({self.rank} of {self.size}: {len(self.elements)} of {self.num_elements} "
            f"elements, cut at {len(self.interface)} faces)"
        )


def ordered_faces(faces: Ints) -> Ints:
    """Sort faces (n, 2), rows of element and code, by element and then by code."""
    return np.ascontiguousarray(faces[np.lexsort(faces.T[::-1])])


def part_of(mesh: Mesh | MixedMesh, partition: Partition, rank: int) -> Part:
    """Cut one rank's part out of a whole mesh.

    A boundary entry goes to the part of its element in the whole mesh's `Topology.boundary_faces`.
    So each entry goes to one part, also on faces between two parts. Names of attributes go to all
    parts.

    Parameters
    ----------
    mesh
        The whole mesh.
    partition
        The owners of its elements.
    rank
        Index of the part, from 0 to partition.size - 1.

    Raises
    ------
    MeshArgumentError
        If there is no such rank, or the partition has another number of elements.
    MeshTopologyError
        If the sides of boundary entries on glued faces are not known (`check_sides`).
    """
    rank, size = checked_rank(rank, partition.size)
    owner = partition.owner
    if len(owner) != mesh.num_elements:
        raise MeshArgumentError(
            f"the partition is one of {len(owner)} elements, the mesh has {mesh.num_elements}: "
            "make one with partition(mesh, size)"
        )
    for one in mesh.parts:
        check_sides(one)
    own = np.flatnonzero(owner == rank)
    if isinstance(mesh, Mesh) and mesh.forest is not None:
        return _leaves_of(mesh, mesh.forest, partition, rank, own)
    starts = np.cumsum([0, *(one.num_elements for one in mesh.parts)])
    each = np.split(own, np.searchsorted(own, starts[1:-1]))
    each = [some - first for some, first in zip(each, starts, strict=False)]
    tables = [one.elements[some] for one, some in zip(mesh.parts, each, strict=True)]
    flat, vertices = compress_vertices(np.concatenate([table.reshape(-1) for table in tables]))
    rows = np.split(flat, np.cumsum([table.size for table in tables])[:-1])
    rows = [flat.reshape(table.shape) for flat, table in zip(rows, tables, strict=True)]
    made = [
        _cut(one, some, corners, vertices, owner[first:] == rank)
        for one, some, corners, first in zip(mesh.parts, each, rows, starts, strict=False)
    ]
    sides, codes = inner_faces(mesh.parts)
    mine = owner[sides] == rank
    cut = mine & (mine[:, :1] != mine[:, 1:])  # one side of a face or none
    interface = np.stack([np.searchsorted(own, sides[cut]), codes[cut]], axis=1)
    return Part(
        made[0] if isinstance(mesh, Mesh) else joined_parts(made),
        rank,
        size,
        own,
        vertices,
        ordered_faces(interface),
        mesh.num_elements,
        mesh.num_vertices,
    )


def _cut(mesh: Mesh, own: Ints, corners: Ints, vertices: Ints, mine: NDArray[np.bool_]) -> Mesh:
    """Mesh of some elements, whose vertices are numbered anew, with their boundary entries."""
    listed = mine[mesh.topology.boundary_faces[:, 0]]
    return Mesh(
        corners,
        np.ascontiguousarray(mesh.coordinates[own]),
        mesh.element_attributes[own],
        compress_boundary(mesh.boundary[listed], vertices),
        mesh.boundary_attributes[listed],
        len(vertices),
        mesh.file_elements[own],
        mesh.element_names,
        mesh.boundary_names,
        None if mesh.coarser is None else mesh.coarser.reordered(own),
    )


def _leaves_of(mesh: Mesh, forest: Forest, partition: Partition, rank: int, own: Ints) -> Part:
    """Part of a locally refined mesh; see `part_of`."""
    whole, owner = mesh.topology, partition.owner
    listed = owner[whole.boundary_faces[:, 0]] == rank
    sides = whole.boundary_faces[listed]
    sides = np.stack([np.searchsorted(own, sides[:, 0]), sides[:, 1]], axis=1)
    arrays = {
        "coordinates": np.ascontiguousarray(mesh.coordinates[own]),
        "element_attributes": mesh.element_attributes[own],
        "boundary_attributes": mesh.boundary_attributes[listed],
        "file_elements": mesh.file_elements[own],
    }
    names = mesh.element_names, mesh.boundary_names
    part, numbers = leaf_mesh(entity_rows(whole, own), sides, arrays, names, mesh.continuous)
    faces, codes = part.topology.faces, part.topology.face_codes
    alone = np.flatnonzero((faces[:, 0] >= 0) & (faces[:, 1] < 0))
    interface = np.stack([faces[alone, 0], codes[alone, 0]], axis=1)
    at = whole.entity[own[interface[:, 0]], interface[:, 1]]
    return Part(
        part,
        rank,
        partition.size,
        own,
        numbers[0],
        ordered_faces(interface[whole.faces[at, 1] >= 0]),
        mesh.num_elements,
        mesh.num_vertices,
        forest.reordered(own),
        numbers,
    )


def leaf_mesh(
    rows: Ints,
    sides: Ints,
    arrays: Mapping[str, Any],
    names: tuple[Names, Names],
    continuous: bool,
) -> tuple[Mesh, tuple[Ints, ...]]:
    """Mesh of some leaves of trees from their `entity_rows`, and its `Part.numbers`.

    ``sides`` (nb, 2) are the elements and codes of boundary entries. ``arrays`` has the other
    arrays of a `Mesh`.
    """
    dim = int(arrays["coordinates"].shape[2])
    topology, numbers = topology_of_rows(rows, dim, sides)
    elements = topology.entity[:, entity_codes(dim, 0)]
    mesh = Mesh(
        elements=elements,
        boundary=outward_corners(elements, sides),
        num_vertices=len(numbers[0]),
        element_names=names[0],
        boundary_names=names[1],
        **arrays,
    )
    # cached_property keeps its values here; what leaves of other parts lack cannot be found anew
    mesh.__dict__.update(topology=topology, continuous=continuous)
    return mesh, tuple(numbers)


def entity_rows(
    topology: Topology, elements: Ints | slice, numbers: Sequence[Ints] | None = None
) -> Ints:
    """Rows (n, 2 * 3**dim + 1) that describe some elements of a locally refined mesh.

    A row has the element's entities, those that carry its dofs, and the flags of those that hang.
    ``numbers`` has the number of each vertex, edge, ... in the whole mesh, if this is a part of it.
    """
    dim, carriers = topology.dim, topology.carriers
    assert carriers is not None
    pairs = (topology.entity, topology.orientation), (carriers.entity, carriers.orientation)
    flags = np.zeros(len(topology.entity), dtype=np.int64)
    element, code, half = carriers.hanging.T
    np.bitwise_or.at(flags, element, 1 << code | half << 3**dim)
    columns = []
    for entity, orientation in pairs:
        found = entity[elements].copy()
        for kind, whole in enumerate(numbers or ()):
            codes = list(entity_codes(dim, kind))
            found[:, codes] = whole[found[:, codes]]
        columns.append(found << _BITS | orientation[elements])
    return np.hstack([*columns, flags[elements, np.newaxis]])


def topology_of_rows(rows: Ints, dim: int, faces: Ints) -> tuple[Topology, list[Ints]]:
    """Topology of elements from their `entity_rows`, with boundary entries at faces (nb, 2).

    Also return the number in the whole mesh of each vertex, edge, ..., ascending.
    """
    count, width = len(rows), 3**dim
    both = rows[:, : 2 * width] >> _BITS
    turns = (rows[:, : 2 * width] & (1 << _BITS) - 1).astype(np.uint8)
    kinds = np.array(entity_dimension(dim) * 2)
    numbers = []
    for kind in range(dim):
        columns = np.flatnonzero(kinds == kind)
        used, both[:, columns] = _ranked(both[:, columns])
        numbers.append(used)
    both[:, kinds == dim] = np.arange(count)[:, np.newaxis]
    element, code = np.nonzero(rows[:, -1:] >> np.arange(width) & 1)
    order = np.lexsort((code, kinds[code], element))
    element, code = element[order], code[order]
    hanging = np.stack([element, code, rows[element, -1] >> width], axis=1)
    carriers = Carriers(both[:, width:].copy(), turns[:, width:].copy(), hanging)
    entity, orientation = both[:, :width].copy(), turns[:, :width].copy()
    elements = entity[:, entity_codes(dim, 0)]
    counts = (*(len(each) for each in numbers), count)
    none = np.zeros((0, 2 ** (dim - 1)), dtype=np.int64)
    topology = Topology.of_leaves(elements, entity, orientation, counts, none, faces, carriers)
    return topology, numbers


def _ranked(numbers: Ints) -> tuple[Ints, Ints]:
    """Distinct numbers, ascending, and the place of each entry's number among them."""
    span = int(numbers.max(initial=-1)) + 1
    if span > _SPARSE * numbers.size:
        found, places = np.unique(numbers, return_inverse=True)
        return found, places.reshape(numbers.shape)
    present = np.zeros(span, dtype=np.bool_)
    present[numbers] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def first_elements(mesh: Mesh, count: int) -> Mesh:
    """Make a mesh of the first elements of a mesh.

    Vertices keep their order, so entities keep their directions. A space on the part has the dofs
    that the first elements touch, in the same order. The boundary of the part has all its exterior
    faces, with attribute 1. The part has no names.
    """
    if not 1 <= count <= mesh.num_elements:
        raise MeshArgumentError(
            f"count is {count}: the mesh has {mesh.num_elements} elements, take 1 to all of them"
        )
    if count == mesh.num_elements:
        return mesh
    elements, used = compress_vertices(mesh.elements[:count])
    return Mesh.assemble(
        elements,
        np.ascontiguousarray(mesh.coordinates[:count]),
        len(used),
        mesh.element_attributes[:count].copy(),
    )
