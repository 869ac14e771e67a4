"""Vertices, edges, faces and cells of a mesh: their numbers, and how each element sees them.

The 3**dim sub-entities of an element are addressed by a ternary code t = t1 + 3 t2 + 9 t3, where
t_d is 0 at the low end of direction d, 1 in its interior and 2 at its high end. So the code of the
cell itself is 1, 4, 13 (dim 1, 2, 3), that of the face x = 0 of a hex 0 + 3 + 9 = 12.

The orientation of an entity is intrinsic, that is, independent of the order of the elements. An
edge runs from its smaller to its larger vertex number. A quadrilateral has its origin at its
smallest vertex number, and its first direction leads to the smaller of that corner's neighbours.
"""

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshTopologyError
from femops_meshes.topology.entities import (
    CUBES,
    Cell,
    chosen_faces,
    code_digits,
    entity_codes,
    entity_corners,
    entity_dimension,
    entity_permutation,
    lattice_numbers,
    outward_corners,
    quad_orientation,
    triangle_orientation,
)

Ints = NDArray[np.int64]


def translated_entities(
    elements: Ints, num_vertices: int, boundary: Ints | None
) -> tuple[Ints, tuple[int, ...], Ints] | None:
    """Numbers of the entities of elements that are translations of one another.

    They are those of `Topology.build`. The orientations of all entities are zero.

    Shapes: `entity` (ne, 3**dim), `entries` (nb,).
    """
    dim = elements.shape[1].bit_length() - 1
    offsets = _offsets(elements)
    if offsets is None or dim == 1:
        return None
    low = elements[:, 0]
    if np.bincount(low, minlength=num_vertices).max() > 1:
        return None
    entity = np.empty((len(elements), 3**dim), dtype=np.int64)
    entity[:, entity_codes(dim, 0)] = elements
    entity[:, entity_codes(dim, dim)] = np.arange(len(elements))[:, np.newaxis]
    counts, number = [num_vertices], np.zeros(0, np.int64)
    for kind in range(1, dim):
        ways = [*combinations(range(dim), kind)]  # directions along the entities
        codes = entity_codes(dim, kind)
        places = {
            code: (elements[:, entity_corners(dim, code)[0]], _way(code, dim, ways))
            for code in codes
        }
        present = np.zeros((num_vertices, len(ways)), dtype=np.bool_)
        for place in places.values():
            present[place] = True
        ranks = np.cumsum(present).reshape(present.shape)
        number = np.where(present, ranks - 1, -1)
        counts.append(int(ranks[-1, -1]))
        for code, place in places.items():
            entity[:, code] = number[place]
    entries = np.zeros(0, np.int64)
    if boundary is not None and len(boundary):
        found = _entries(boundary, number, [*combinations(offsets, dim - 1)])
        if found is None:
            return None
        entries = found
    return entity, (*counts, len(elements)), entries


def _offsets(elements: Ints) -> list[int] | None:
    """Offset of the vertex along each direction, the same in all elements. None if they differ."""
    dim = elements.shape[1].bit_length() - 1
    if not len(elements):
        return None
    first = elements[0] - elements[0, 0]
    offsets = [int(first[1 << d]) for d in range(dim)]
    ascending = all(sum(offsets[:d]) < offsets[d] for d in range(dim))
    sums = [sum(s for d, s in enumerate(offsets) if k >> d & 1) for k in range(1 << dim)]
    if not ascending or first.tolist() != sums:
        return None
    low = elements[:, 0]
    alike = all((elements[:, k] - low == s).all() for k, s in enumerate(sums))
    return offsets if alike else None


def _way(code: int, dim: int, ways: list[tuple[int, ...]]) -> int:
    """Place among ``ways`` of the directions along an entity."""
    return ways.index(tuple(d for d, t in enumerate(code_digits(code, dim)) if t == 1))


