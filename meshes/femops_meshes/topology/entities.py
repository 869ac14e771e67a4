"""Reference cells, and their entities: codes, corners, nodes, orientations, and sides of faces.

The codes and orientations of squares and cubes are those of `femops_meshes.topology.topology`.
Codes of simplices count vertices, edges and faces, each in the order of basix, in which an edge or
face comes before those with a lower vertex. Vertices of a simplex have ascending numbers. So all
elements see an edge or face in the same way, and none is turned, but determinants of maps may be
negative.

A prism is a triangle times a segment. Its corners are those of the triangle at the low end, then at
the high end. Codes count vertices, edges (those of both triangles, then those between them),
triangles, quadrilaterals. Its edges and quadrilaterals turn as those of cubes. The orientation of a
triangle is the place, in `itertools.permutations`, of the ranks of its vertices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, permutations, product
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshArgumentError, MeshGeometryError, MeshTopologyError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]
FaceCodes = NDArray[np.int8]

VTK_CORNERS = {1: [0, 1], 2: [0, 1, 3, 2], 3: [0, 1, 3, 2, 4, 5, 7, 6]}
"""Corner in VTK's (and MFEM's) order of each lexicographic corner. Each list is its own inverse."""


@lru_cache
def entity_dimension(dim: int) -> tuple[int, ...]:
    """Dimension (0 vertex, 1 edge, 2 quadrilateral, 3 hex) of each of the 3**dim ternary codes."""
    return tuple(sum(digit == 1 for digit in code_digits(code, dim)) for code in range(3**dim))


def entity_codes(dim: int, kind: int) -> tuple[int, ...]:
    """Ternary codes of the entities of dimension `kind` of an element, ascending."""
    return tuple(code for code, k in enumerate(entity_dimension(dim)) if k == kind)


def code_digits(code: int, dim: int) -> tuple[int, ...]:
    """Ternary digits t_1, ..., t_dim of a code."""
    whole = int(code)  # codes are kept in arrays of small integers, in which sums overflow
    return tuple(whole // 3**d % 3 for d in range(dim))


@lru_cache
def entity_corners(dim: int, code: int) -> tuple[int, ...]:
    """Local corners of the entity with this code, both numbered lexicographically."""
    ranges = [(0, 1) if t == 1 else (t // 2,) for t in reversed(code_digits(code, dim))]
    return tuple(
        sum(bit << (dim - 1 - place) for place, bit in enumerate(bits)) for bits in product(*ranges)
    )


@lru_cache
def entity_lattice(dim: int, code: int, p: int) -> tuple[int, ...]:
    """Lexicographic local nodes, of (p + 1)**dim, interior to the entity with this code."""
    ranges = [range(1, p) if t == 1 else (p * t // 2,) for t in reversed(code_digits(code, dim))]
    powers = [(p + 1) ** (dim - 1 - place) for place in range(dim)]
    return tuple(
        sum(i * power for i, power in zip(index, powers, strict=True)) for index in product(*ranges)
    )


def entity_permutation(orientation: int, n: int, kind: int) -> Ints:
    """Indices in an entity's own order of the nodes that an element sees inside it."""
    if kind not in (1, 2) or not 0 <= orientation < 2 ** (2 * kind - 1) or n < 0:
        raise MeshTopologyError(
            f"no permutation for orientation {orientation} of an entity of dimension {kind} with "
            f"{n} nodes per direction: edges (1) have orientations 0 and 1, faces (2) have 0 to 7"
        )
    along = np.arange(n, dtype=np.int64)
    first = along[::-1] if orientation & 1 else along
    if kind == 1:
        return first.copy()
    second = along[::-1] if orientation & 2 else along
    i, j = first[None, :], second[:, None]
    return (j + n * i if orientation & 4 else i + n * j).ravel()


def quad_orientation(corners: Ints, origin: Ints, toward: Ints) -> Codes:
    """Orientation 0 to 7 of quadrilaterals relative to a base."""
    place = np.argmax(corners == origin[..., None], axis=-1)
    along_first = np.take_along_axis(corners, (place ^ 1)[..., None], axis=-1)[..., 0]
    orientation: Codes = (place + 4 * (along_first != toward)).astype(np.uint8)
    return orientation


Flags = NDArray[np.bool_]
_REFLECTED = np.array([code.bit_count() % 2 == 1 for code in range(8)])
"""True for each orientation of a quadrilateral that turns it over."""