def _entries(boundary: Ints, number: Ints, ways: list[tuple[int, ...]]) -> Ints | None:
    """Number (nb,) of the face of each boundary entry. None if one is no face."""
    ordered = np.sort(boundary, axis=1)
    opposite = np.argmin(boundary, axis=1) ^ (boundary.shape[1] - 1)
    twisted = boundary[np.arange(len(boundary)), opposite] != ordered[:, -1]
    if ordered.min() < 0 or ordered.max() >= len(number) or twisted.any():
        return None
    found = np.full(len(boundary), -1, dtype=np.int64)
    for way, offsets in enumerate(ways):
        sums = [
            sum(s for d, s in enumerate(offsets) if k >> d & 1) for k in range(1 << len(offsets))
        ]
        alike = (ordered - ordered[:, :1] == sums).all(axis=1)
        found[alike] = number[ordered[alike, 0], way]
    return None if (found < 0).any() else found


Codes = NDArray[np.uint8]


@final
@dataclass(frozen=True, eq=False)
class Carriers:
    """Entities that carry the dofs of elements where some are parts of larger entities.

    An entity that is part of a larger one, which another element has as a whole, *hangs*. An
    element reads dofs of the larger entity in its place, and interpolates them.
    """

    # entity and orientation: as in `Topology`, with the larger entity in place of a hanging one,
    # and its edges and vertices in place of those of the hanging one
    entity: Ints
    orientation: Codes
    # shape (n, 3): element, code of a face that hangs or of an edge in no such face, and the part:
    # bit d is set if the element is in the high half of its parent in direction d. By element;
    # edges before faces.
    hanging: Ints


MAX_VERTICES = 2**31
_SHOWN = 5


def _intrinsic_orientation(corners: Ints) -> Codes:
    if corners.shape[-1] == 2:
        return (corners[..., 0] > corners[..., 1]).astype(np.uint8)
    if corners.shape[-1] == 3:
        return triangle_orientation(corners)
    place = np.argmin(corners, axis=-1)[..., None]
    origin = np.take_along_axis(corners, place, axis=-1)[..., 0]
    sides = [np.take_along_axis(corners, place ^ bit, axis=-1)[..., 0] for bit in (1, 2)]
    return quad_orientation(corners, origin, np.minimum(*sides))


def group_rows(corners: Ints, num_vertices: int) -> tuple[Ints, int]:
    """Number the vertex sets of the rows (n, 2 to 4): equal sets have one number. Count the sets.

    Return the number (n,) of each row's set, and the count.
    """
    if corners.shape[1] == 2:  # takes less time than a sort
        ordered = np.stack([corners.min(axis=1), corners.max(axis=1)], axis=1)
    else:
        ordered = np.sort(corners, axis=1)
    number, count = _ranked(ordered[:, 0] * num_vertices + ordered[:, 1])
    if corners.shape[1] > 2:
        keys = ordered[:, 2]
        if corners.shape[1] == 4:
            keys = keys * num_vertices + ordered[:, 3]
        rest, others = _ranked(keys)
        number, count = _ranked(number * others + rest)
    return number, count


def _ranked(keys: Ints) -> tuple[Ints, int]:
    """Rank (n,) of each key among the distinct keys, and how many distinct keys there are.

    Keys are non-negative integers.

    Keys and their positions are sorted as one number if it has room for both. This takes a fraction
    of the time of `numpy.unique`.
    """
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)) >> (62 - bits):
        values, number = np.unique(keys, return_inverse=True)
        return number.astype(np.int64, copy=False), len(values)
    packed = np.sort((keys << bits) | np.arange(len(keys)))
    at = packed & ((1 << bits) - 1)
    packed >>= bits
    new = np.ones(len(keys), dtype=np.int64)
    np.not_equal(packed[1:], packed[:-1], out=new[1:], casting="unsafe")
    ranks = np.cumsum(new)
    number = np.empty_like(ranks)
    number[at] = ranks - 1
    return number, int(new.sum())


def orientations(elements: Ints) -> Codes:
    """Orientation (ne, 3**dim) of each entity of elements; see `Topology`."""
    dim = elements.shape[1].bit_length() - 1
    found = np.zeros((len(elements), 3**dim), dtype=np.uint8)
    for kind in range(1, dim):
        codes = list(entity_codes(dim, kind))
        corners = elements[:, [entity_corners(dim, code) for code in codes]]
        found[:, codes] = _intrinsic_orientation(corners)
    return found


@final
@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """The sub-entities of all elements. `Topology.build` makes it. Arrays are read-only."""

    cell: Cell  # of all elements
    # shape (ne, 3**dim) int64: number of each sub-entity within its dimension, by ternary code, or
    # by the codes of a simplex. A vertex keeps its vertex number, a cell its element number.
    entity: Ints
    # shape (ne, 3**dim) uint8: the flips and the swap that lead from the element's order to the
    # entity's own order. For edges, 1 is a flip. For quadrilaterals bit 0 is a flip of the
    # element's first direction in the entity, bit 1 a flip of its second direction, and bit 2 a
    # swap of the two directions after the flips. 0 for vertices and cells.
    orientation: Codes
    num_entities: tuple[int, ...]  # dim + 1 counts: vertices, edges, ..., cells
    # shape (num_faces, 2) int64: the elements on both sides of each (dim-1)-entity, the smaller
    # number first; -1 outside
    faces: Ints
    # shape (num_faces, 2) int8: ternary code of the face in each of its elements; -1 outside
    face_codes: NDArray[np.int8]
    # shape (nb, 2) int64: an element and a code for each boundary entry. If two elements have the
    # face, it is the one that the entry looks out of (see `femops_meshes.topology.entities`).
    boundary_faces: Ints
    # of locally refined meshes, else None. Their rows of `faces` have a larger element beside a
    # smaller one, with the smaller one's face. In the row of the larger element's own face the
    # first smaller one stands beside it.
    carriers: Carriers | None = None
    # shape (n,): ascending numbers of the faces of larger elements that smaller ones share
    divided: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    triangles: int = 0  # of prisms: number of the faces that are triangles, which come first
    # shape (n,): ascending numbers of the faces at which elements of another shape lie; see
    # `femops_meshes.mixed.MixedMesh`
    joined: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def dim(self) -> int:
        """Dimension of the elements."""
        return self.cell.dim

    @property
    def kinds(self) -> range:
        """Dimensions of entities, from that of vertices to that of cells."""
        return range(self.dim + 1)

    @classmethod
    def build(
        cls,
        elements: Ints,
        num_vertices: int,
        boundary: Ints | None = None,
        cell: Cell | None = None,
    ) -> "Topology":
        """Find all entities of a mesh, by default of segments, quadrilaterals or hexahedra."""
        cell = cell or CUBES[elements.shape[1].bit_length() - 1]
        _check_numbers(elements, num_vertices)
        orientation = np.zeros((len(elements), len(cell.entities)), dtype=np.uint8)
        found = None
        triangles = 0
        if cell.cube:
            found = translated_entities(elements, num_vertices, boundary)
        if found is None:
            found, triangles = _sorted_entities(elements, num_vertices, boundary, orientation, cell)
        entity, counts, entries = found
        faces, face_codes = _pair_faces(elements, entity, cell, counts[cell.dim - 1])
        if boundary is None:
            entries = np.flatnonzero((faces[:, 0] >= 0) & (faces[:, 1] < 0))
            boundary_faces = np.stack([faces[entries, 0], face_codes[entries, 0]], axis=1)
        else:
            _check_boundary(boundary, entries, faces)
            sides = faces[entries], face_codes[entries]
            boundary_faces = chosen_faces(elements, boundary, *sides, cell)
        made = cls._frozen(cell, entity, orientation, counts, faces, face_codes, boundary_faces)
        return replace(made, triangles=triangles) if triangles else made

    @classmethod
    def of_entities(
        cls,
        elements: Ints,
        entity: Ints,
        orientation: Codes,
        counts: tuple[int, ...],
        boundary: Ints,
        boundary_faces: Ints | None,
    ) -> "Topology":
        """Make the topology of known entities; find the faces of the boundary if they are not."""
        dim = len(counts) - 1
        cell = CUBES[dim]
        faces, codes = _pair_faces(elements, entity, cell, counts[dim - 1])
        if boundary_faces is None:
            some = np.flatnonzero(faces[:, 0] >= 0)
            sides = np.stack([faces[some, 0], codes[some, 0]], axis=1)
            rows = np.concatenate([outward_corners(elements, sides, cell), boundary])
            number, count = (rows[:, 0], counts[0]) if dim == 1 else group_rows(rows, counts[0])
            place = np.full(count, -1, dtype=np.int64)
            place[number[: len(some)]] = some
            entries = place[number[len(some) :]]
            _check_listed(boundary, np.flatnonzero(entries < 0))
            _check_entries_twisted(rows, place[number], len(boundary))
            beside = faces[entries], codes[entries]
            boundary_faces = chosen_faces(elements, boundary, *beside, cell)
        return cls._frozen(cell, entity, orientation, counts, faces, codes, boundary_faces)

    @classmethod
    def of_leaves(
        cls,
        elements: Ints,
        entity: Ints,
        orientation: Codes,
        counts: tuple[int, ...],
        boundary: Ints,
        boundary_faces: Ints | None,
        carriers: Carriers,
    ) -> "Topology":
        """Make the topology of leaves of trees, whose entities differ by level; see `of_entities`.

        A larger face that no element here has joins nothing.
        """
        known = elements, entity, orientation, counts, boundary, boundary_faces
        plain = cls.of_entities(*known)
        small, code, _ = carriers.hanging.T
        larger, dim = carriers.entity[small, code], plain.dim
        faces = np.isin(code, entity_codes(dim, dim - 1))
        faces[faces] = plain.faces[larger[faces], 0] >= 0
        small, code, larger = small[faces], code[faces], larger[faces]
        beside = plain.faces[larger, 0], plain.face_codes[larger, 0]
        joined = np.stack([small, code, *beside], axis=1)
        return _with_carriers(plain, carriers, joined)

    @classmethod
    def _frozen(cls, cell: Cell, *arrays: Any) -> "Topology":
        """Make a topology, and its arrays read-only."""
        for array in arrays:
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        return cls(cell, *arrays)

    @property
    def carrying(self) -> tuple[Ints, Codes]:
        """Entities that carry the dofs of each element, and their orientations; see `Carriers`."""
        of = self.carriers or self
        return of.entity, of.orientation

    def lattice(self, p: int) -> Ints:
        """Global numbers (ne, nodes) of a lattice with p intervals per direction.

        Vertices come first (their numbers are the vertex numbers), then edges, faces and cells.
        """
        return lattice_numbers(p, self.entity, self.orientation, self._offsets(p), self.cell)

    def carried_lattice(self, p: int) -> Ints:
        """The numbers of `lattice`, with those of larger entities in the places of hanging ones."""
        return lattice_numbers(p, *self.carrying, self._offsets(p), self.cell)

    def _offsets(self, p: int) -> list[int]:
        """First number of the lattice's nodes in entities; see `lattice_numbers`."""
        starts = [sum(self._sizes(p)[:kind]) for kind in range(self.dim + 1)]
        offsets, few = [], self.cell.inside_kind(self.dim - 1, p)
        for code, (kind, corners) in enumerate(self.cell.entities):
            # the faces of a prism that are triangles come first, and have other nodes
            quads = self.cell.shape == "prism" and kind == 2 and len(corners) == 4
            more = self.triangles * (few - self.cell.inside(code, p)) if quads else 0
            offsets.append(starts[kind] + more)
        return offsets

    def _sizes(self, p: int) -> list[int]:
        """Number of the lattice's nodes inside all entities of each dimension."""
        counts = [*enumerate(self.num_entities)]
        sizes = [n * self.cell.inside_kind(kind, p) for kind, n in counts]
        if self.cell.shape == "prism":
            quads = self.num_entities[2] - self.triangles
            sizes[2] += quads * ((p - 1) ** 2 - self.cell.inside_kind(2, p))
        return sizes

    def lattice_size(self, p: int) -> int:
        """Count the nodes of `lattice` (p)."""
        return sum(self._sizes(p))

    def inside(self, kind: int, p: int) -> Ints:
        """Number (n,) of the lattice's nodes inside each entity of a dimension."""
        sizes = [self.cell.inside(codes[0], p) for codes in self.cell.alike(kind)]
        counts = np.full(self.num_entities[kind], sizes[-1], dtype=np.int64)
        if kind == 2:  # the faces of a prism that are triangles come first
            counts[: self.triangles] = sizes[0]
        return counts

    @property
    def pairs(self) -> Ints:
        """Faces (n,) between two elements, each part of a divided face by itself."""
        inner = self.faces[:, 1] >= 0
        inner[self.divided] = False
        return np.flatnonzero(inner)

    @property
    def parts(self) -> Ints:
        """Smaller element and code, its face, and the divided face that has this part: (n, 4)."""
        two = self.pairs
        sides = self.entity[self.faces[two], self.face_codes[two]]
        rows = np.flatnonzero((sides != two[:, np.newaxis]).any(axis=1))
        small = np.argmax(sides[rows] == two[rows, np.newaxis], axis=1)
        at = two[rows], small
        return np.stack(
            [self.faces[at], self.face_codes[at], two[rows], sides[rows, 1 - small]], axis=1
        )

    def unlisted_faces(self) -> Ints:
        """Element and code (n, 2) of the outer faces that are not among the boundary entries."""
        left = (self.faces[:, 0] >= 0) & (self.faces[:, 1] < 0)
        left[self.joined] = False
        left[self.entity[tuple(self.boundary_faces.T)]] = False
        return np.stack([self.faces[left, 0], self.face_codes[left, 0]], axis=1)

    def __repr__(self) -> str:
        names = ("vertices", "edges", *(("faces",) if self.dim > 2 else ()), self.cell.plural)
        names = ("vertices", self.cell.plural) if self.dim == 1 else names
        counts = zip(self.num_entities, names, strict=False)
        return "Topology(" + ", ".join(f"{count} {name}" for count, name in counts) + ")"