def outward_order(dim: int, code: int) -> list[int]:
    """Permutation of a face's ascending corners after which they look out of the element."""
    digits = code_digits(code, dim)
    normal = next(d for d, t in enumerate(digits) if t != 1)
    # x cross z is -y, and the direction of a quad's edge y = 1 is clockwise
    if dim == 1 or (normal == 1) != (digits[normal] == 2):
        return list(range(2 ** (dim - 1)))
    return [1, 0] if dim == 2 else [0, 2, 1, 3]


MOST_SIMPLEX_DEGREE = 6
"""Highest degree of the coordinates of a simplex: more nodes could be those of a square."""


@final
@dataclass(frozen=True)
class Cell:
    """A reference cell."""

    name: str
    plural: str
    dim: int
    shape: Literal["cube", "simplex", "prism"]

    @property
    def cube(self) -> bool:
        """True if functions are products of one function per direction, and points form grids."""
        return self.shape == "cube"

    @property
    def simplex(self) -> bool:
        """True for triangles and tetrahedra, whose vertices ascend."""
        return self.shape == "simplex"

    @property
    def factors(self) -> tuple["Cell", ...]:
        """Cells of which it is the product: a triangle and a segment, or else itself."""
        return (TRIANGLE, SEGMENT) if self.shape == "prism" else (self,)

    @cached_property
    def corners(self) -> Floats:
        """Reference coordinates (corners, dim); those of squares and cubes are lexicographic."""
        if self.simplex:
            return np.asarray(np.concatenate([np.zeros((1, self.dim)), np.eye(self.dim)]))
        if not self.cube:
            low = np.column_stack([TRIANGLE.corners, np.zeros(3)])
            return np.concatenate([low, low + np.array([0.0, 0.0, 1.0])])
        grid = np.indices((2,) * self.dim).reshape(self.dim, -1)[::-1].T
        return grid.astype(np.float64)

    @property
    def volume(self) -> float:
        """Length, area or volume."""
        return 1.0 if self.cube else 1.0 / math.factorial(self.dim if self.simplex else 2)

    @property
    def center(self) -> Floats:
        """Middle of the cell, a point (1, dim)."""
        return np.asarray(self.corners.mean(axis=0, keepdims=True))

    @property
    def middle(self) -> Floats:
        """Middle of the cell as points of a map: a grid of one point, or a list."""
        return np.array([0.5]) if self.cube else self.center

    @property
    def num_corners(self) -> int:
        """Number of vertices."""
        return len(self.corners)

    @cached_property
    def entities(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Dimension and local corners of each entity, by code."""
        if self.cube:
            kinds = entity_dimension(self.dim)
            return tuple((kind, entity_corners(self.dim, c)) for c, kind in enumerate(kinds))
        if not self.simplex:
            return _PRISM_ENTITIES
        every = range(self.dim + 1)
        vertices = [(0, (k,)) for k in every]
        others = [
            (kind, corners)
            for kind in every[1:]
            for corners in reversed([*combinations(every, kind + 1)])
        ]
        return (*vertices, *others)

    def codes(self, kind: int) -> tuple[int, ...]:
        """Codes of the entities of a dimension, ascending."""
        return tuple(code for code, (k, _) in enumerate(self.entities) if k == kind)

    def alike(self, kind: int) -> list[list[int]]:
        """Codes of the entities of a dimension, those with as many corners together."""
        codes = self.codes(kind)
        widths = sorted({len(self.entities[code][1]) for code in codes})
        return [[c for c in codes if len(self.entities[c][1]) == width] for width in widths]

    @property
    def faces(self) -> tuple["Cell", ...]:
        """Cells of the faces, by shape; a segment of a segment, whose faces are points."""
        if self.shape == "prism":
            return TRIANGLE, QUADRILATERAL
        return (TRIANGLE if self is TETRAHEDRON else CUBES[max(self.dim - 1, 1)],)

    @property
    def face(self) -> "Cell":
        """Cell of all faces. A prism has faces of two shapes, and no such cell."""
        (only,) = self.faces
        return only

    @property
    def face_codes(self) -> tuple[int, ...]:
        """Codes of the faces, whose dimension is one less than the cell's."""
        return self.codes(self.dim - 1)

    def codes_of(self, face: "Cell") -> tuple[int, ...]:
        """Codes of the faces that have a shape, ascending."""
        if len(self.faces) == 1:
            return self.face_codes if face is self.face else ()
        return tuple(c for c in self.face_codes if len(self.entities[c][1]) == face.num_corners)

    @cached_property
    def most_face_corners(self) -> int:
        """Number of vertices of the largest face."""
        return max(len(self.entities[code][1]) for code in self.face_codes)

    def inside(self, code: int, p: int) -> int:
        """Number of nodes inside an entity, of a lattice with p intervals."""
        kind, corners = self.entities[code]
        if self.cube or (len(corners) == 4 and kind == 2):
            return int((p - 1) ** kind)
        if len(corners) == 6:
            return math.comb(p - 1, 2) * (p - 1)
        return math.comb(p - 1, kind)

    def inside_kind(self, kind: int, p: int) -> int:
        """As `inside`, for the first entity of a dimension; all have as many, except in prisms."""
        return self.inside(self.codes(kind)[0], p)

    def size(self, p: int) -> int:
        """Number of nodes of a lattice with p intervals."""
        if self.cube:
            return int((p + 1) ** self.dim)
        if self.simplex:
            return math.comb(p + self.dim, self.dim)
        return math.comb(p + 2, 2) * (p + 1)

    def lattice(self, code: int, p: int) -> Ints:
        """Local nodes inside an entity. Except in cubes, the nodes follow each other by code."""
        if self.cube:
            return np.array(entity_lattice(self.dim, code, p), dtype=np.int64)
        sizes = [self.inside(c, p) for c in range(len(self.entities))]
        return sum(sizes[:code]) + np.arange(sizes[code])

    def closed_lattice(self, code: int, p: int) -> Ints:
        """Local nodes on an entity and its boundary, as a cell of that shape numbers them."""
        if self.cube:
            digits = code_digits(code, self.dim)
            lines = [np.arange(p + 1) if t == 1 else np.array([p * t // 2]) for t in digits]
            nodes = np.zeros(1, dtype=np.int64)
            for d, line in enumerate(lines):
                nodes = np.add.outer(line * (p + 1) ** d, nodes).ravel()
            return nodes
        kind, corners = self.entities[code]
        if kind == 1:  # lexicographic
            ends = [self.lattice(corner, p) for corner in corners]
            return np.concatenate([ends[0], self.lattice(code, p), ends[1]])
        if len(corners) == 4 and kind == 2:  # lexicographic
            grid = np.empty((p + 1, p + 1), dtype=np.int64)
            for digits, at in zip(product((0, 1, 2), repeat=2), _RING, strict=True):
                mine = next(c for c, e in enumerate(self.entities) if e[1] == _some(corners, at))
                rows = [{0: slice(0, 1), 1: slice(1, p), 2: slice(p, p + 1)}[t] for t in digits]
                places = self.lattice(mine, p)
                grid[tuple(rows)] = places.reshape(grid[tuple(rows)].shape)
            return grid.ravel()
        parts = [(k, at) for k, at in enumerate(self.entities) if {*at[1]} <= {*corners}]
        # as a cell of its own: by dimension, and in each from the highest corners to the lowest
        parts.sort(key=lambda part: (part[1][0], self._place(corners, part[1])))
        return np.concatenate([self.lattice(k, p) for k, _ in parts])

    @staticmethod
    def _place(corners: tuple[int, ...], entity: tuple[int, tuple[int, ...]]) -> tuple[int, ...]:
        kind, some = entity
        local = tuple(corners.index(corner) for corner in some)
        return local if kind == 0 else tuple(-k for k in local)

    def outward(self, code: int) -> list[int]:
        """Permutation of a face's ascending corners after which they look out of the element.

        Faces of simplices stay as they are.
        """
        if self.simplex:
            return list(range(self.dim))
        if self.cube:
            return outward_order(self.dim, code)
        corners = self.entities[code][1]
        x = self.corners[list(corners)]
        turn = np.cross(x[1] - x[0], x[2] - x[0]) @ (x[0] - self.center[0])
        others = list(range(len(corners)))
        if turn < 0.0:
            others[1:3] = others[2:0:-1]
        return others

    def on_face(self, code: int, points: Floats) -> Floats:
        """Reference points (n, dim) from points (n, dim - 1) of a face; for cubes see elsewhere."""
        x = self.corners[list(self.entities[code][1])]
        return np.asarray(x[0] + points @ (x[1 : self.dim] - x[0]))

    def turns(self, code: int, p: int) -> Ints:
        """Places (orientations, n) in an entity's own order of the nodes seen inside it."""
        kind, corners = self.entities[code]
        if kind in (0, self.dim):
            return np.arange(self.inside(code, p))[np.newaxis]
        if len(corners) == 3:
            return _turned_triangle(p)
        rows = [entity_permutation(o, p - 1, kind) for o in range(2 ** (2 * kind - 1))]
        return np.array(rows, dtype=np.int64)


# corners of the quadrilateral's entities by digits, of which the second direction's comes first
_RING = ((0,), (0, 1), (1,), (0, 2), (0, 1, 2, 3), (1, 3), (2,), (2, 3), (3,))


def _some(corners: tuple[int, ...], at: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(corners[k] for k in at)


def _inner(p: int) -> list[tuple[int, ...]]:
    """Barycentric indices of the nodes inside a triangle, those of corner 1 fastest."""
    pairs = product(range(1, p), repeat=2)
    return [(p - b - c, b, c) for c, b in pairs if b + c < p]


@lru_cache
def _turned_triangle(p: int) -> Ints:
    """Places (6, n) in a triangle's own order of its inner nodes; see `Cell.turns`."""
    rows = _inner(p)
    place = {row: k for k, row in enumerate(rows)}
    found = [
        [place[tuple(row[ranks.index(k)] for k in range(3))] for row in rows]
        for ranks in permutations(range(3))
    ]
    return np.array(found, dtype=np.int64).reshape(6, len(rows))


def triangle_orientation(corners: Ints) -> Codes:
    """Orientation 0 to 5 of triangles with some vertices (..., 3)."""
    ranks = np.argsort(np.argsort(corners, axis=-1), axis=-1)
    number = np.zeros((3, 3, 3), dtype=np.uint8)
    for k, each in enumerate(permutations(range(3))):
        number[each] = k
    found: Codes = number[ranks[..., 0], ranks[..., 1], ranks[..., 2]]
    return found


_EDGES_OF_TRIANGLE = (0, 1), (0, 2), (1, 2)
_PRISM_ENTITIES: tuple[tuple[int, tuple[int, ...]], ...] = (
    *((0, (k,)) for k in range(6)),
    *((1, (a + low, b + low)) for low in (0, 3) for a, b in _EDGES_OF_TRIANGLE),
    *((1, (k, k + 3)) for k in range(3)),
    (2, (0, 1, 2)),
    (2, (3, 4, 5)),
    *((2, (a, b, a + 3, b + 3)) for a, b in _EDGES_OF_TRIANGLE),
    (3, (0, 1, 2, 3, 4, 5)),
)

SEGMENT = Cell("segment", "segments", 1, "cube")
QUADRILATERAL = Cell("quadrilateral", "quadrilaterals", 2, "cube")
HEXAHEDRON = Cell("hexahedron", "hexahedra", 3, "cube")
TRIANGLE = Cell("triangle", "triangles", 2, "simplex")
TETRAHEDRON = Cell("tetrahedron", "tetrahedra", 3, "simplex")
PRISM = Cell("prism", "prisms", 3, "prism")
CUBES = {1: SEGMENT, 2: QUADRILATERAL, 3: HEXAHEDRON}
SIMPLICES = {2: TRIANGLE, 3: TETRAHEDRON}
_KINDS = CUBES, SIMPLICES, {3: PRISM}


Cells = Literal["segments", "quadrilaterals", "hexahedra", "triangles", "tetrahedra", "prisms"]


def wants_simplices(cells: Cells | None, dim: int, *, prisms: bool = False) -> bool:
    """True if cells are simplices, or prisms. Raise if there are no such cells in a dimension.

    By default they are segments, quadrilaterals or hexahedra. Prisms must be allowed.
    """
    kinds = (CUBES, SIMPLICES, {3: PRISM} if prisms else {})
    known = [each[dim].plural for each in kinds if dim in each]
    if cells is not None and cells not in known:
        raise MeshArgumentError(f"cells are {cells!r}: in {dim}-D give {' or '.join(known)}")
    return cells in known[1:]


def cell_of(num_corners: int, dim: int) -> Cell:
    """Cell of a dimension with a number of corners."""
    for kinds in _KINDS:
        if dim in kinds and kinds[dim].num_corners == num_corners:
            return kinds[dim]
    raise MeshGeometryError(f"no cell of {dim}-D has {num_corners} corners")


@lru_cache
def cell_and_degree(num_nodes: int, dim: int) -> tuple[Cell, int]:
    """Cell and degree of a map with a number of nodes."""
    degree = round(num_nodes ** (1.0 / dim)) - 1
    if degree >= 1 and (degree + 1) ** dim == num_nodes:
        return CUBES[dim], degree
    for kinds in _KINDS[1:]:
        for degree in range(1, MOST_SIMPLEX_DEGREE + 1) if dim in kinds else ():
            if kinds[dim].size(degree) == num_nodes:
                return kinds[dim], degree
    raise MeshGeometryError(
        f"{num_nodes} nodes per element, but in {dim}-D it must be (g + 1)**{dim}, g >= 1"
    )


def lattice_numbers(
    p: int, entity: Ints, orientation: Codes, offsets: Sequence[int], cell: Cell
) -> Ints:
    """Global number of each node of a lattice with p + 1 nodes per direction on every element.

    ``offsets``, by code: number of the first node in the entity with the number 0.
    """
    numbers = np.empty((len(entity), cell.size(p)), dtype=np.int64)
    for code in range(len(cell.entities)):
        local = cell.lattice(code, p)
        if not len(local):
            continue
        start, turns = offsets[code] + entity[:, code] * len(local), cell.turns(code, p)
        numbers[:, local] = start[:, None] + (
            turns[0] if cell.simplex or len(turns) == 1 else turns[orientation[:, code]]
        )
    return numbers


def outward_corners(elements: Ints, faces: Ints, cell: Cell | None = None) -> Ints:
    """Corners (n, corners) of faces, ordered to look outwards; ascending on simplices.

    Rows of triangles of prisms end with -1. ``faces`` (n, 2) has an element and a code in each row.
    """
    cell = cell or CUBES[elements.shape[1].bit_length() - 1]
    corners = np.full((len(faces), cell.most_face_corners), -1, dtype=np.int64)
    for code in cell.face_codes:
        mine = np.flatnonzero(faces[:, 1] == code)
        local = np.array(cell.entities[code][1])[cell.outward(code)]
        corners[mine, : len(local)] = elements[faces[mine, 0]][:, local]
    return corners


def swaps(rows: Ints) -> Ints:
    """Number (n,) of pairs in each row (n, k) that are not ascending."""
    pairs = combinations(range(rows.shape[1]), 2)
    found = [(rows[:, i] > rows[:, j]).astype(np.int64) for i, j in pairs]
    return np.asarray(np.sum(found, axis=0), dtype=np.int64)


def chosen_faces(
    elements: Ints, boundary: Ints, faces: Ints, face_codes: FaceCodes, cell: Cell
) -> Ints:
    """Element and face code (nb, 2) to which each entry of the boundary belongs.

    On simplices it is the first element; see `femops_meshes.coordinates.simplices.with_sides`.
    """
    second = np.zeros(len(boundary), dtype=np.int64)
    two = np.flatnonzero(faces[:, 1] >= 0)
    if len(two) and not cell.simplex:
        out = looks_out(elements, boundary[two], faces[two], face_codes[two], cell)
        second[two] = out[:, 1] & ~out[:, 0]
    rows = np.arange(len(boundary))
    return np.stack([faces[rows, second], face_codes[rows, second]], axis=1).astype(np.int64)


def looks_out(
    elements: Ints, boundary: Ints, faces: Ints, face_codes: FaceCodes, cell: Cell | None = None
) -> Flags:
    """True (nb, 2) where an entry looks out of the element on its first, or its second, side.

    Parameters are as in `chosen_faces`.
    """
    result = np.empty(faces.shape, dtype=np.bool_)
    for side in (0, 1):
        face = np.stack([faces[:, side], face_codes[:, side]], axis=1)
        outward = outward_corners(elements, face, cell)
        if boundary.shape[1] == 1:
            result[:, side] = face[:, 1] == 2  # the high end
        elif boundary.shape[1] == 2:
            result[:, side] = boundary[:, 0] == outward[:, 0]
        else:
            turn = quad_orientation(boundary, outward[:, 0], outward[:, 1])
            result[:, side] = ~_REFLECTED[turn]
            three = boundary[:, -1] < 0  # triangles of prisms
            odd = swaps(boundary[three, :3]) + swaps(outward[three, :3])
            result[three, side] = odd % 2 == 0
    return result