def _sorted_entities(
    elements: Ints, num_vertices: int, boundary: Ints | None, orientation: Codes, cell: Cell
) -> tuple[tuple[Ints, tuple[int, ...], Ints], int]:
    """Numbers of the entities of any elements, by sorting their vertices.

    Returned as by `translated_entities`, with the number of the triangles of prisms. The
    orientations are stored in ``orientation``.
    """
    dim = cell.dim
    _check_elements(elements)
    entity = np.zeros((len(elements), len(cell.entities)), dtype=np.int64)
    counts = [num_vertices, *[0] * (dim - 1), len(elements)]
    entity[:, cell.codes(0)] = elements
    entity[:, cell.codes(dim)] = np.arange(len(elements))[:, None]
    entries = boundary[:, 0] if dim == 1 and boundary is not None else np.zeros(0, np.int64)
    triangles = 0
    for kind, codes in [(k, c) for k in range(1, dim) for c in cell.alike(k)]:
        corners = elements[:, [cell.entities[code][1] for code in codes]]
        width = corners.shape[-1]
        if not cell.simplex:
            orientation[:, codes] = _intrinsic_orientation(corners)
        rows = corners.reshape(-1, width)
        mine = np.zeros(0, dtype=np.int64)
        if kind == dim - 1 and boundary is not None:
            mine = np.flatnonzero(((boundary >= 0).sum(axis=1) == width) | cell.cube)
            entries = np.resize(entries, len(boundary))
            rows = np.concatenate([rows, boundary[mine, :width]])
        number, count = group_rows(rows, num_vertices)
        if kind == 2 and width == 4:
            _check_twisted(rows, number, len(elements))
        number, inside = number + counts[kind], len(elements) * len(codes)
        entity[:, codes] = number[:inside].reshape(-1, len(codes))
        entries[mine] = number[inside:]
        if cell.shape == "prism" and width == 3:
            triangles = count
        counts[kind] += count
    return (entity, tuple(counts), entries), triangles


def _with_carriers(plain: Topology, carriers: Carriers, hanging: Ints) -> Topology:
    """Join the smaller and larger elements of a topology in which their faces stand alone.

    ``hanging`` (n, 4): smaller element and code, larger element and code.
    """
    faces, codes = plain.faces.copy(), plain.face_codes.copy()
    small, small_code, large, large_code = hanging.T
    sides, side_codes = np.stack([small, large], axis=1), np.stack([small_code, large_code], axis=1)
    order = np.argsort(sides, axis=1)
    sides = np.take_along_axis(sides, order, axis=1)
    side_codes = np.take_along_axis(side_codes, order, axis=1)
    divided, first = np.unique(plain.entity[large, large_code], return_index=True)
    for at, rows in ((plain.entity[small, small_code], slice(None)), (divided, first)):
        faces[at], codes[at] = sides[rows], side_codes[rows]
    for array in (faces, codes, divided, carriers.entity, carriers.orientation, carriers.hanging):
        array.setflags(write=False)
    return replace(plain, faces=faces, face_codes=codes, carriers=carriers, divided=divided)


def exterior_boundary(elements: Ints, topology: Topology) -> Ints:
    """Corners (nb, 2**(dim-1)) of the topology's boundary faces, ordered to look outwards.

    See `femops_meshes.topology.entities`.
    """
    return outward_corners(elements, topology.boundary_faces, topology.cell)


def listed(numbers: Ints) -> str:
    """Return the first few of some numbers (n,), as text."""
    shown = ", ".join(str(n) for n in numbers[:_SHOWN])
    return shown + (", ..." if len(numbers) > _SHOWN else "")


def check_dangling(elements: Ints, num_vertices: int) -> None:
    """Check that vertex numbers (ne, 2**dim) run from 0 to num_vertices - 1."""
    bad = np.flatnonzero(((elements < 0) | (elements >= num_vertices)).any(axis=1))
    if len(bad):
        raise MeshTopologyError(
            f"{len(bad)} element(s) name vertices that don't exist: number(s) {listed(bad)} "
            f"(counted from 0; {bad[0]} has vertices {elements[bad[0]].tolist()}): there are "
            f"{num_vertices} vertices, numbers must be 0 to {num_vertices - 1}"
        )


def _check_numbers(elements: Ints, num_vertices: int) -> None:
    if num_vertices > MAX_VERTICES:
        raise MeshTopologyError(f"{num_vertices} vertices, but at most {MAX_VERTICES} are possible")
    check_dangling(elements, num_vertices)


def _check_elements(elements: Ints) -> None:
    ordered = np.sort(elements, axis=1)
    bad = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(bad):
        raise MeshTopologyError(
            f"{len(bad)} element(s) have the same vertex at two corners: number(s) {listed(bad)} "
            f"(counted from 0; {bad[0]} has vertices {elements[bad[0]].tolist()}): give each "
            "corner a vertex of its own; a periodic direction needs at least 3 elements"
        )
    order = np.lexsort(ordered.T)
    twin = (ordered[order[1:]] == ordered[order[:-1]]).all(axis=1)
    if twin.any():
        first = int(np.argmax(twin))
        pair = sorted((int(order[first]), int(order[first + 1])))
        raise MeshTopologyError(
            f"elements {pair[0]} and {pair[1]} (counted from 0) have the same vertices "
            f"{ordered[pair[0]].tolist()}: remove one of them; a periodic direction needs at least "
            "3 elements"
        )


def _pair_faces(
    elements: Ints, entity: Ints, cell: Cell, num_faces: int
) -> tuple[Ints, NDArray[np.int8]]:
    """Elements and codes on both sides of each face, both (num_faces, 2)."""
    codes = np.array(cell.face_codes, dtype=np.int8)
    number = entity[:, codes].ravel()
    uses = np.bincount(number, minlength=num_faces)
    if uses.max(initial=0) > 2:
        face = int(np.argmax(uses > 2))
        where = np.flatnonzero(number == face)
        element, code = where // len(codes), int(codes[where[0] % len(codes)])
        corners = elements[element[0], list(cell.entities[code][1])]
        raise MeshTopologyError(
            f"{int((uses > 2).sum())} face(s) belong to more than two elements: that with vertices "
            f"{corners.tolist()} to the elements {listed(element)} (counted from 0): "
            "a face joins at most two; a periodic direction needs at least 3 elements"
        )
    faces = np.full((num_faces, 2), -1, dtype=np.int64)
    face_codes = np.full((num_faces, 2), -1, dtype=np.int8)
    places = np.arange(len(number))
    at = np.empty(num_faces, dtype=np.int64)
    for side in (0, 1):  # of several writes to one entry the last one stays
        at[number[::-1] if side == 0 else number] = places[::-1] if side == 0 else places
        has = uses > side
        faces[has, side] = at[has] // len(codes)
        face_codes[has, side] = codes[at[has] % len(codes)]
    return faces, face_codes


def _check_twisted(corners: Ints, number: Ints, num_elements: int) -> None:
    """Raise unless each quadrilateral has the same opposite corners in all its elements."""
    place = np.argmin(corners, axis=1)
    opposite = corners[np.arange(len(corners)), place ^ 3]
    agreed = np.empty(number.max(initial=-1) + 1, dtype=np.int64)
    agreed[number] = opposite
    bad = np.flatnonzero(agreed[number] != opposite)
    if len(bad):
        faces = len(entity_codes(3, 2))
        users = np.flatnonzero(number == number[bad[0]])
        names = [
            f"element {user // faces}"
            if user < num_elements * faces
            else f"boundary element {user - num_elements * faces}"
            for user in users
        ]
        raise MeshTopologyError(
            f"{len(np.unique(number[bad]))} face(s) are twisted: {' and '.join(names)} (counted "
            f"from 0) share the vertices {np.sort(corners[bad[0]]).tolist()}, but not which of "
            "them are opposite: correct the order of corners"
        )


def _check_entries_twisted(corners: Ints, faces: Ints, count: int) -> None:
    """Raise unless the last quadrilaterals have the opposite corners of their faces."""
    if corners.shape[1] < 4:
        return
    at = np.argmin(corners, axis=1)
    opposite = corners[np.arange(len(corners)), at ^ 3]
    agreed = np.empty(faces.max(initial=-1) + 1, dtype=np.int64)
    start = len(faces) - count
    agreed[faces[:start]] = opposite[:start]
    bad = np.flatnonzero(agreed[faces[start:]] != opposite[start:])
    if len(bad):
        raise MeshTopologyError(
            f"{len(bad)} boundary element(s) are twisted: number(s) {listed(bad)} (counted from 0; "
            f"{bad[0]} has vertices {corners[start + bad[0]].tolist()}): correct the order of "
            "corners"
        )


def _check_boundary(boundary: Ints, entries: Ints, faces: Ints) -> None:
    _check_listed(boundary, np.flatnonzero(faces[entries, 0] < 0))


def _check_listed(boundary: Ints, bad: Ints) -> None:
    if len(bad):
        raise MeshTopologyError(
            f"{len(bad)} boundary element(s) are not faces of any element: number(s) {listed(bad)} "
            f"(counted from 0; {bad[0]} has vertices {boundary[bad[0]].tolist()}): remove them, or "
            "correct their vertex numbers"
        )


__all__ = [
    "Topology",
    "check_dangling",
    "entity_codes",
    "entity_corners",
    "entity_dimension",
    "entity_permutation",
    "exterior_boundary",
    "group_rows",
    "lattice_numbers",
    "listed",
    "quad_orientation",
]
