"""Faces between elements, and the geometry at their quadrature points.

A face has two sides. Its *minus* side is the element with the larger number; its *plus* side is
the other element. The elements of both sides are turned to the face: their first directions are the
directions of the face as the minus element has them, and their last direction leads inwards from
the face. So both sides have the same points on the face, whichever way the plus element lies.

On many ranks a face belongs to the rank of its minus side. An element first gets the contributions
of the faces of which it is the minus side, all from its own rank. Those of its other faces follow
in the order of the elements. So results of discontinuous spaces have the same bits on any number of
ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import combinations_with_replacement
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Basis1D, Rule, grid_rule, rule_of
from femops.element import (
    Element,
    LagrangeElement,
    TensorElement,
    element_of_maps,
    halves_of,
    tensor_element,
)
from femops.errors import GeometryError, SpaceError
from femops.geometry.boundary import (
    are_inner,
    behind_faces,
    face_digits,
    nodes_inwards,
)
from femops.geometry.domain import (
    BATCH,
    Domain,
    DomainGeometry,
    FaceBlock,
    Nodal,
    element_blocks,
    in_batches,
    size_of_groups,
)
from femops.parallel.mesh import DistributedMesh
from femops.parallel.neighbours import Neighbours, neighbours
from femops_kernels.cpu.in_order import computed_once
from femops_kernels.exclusive import Derived
from femops_meshes.coordinates import simplices
from femops_meshes.coordinates.hanging import HangingNodes
from femops_meshes.coordinates.mapping import adjugates, determinants, of_columns
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.shared_faces import faces_between
from femops_meshes.topology.entities import Cell, entity_permutation
from femops_meshes.topology.topology import Topology

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MINUS, PLUS = 0, 1
"""Numbers of the sides of a face."""

_TURNS = 8
"""Number of orientations of a face."""

_MATCHING = 1e-4  # largest relative difference of the area vectors of both sides; files round

_MOST_ENTRIES = 4096  # larger matrices over all points of a face are applied by direction

_interiors = Derived[Mesh, "InteriorFaces"](weak=True)


@final
class InteriorFaces(Domain):
    """Faces between two elements of a mesh, ordered by groups of minus elements.

    Faces that a periodic mesh glues together are among them. `interior_faces` makes the domain, and
    returns the same object for the same mesh.

    `numbers` (n,): number of each of these elements in the global mesh. `elements` (2, nf):
    elements, in `around`, of the minus sides and of the plus sides. `codes` (2, nf): ternary code
    of each face in both elements. `turns` (2, nf): orientation of each face in both elements; see
    `femops_meshes.topology`. `parts` (2, nf): where a side's element is larger than the other
    side's, the half of its face in each direction, bit d for direction d; else -1. `counted` (nf,):
    False for repeated faces, which complete batches of faces. Their weights are zero.
    `group_elements`, `group_start` (k + 1,): first minus element, and first face, of each group;
    then the numbers of elements and faces. Groups begin with
    batches.
    """

    covers = has_maps = False
    has_normals = two_sided = True
    place = -1  # among the domains of `shared_faces` there may be one of the kind for each shape

    def __init__(
        self, mesh: Mesh, near: Neighbours | None = None, *, reproducible: bool = False
    ) -> None:
        self.mesh, self.order, self.cell = mesh, mesh.order, mesh.cell.face
        self.around = mesh if near is None else near.mesh
        self.numbers = np.arange(mesh.num_elements) if near is None else near.numbers
        topology = self.around.topology
        two = topology.pairs
        elements, codes = topology.faces[two].T, topology.face_codes[two].T.astype(np.int64)
        larger = np.argmax(self.numbers[elements], axis=0)
        sides = np.stack([larger, 1 - larger])
        elements, codes = (np.take_along_axis(a, sides, axis=0) for a in (elements, codes))
        order = np.lexsort((codes[MINUS], elements[MINUS]))
        order = order[elements[MINUS, order] < mesh.num_elements]
        self._take(elements[:, order], codes[:, order])
        count = mesh.num_elements
        self._sort(BATCH if reproducible else size_of_groups(count))

    def _take(self, elements: Ints, codes: Ints) -> None:
        """Set the faces by their elements and codes (2, nf)."""
        self.elements, self.codes = np.ascontiguousarray(elements), np.ascontiguousarray(codes)
        self.turns = self.around.topology.carrying[1][self.elements, self.codes]
        self.parts = _parts(self.around.topology, self.elements, self.codes)
        self.num_elements = self.elements.shape[1]

    def _sort(self, size: int) -> None:
        """Sort the faces by groups of ``size`` minus elements, then by how both elements lie.

        Kernels are faster if the elements of all faces of a batch lie in the same way. So faces are
        repeated to complete batches, and at the end of a group.
        """
        lie, corners = self.codes[MINUS] * 27 + self.codes[PLUS], self.nodes(PLUS, 2)
        for k in range(min(corners.shape[1], 3)):  # these tell how the plus element is turned
            lie = lie * 8 + corners[:, k]
        count = self.mesh.num_elements
        groups = -(-count // size)
        taken, self.group_start = in_batches(self.elements[MINUS] // size, lie, groups)
        self.group_elements = np.minimum(np.arange(groups + 1) * size, count)
        self.counted = np.append(True, taken[1:] != taken[:-1])[: len(taken)]
        self._take(self.elements[:, taken], self.codes[:, taken])

    def nodes(
        self,
        side: int,
        p1d: int,
        start: int = 0,
        stop: int | None = None,
        layers: int | None = None,
    ) -> Ints:
        """Numbers (n, p1d**dim) of the nodes of a side's elements, turned to their faces.

        Nodes are ordered layer by layer inwards, and in a layer lexicographic in the directions of
        the face as the minus element has them. With ``layers`` only the nodes of the first layers
        are returned.
        """
        part, dim = slice(start, stop), self.mesh.dim
        codes = self.codes[side, part]
        if not self.mesh.cell.cube:
            return self._of_simplices(codes, p1d - 1, on_face=layers == 1)
        both = self.turns[MINUS, part].astype(np.int64) * _TURNS + self.turns[PLUS, part]
        count = min(layers or p1d, p1d)
        result = np.empty((len(codes), count * p1d ** (dim - 1)), dtype=np.int64)
        for code, digits in face_digits(dim):
            near = nodes_inwards(digits, p1d).reshape(p1d, -1)[:count]
            here = np.flatnonzero(codes == code)
            kinds = both[here]
            for kind in np.flatnonzero(np.bincount(kinds)):
                order = _order_in_minus(np.array(divmod(kind, _TURNS)), side, p1d, dim - 1)
                result[here[kinds == kind]] = near[:, order].reshape(-1)
        return result

    def _of_simplices(self, codes: Ints, order: int, *, on_face: bool) -> Ints:
        """Numbers (n, nodes) of the nodes of simplices that are turned to their faces."""
        cell = self.mesh.cell
        if on_face and order:
            nodes = np.zeros((len(cell.entities), cell.face.size(order)), dtype=np.int64)
            for code in cell.face_codes:
                nodes[code] = cell.closed_lattice(code, order)
            return nodes[codes]
        return behind_faces(LagrangeElement(cell, order, closed=True), codes)

    @cached_property
    def turned_parts(self) -> list[Ints]:
        """For each side, rows (m, 3) of `HangingNodes.parts` of the larger elements, turned."""
        return [self._turned_parts(side) for side in (MINUS, PLUS)]

    def _turned_parts(self, side: int) -> Ints:
        some = np.flatnonzero(self.parts[side] >= 0)
        dim = self.mesh.dim
        nodes = self.nodes(side, 3)[some]
        strides = np.stack([nodes[:, 3**d] - nodes[:, 0] for d in range(dim)], axis=1)
        direction = np.searchsorted(3 ** np.arange(1, dim), np.abs(strides), side="right")
        bits = self.parts[side, some, np.newaxis] >> direction & 1
        bits = np.where(strides < 0, 1 - bits, bits)[:, : dim - 1]
        half = bits @ (1 << np.arange(dim - 1))
        low = (3 ** (dim - 1) - 1) // 2  # the face at the low end of the last direction
        return np.stack([some, np.full(len(some), low), half], axis=1)

    def on_parts(self, side: int, element: Element, e_vec: Floats, start: int, stop: int) -> Floats:
        """Values at the nodes of larger elements' parts, from those of all turned elements."""
        rows = self.turned_parts[side]
        rows = rows[slice(*np.searchsorted(rows[:, 0], [start, stop]))]
        if not len(rows):
            return e_vec
        parts: Ints = rows - np.array([[start, 0, 0]])
        none = np.zeros((0, 3), dtype=np.int64)
        nodes = HangingNodes(element.dim, len(e_vec), none, halves_of(element), parts)
        return nodes.interpolated(e_vec, slice(None))

    @property
    def sides(self) -> tuple[Mesh, Mesh]:
        """Meshes of the minus and of the plus elements."""
        return self.around, self.around

    def numbers_of(self, side: int) -> Ints:  # noqa: ARG002  (both are of one mesh)
        """Numbers (n,) of a side's elements in the global mesh."""
        return self.numbers

    def turned(self, side: int, element: Element) -> Element:  # noqa: ARG002  (both alike)
        """Element of the functions on a side's turned elements."""
        return element

    @cached_property
    def map_nodes(self) -> list[Ints]:
        """Numbers (nf, (order + 1)**dim) of the mesh's nodes of each side; see `nodes`."""
        return [self.nodes(side, self.order + 1) for side in (MINUS, PLUS)]

    @cached_property
    def mirrored(self) -> list[NDArray[np.bool_]]:
        """True (nf,), for each side, for elements that are left-handed when they are turned."""
        dim, found = self.mesh.dim, []
        if not self.mesh.cell.cube:
            return [_mirrored(self, side) for side in (MINUS, PLUS)]
        corners = np.stack(np.unravel_index(np.arange(2**dim), (2,) * dim)[::-1], axis=-1)
        for side in (MINUS, PLUS):
            at = corners[self.nodes(side, 2)].astype(np.float64)
            edges = at[:, [2**d for d in range(dim)]] - at[:, :1]  # (nf, direction, coordinate)
            found.append(np.asarray(np.linalg.det(edges) < 0.0))
        return found

    def geometry(self, rule: Rule) -> InteriorGeometry:
        return InteriorGeometry(self, rule)


@final
class SharedFaces(Domain):
    """Faces of one shape between elements of two parts of a mesh of several shapes, or of one.

    Elements of both sides are turned to the face: the corners of the face are in the order in which
    the minus element sees them, and the last direction leads inwards. `elements`, `codes` (2, nf)
    are those of the minus and of the plus sides. `shared_faces` makes all such domains of a mesh.
    """

    covers = has_maps = False
    has_normals = two_sided = True
    by_tables = True  # cubes too
    place = -1  # among the domains of `shared_faces`

    def __init__(
        self, near: tuple[_Near, _Near], face: Cell, elements: Ints, codes: Ints, corners: Ints
    ) -> None:
        """``corners`` (2, nf, corners): local corners of the faces in both elements."""
        self.cell, self.mesh = face, near[MINUS].mesh
        self._meshes = near[MINUS].mesh, near[PLUS].mesh
        self.sides = near[MINUS].around, near[PLUS].around
        self._numbers = near[MINUS].numbers, near[PLUS].numbers
        self.order = max(mesh.order for mesh in self.sides)
        self.elements, self.codes = np.ascontiguousarray(elements), np.ascontiguousarray(codes)
        self.num_elements = self.elements.shape[1]
        self.counted = np.ones(self.num_elements, dtype=np.bool_)
        self._corners = corners

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        return self._meshes

    def numbers_of(self, side: int) -> Ints:
        """Numbers (n,) of a side's elements in the global mesh."""
        return self._numbers[side]

    @cached_property
    def _kinds(self) -> list[tuple[Ints, Ints]]:
        """For each side the different rows of corners (k, corners), and that of each face (nf,)."""
        found = []
        for rows in self._corners:
            kinds, which = np.unique(rows, axis=0, return_inverse=True)
            found.append((kinds, which.reshape(-1)))
        return found

    def turned(self, side: int, element: Element) -> Element:
        """Element of the functions on a side's turned elements."""
        if element.cell.shape != "prism" or not self.cell.cube:
            return element
        kinds = self._kinds[side][0]
        upwards = len(kinds) and abs(int(kinds[0, 1] - kinds[0, 0])) == 3
        axes = (2, 0, 1) if upwards else (0, 2, 1)
        closed = not element.broken
        return LagrangeElement(element.cell, element.order, closed=closed, axes=axes)

    def nodes(
        self,
        side: int,
        p1d: int,
        start: int = 0,
        stop: int | None = None,
        layers: int | None = None,  # noqa: ARG002  (all nodes)
    ) -> Ints:
        """Numbers (n, nodes) of the nodes of a side's elements, turned to their faces."""
        kinds, which = self._kinds[side]
        cell = self.sides[side].cell
        tables = [_seen(cell, p1d - 1, tuple(kind.tolist())) for kind in kinds]
        size = cell.size(p1d - 1) if p1d > 1 else 1
        return np.array(tables, dtype=np.int64).reshape(-1, size)[which[slice(start, stop)]]

    @cached_property
    def map_nodes(self) -> list[Ints]:
        """Numbers (nf, nodes) of the mesh's nodes of each side; see `nodes`."""
        return [self.nodes(side, self.sides[side].order + 1) for side in (MINUS, PLUS)]

    @cached_property
    def mirrored(self) -> list[NDArray[np.bool_]]:
        """True (nf,), for each side, for elements that are left-handed when they are turned."""
        return [_mirrored(self, side) for side in (MINUS, PLUS)]

    def on_parts(
        self,
        side: int,  # noqa: ARG002  (no element is larger than its neighbour)
        element: Element,  # noqa: ARG002
        e_vec: Floats,
        start: int,  # noqa: ARG002
        stop: int,  # noqa: ARG002
    ) -> Floats:
        """Return the values: no element is larger than its neighbour."""
        return e_vec

    def geometry(self, rule: Rule) -> InteriorGeometry:
        return InteriorGeometry(self, rule)


@lru_cache(maxsize=256)
def _seen(cell: Cell, degree: int, corners: tuple[int, ...]) -> Ints:
    """Nodes (size,) of a cell in the order in which they are seen with a face's corners first.

    ``corners`` are local corners of a face, in the order of a segment, triangle or square. A prism
    at a quadrilateral has the other coordinates of `SharedFaces.turned`.
    """
    if not degree:
        return np.zeros(1, dtype=np.int64)
    if cell.cube:
        near = [cell.corners[c] for c in corners]
        others = [*{*range(cell.num_corners)} - {*corners}]
        far = [min(others, key=lambda c: np.abs(cell.corners[c] - x).sum()) for x in near]
        order = [*corners, *far]
    elif cell.simplex:
        order = [*corners, *({*range(cell.num_corners)} - {*corners})]
    elif len(corners) == 3:
        order = [*corners, *((c + 3) % 6 for c in corners)]
    else:
        a, b, c, _ = corners
        a, b, above = (a, b, c) if abs(a - b) != 3 else (a, c, b)
        third = 3 * (a // 3) + 3 - a % 3 - b % 3
        order = [a, b, third, above, (b + 3) % 6, (third + 3) % 6]
    nodes = _lattice(cell, degree)
    linear = tensor_element(Basis1D("gll", 1), cell.dim) if cell.cube else None
    of_corners = linear or LagrangeElement(cell, 1, closed=True)
    there = of_corners.weights_at(nodes) @ cell.corners[order]
    gaps = np.abs(there[:, np.newaxis] - nodes).max(axis=2)
    found = np.asarray(gaps.argmin(axis=1))
    found.setflags(write=False)
    return found


def _mirrored(faces: InteriorFaces | SharedFaces, side: int) -> NDArray[np.bool_]:
    """True (nf,) for elements of a side that are left-handed at a point of their faces."""
    geometry = InteriorGeometry(faces, rule_of(faces.cell, 1))
    found = np.zeros(faces.num_elements, dtype=np.bool_)
    for start, stop in element_blocks(faces.num_elements, faces.map_nodes[side].shape[1]):
        found[start:stop] = determinants(geometry.jacobians(side, start, stop))[:, 0] < 0.0
    return found


def _lattice(cell: Cell, degree: int) -> Floats:
    """Nodes (size, dim) of a cell."""
    if not cell.cube:
        return simplices.nodes(cell, degree)
    line = tensor_element(Basis1D("gll", degree), 1).bases[0].nodes
    grid = np.meshgrid(*[line] * cell.dim, indexing="ij")
    return np.stack(grid[::-1], axis=-1).reshape(-1, cell.dim)


Shared = tuple[int, int, InteriorFaces | SharedFaces]
"""Parts of the minus and of the plus elements, and faces between them."""

_shared = Derived[Any, list[Shared]]()


@final
@dataclass(frozen=True, eq=False)
class _Near:
    """Elements of one shape that have faces in common with others."""

    mesh: Mesh  # the elements of this rank
    around: Mesh  # they and the ghost elements
    numbers: Ints  # (n,): numbers of these in the global mesh, counted over all shapes


def _near(mesh: MixedMesh | DistributedMesh) -> list[_Near]:
    if isinstance(mesh, DistributedMesh):
        every = [neighbours(part) for part in mesh.parts]
        return [
            _Near(part.mesh, near.mesh, near.numbers)
            for part, near in zip(mesh.parts, every, strict=True)
        ]
    found, first = [], 0
    for part in mesh.parts:
        found.append(_Near(part, part, first + np.arange(part.num_elements)))
        first += part.num_elements
    return found


def shared_faces(mesh: MixedMesh | DistributedMesh) -> list[Shared]:
    """Return the faces between elements of a mesh of several shapes.

    On many ranks there is an entry for each pair of shapes that some rank has. Collective at the
    first call for such a mesh.
    """
    if not are_joined(mesh):
        raise SpaceError(
            "the mesh has no faces between elements: refine it, or leave out the integral over them"
        )
    own = mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    return _shared.get(own, lambda: _all_shared(mesh))


def _all_shared(mesh: MixedMesh | DistributedMesh) -> list[Shared]:
    found: list[Shared] = []
    near = _near(mesh)
    parts: tuple[Any, ...] = mesh.parts
    for k, part in enumerate(parts):
        if near[k].mesh.cell.shape != "prism" and are_joined(part):
            found.append((k, k, interior_faces(part)))
    between = {(j, i): (other, one) for i, j, one, other in faces_between([n.around for n in near])}
    made = list[Shared]()
    none = np.zeros((0, 2), dtype=np.int64)
    for i, j in combinations_with_replacement(range(len(near) - 1, -1, -1), 2):
        sides = np.stack(between.get((i, j), (none, none)))
        if i == j and near[i].mesh.cell.shape == "prism":
            sides = _pairs(near[i])
        elif i == j:
            continue
        sides = sides[:, sides[MINUS, :, 0] < near[i].mesh.num_elements]
        made += [(i, j, faces) for faces in _by_shape((near[i], near[j]), sides)]
    sizes = np.array([faces.num_elements for *_, faces in made], dtype=np.int64)
    if isinstance(mesh, DistributedMesh):
        sizes = mesh.comm.max(sizes)
    for each, size in zip(made, sizes, strict=True):
        if size:
            each[2].place = len(found)
            found.append(each)
    return found


def _pairs(near: _Near) -> Ints:
    """Elements and codes (2, nf, 2) of the faces between elements of one shape."""
    topology = near.around.topology
    two = topology.pairs
    sides = np.stack([topology.faces[two], topology.face_codes[two]], axis=-1)
    order = np.argsort(-near.numbers[sides[..., 0]], axis=1)
    return np.take_along_axis(sides, order[..., np.newaxis], axis=1).swapaxes(0, 1)


def _by_shape(near: tuple[_Near, _Near], sides: Ints) -> list[SharedFaces]:
    """Faces between two meshes by their shape, and by the directions of prisms along them.

    Shapes: `sides` (2, nf, 2), elements and codes.
    """
    found, around = [], (near[MINUS].around, near[PLUS].around)
    for face in around[MINUS].cell.faces:
        some = sides[:, np.isin(sides[MINUS, :, 1], around[MINUS].cell.codes_of(face))]
        elements, codes = some[..., 0], some[..., 1]
        local = _corners(around, face, elements, codes)
        upwards = np.abs(local[PLUS, :, 1] - local[PLUS, :, 0]) == 3
        if around[PLUS].cell.shape != "prism" or not face.cube:
            upwards[:] = False
        for flag in (False, True):
            mine = np.flatnonzero(upwards == flag)
            mine = mine[np.argsort(elements[MINUS, mine], kind="stable")]
            made = elements[:, mine], codes[:, mine], local[:, mine]
            found.append(SharedFaces(near, face, *made))
    return found


def _corners(sides: tuple[Mesh, Mesh], face: Cell, elements: Ints, codes: Ints) -> Ints:
    """Local corners (2, nf, k) of faces in both elements, in the order of the minus element."""
    cell = sides[MINUS].cell
    table = np.zeros((len(cell.entities), face.num_corners), dtype=np.int64)
    for code in cell.codes_of(face):
        table[code] = cell.entities[code][1]
    own = table[codes[MINUS]]
    vertices = np.take_along_axis(sides[MINUS].elements[elements[MINUS]], own, axis=1)
    others = sides[PLUS].elements[elements[PLUS]]
    theirs = (others[:, np.newaxis] == vertices[:, :, np.newaxis]).argmax(axis=2)
    return np.stack([own, theirs])


def _parts(topology: Topology, elements: Ints, codes: Ints) -> Ints:
    """Halves (2, nf) of the larger elements' faces; see `InteriorFaces`."""
    found = np.full(elements.shape, -1)
    if topology.carriers is None:
        return found
    hanging, dim = topology.carriers.hanging, topology.dim
    half = np.full(topology.entity.shape, -1)
    half[hanging[:, 0], hanging[:, 1]] = hanging[:, 2]
    for small, large in ((MINUS, PLUS), (PLUS, MINUS)):
        bits = half[elements[small], codes[small]]
        some = np.flatnonzero(bits >= 0)
        turns = [topology.carrying[1][elements[k], codes[k]][some] for k in (small, large)]
        along = [_along(codes[k, some], dim) for k in (small, large)]
        at = sum((bits[some] >> d & 1) << k for k, d in enumerate(along[0].T))
        if dim > 1:
            tables = np.array(
                [entity_permutation(o, 2, dim - 1) for o in range(2 ** (2 * dim - 3))]
            )
            at = np.argsort(tables, axis=1)[turns[1], tables[turns[0], at]]
        found[large, some] = sum((at >> k & 1) << d for k, d in enumerate(along[1].T))
    return found


def _along(codes: Ints, dim: int) -> Ints:
    """Directions (n, dim - 1) along faces, ascending."""
    inside = codes[:, np.newaxis] // 3 ** np.arange(dim) % 3 == 1
    return np.argsort(~inside, axis=1, kind="stable")[:, : dim - 1]


def _order_in_minus(turns: Ints, side: int, p1d: int, dim: int) -> Ints:
    """Positions (p1d**dim,) in a side's order of a face's nodes, in the order of the minus side."""
    if side == MINUS or dim == 0:
        return np.arange(p1d**dim)
    minus, plus = (entity_permutation(int(turn), p1d, dim) for turn in turns)
    return np.asarray(np.argsort(plus)[minus])


def interior_faces(mesh: Mesh | DistributedMesh) -> InteriorFaces:
    """Return the faces between elements of a mesh, on many ranks those of this rank.

    Collective at the first call for a mesh of many ranks.
    """
    if not are_joined(mesh):
        raise SpaceError(
            "the mesh has no faces between elements: refine it, or leave out the integral over them"
        )
    if isinstance(mesh, Mesh):
        return _interiors.get(mesh, lambda: InteriorFaces(mesh))
    near = neighbours(mesh)
    made = partial(InteriorFaces, mesh.mesh, near, reproducible=mesh.reproducible)
    return _interiors.get(mesh.mesh, made, "shared")


def are_joined(mesh: Mesh | MixedMesh | DistributedMesh) -> bool:
    """True if the mesh has faces between elements. Collective at the first call on many ranks."""
    if isinstance(mesh, DistributedMesh):
        parts = [neighbours(part) for part in mesh.parts]
        between = any(len(near.mesh.topology.joined) > 0 for near in parts)
        alone = len(parts) == 1 or not mesh.comm.max(int(between))
        return any(near.joined for near in parts) or not alone
    return any(bool(are_inner(part).any()) for part in mesh.parts)


@final
class InteriorGeometry(DomainGeometry):
    """Positions, normals and surface elements at the points of a rule on faces between elements.

    Points are lexicographic in the directions of the face as the minus element has them. In 1-D a
    face is a point, and its surface element is 1.
    """

    def __init__(self, faces: InteriorFaces | SharedFaces, quadrature: Rule) -> None:
        quadrature.check_cell(faces.cell)
        if not faces.by_tables:
            grid_rule(quadrature, "an integral over faces")
        self.domain = self.faces = faces
        self.mesh, self.dim, self.quadrature = faces.mesh, faces.mesh.dim, quadrature
        self.num_elements = faces.num_elements
        self.num_points = quadrature.count(self.dim - 1)
        self.weights = quadrature.cell_weights(self.dim - 1)

    def block(self, start: int, stop: int) -> InteriorBlock:
        """Geometry of the faces start <= f < stop, seen from their minus sides."""
        return InteriorBlock(self, start, min(stop, self.num_elements))

    def points(self, start: int, stop: int) -> Floats:
        """Positions (n, nq, dim) of the quadrature points, as the minus elements have them."""
        return self.coordinates(MINUS, start, stop)

    def jacobian(self, start: int, stop: int) -> Floats:
        """Jacobians (n, nq, dim, dim) of the minus elements, turned to their faces."""
        return self.jacobians(MINUS, start, stop)

    def jacobians(self, side: int, start: int, stop: int) -> Floats:
        """Jacobians (n, nq, dim, dim) of one side's elements, turned to their faces."""
        e_vec = self._coordinates(side, start, stop)
        if self._slopes is None:
            of_map = self._map(side)
            return of_columns([self.on_face(of_map, e_vec, d) for d in range(self.dim)])
        # one product for each element: in a large one BLAS rounds a row by the number of rows
        found = np.matmul(self._slopes, e_vec).reshape(len(e_vec), self.dim, -1, self.dim)
        return of_columns([*found.swapaxes(0, 1)])

    @computed_once
    def _slopes(self) -> Floats | None:
        """Matrix (dim * nq, nodes) from a map's nodes to its derivatives at all points of a face.

        None if sum factorisation takes less work.
        """
        of_map = self._map(MINUS)
        many = of_map.size * self.num_points > _MOST_ENTRIES
        if many or self.faces.by_tables or not isinstance(of_map, TensorElement):
            return None
        rows = []
        for d in range(self.dim):
            product = np.eye(1)
            for matrix in reversed(of_map.matrices(self._grids, d)):
                product = np.asarray(np.kron(product, matrix))
            rows.append(product)
        return np.concatenate(rows)

    def coordinates(self, side: int, start: int, stop: int) -> Floats:
        """Positions (n, nq, dim) of the points in one side's elements."""
        return self.on_face(self._map(side), self._coordinates(side, start, stop))

    def beside(self, depth: float) -> tuple[Floats, Floats]:
        """Positions (n, dim) of a point in each of both elements, behind the middle of each face.

        ``depth``, from 0 to 1, is the reference coordinate that leads inwards. Repeated faces are
        left out. So are glued faces, because their sides are at different places.
        """
        minus, plus = [np.empty((0, self.dim))], [np.empty((0, self.dim))]
        for start, stop in element_blocks(self.num_elements, self.faces.map_nodes[MINUS].shape[1]):
            on_face, inside, through = (
                [self._inwards(side, at, start, stop) for side in (MINUS, PLUS)]
                for at in (0.0, depth, 1.0)
            )
            apart = np.abs(on_face[MINUS] - on_face[PLUS]).max(axis=1)
            extent = np.abs(through[MINUS] - on_face[MINUS]).max(axis=1)
            taken = (apart <= _MATCHING * extent) & self.faces.counted[start:stop]
            minus.append(inside[MINUS][taken])
            plus.append(inside[PLUS][taken])
        return np.concatenate(minus), np.concatenate(plus)

    def _inwards(self, side: int, depth: float, start: int, stop: int) -> Floats:
        """Positions (n, dim) of a point in one side's elements; see `beside`."""
        at: Any = [np.full(1, 0.5)] * (self.dim - 1) + [np.full(1, depth)]
        if self.faces.by_tables:  # a point between the middle of the face and that opposite
            cell = self.faces.cell
            flat = (
                cell.center
                if cell.cube or self.faces.sides[side].cell.shape == "prism"
                else (cell.center * (1.0 - depth))
            )
            at = np.column_stack([flat, [[depth]]])
        return self._map(side).values(at, self._coordinates(side, start, stop))[:, 0]

    def _coordinates(self, side: int, start: int, stop: int) -> Floats:
        """Nodes (n, (order + 1)**dim, dim) of one side's turned elements."""
        elements, nodes = self.faces.elements[side, start:stop], self.faces.map_nodes[side]
        found = self.faces.sides[side].coordinates[elements[:, np.newaxis], nodes[start:stop]]
        return self.faces.on_parts(side, self._map(side), found, start, stop)

    def _map(self, side: int) -> Element:
        """Element of the maps of one side's elements."""
        return self.faces.turned(side, element_of_maps(self.faces.sides[side].coordinates))

    @property
    def _grids(self) -> list[Floats] | Floats:
        """Points on the face, for each direction, or a list."""
        if self.faces.by_tables:
            return simplices.at_end(self.quadrature.listed(self.dim - 1))
        return [self.quadrature.places] * (self.dim - 1) + [np.zeros(1)]

    def on_face(self, element: Element, e_vec: Floats, slope: int | None = None) -> Floats:
        """Evaluate functions of turned elements at the points of their faces.

        Shapes: `e_vec` (n, nodes[, ncomp]), returned (n, nq[, ncomp]).
        """
        return element.values(self._grids, e_vec, slope)

    def __repr__(self) -> str:
        return f"InteriorGeometry({self.num_elements} faces, {self.quadrature!r})"


@final
class InteriorBlock(FaceBlock):
    """Geometry of a range of faces between elements, seen from one side.

    Each array is computed once, at first use. `other` is the same range seen from the other side.

    `points` (n, nq, dim): positions in the side's elements. They differ between the sides of a
    glued face only. `normals` (n, nq, dim): unit normals that point out of the side's elements.
    `det`, `weighted_det` (n, nq): surface element, and surface element times quadrature weight.
    `inverse` (n, nq, dim, dim): [..., a, i] = derivative of coordinate a of the side's turned
    elements along x_i.
    """

    geometry: InteriorGeometry

    def __init__(
        self, geometry: InteriorGeometry, start: int, stop: int, minus: InteriorBlock | None = None
    ) -> None:
        self.geometry, self.start, self.stop = geometry, start, stop
        self._minus, self._side = minus, MINUS if minus is None else PLUS

    @property
    def mesh(self) -> Mesh:
        return self.geometry.faces.meshes[-self._side]

    @computed_once
    def other(self) -> InteriorBlock:
        """The same faces, seen from their other sides."""
        if self._minus is not None:
            return self._minus
        return InteriorBlock(self.geometry, self.start, self.stop, self)

    @computed_once
    def points(self) -> Floats:
        """Positions (n, nq, dim) of the quadrature points."""
        return self.geometry.coordinates(self._side, self.start, self.stop)

    @computed_once
    def _jacobian(self) -> Floats:
        return self.geometry.jacobians(self._side, self.start, self.stop)

    @computed_once
    def _adjugates(self) -> Floats:
        return adjugates(self._jacobian)

    @computed_once
    def _determinants(self) -> Floats:
        return determinants(self._jacobian)

    @computed_once
    def _outward(self) -> Floats:
        """Outer normals times surface elements (n, nq, dim), of valid elements."""
        mirrored = self.geometry.faces.mirrored[self._side][self.start : self.stop, np.newaxis]
        volumes = np.where(mirrored, -1.0, 1.0) * self._determinants
        inwards = self._adjugates[..., -1, :]
        vectors = np.where(mirrored[..., np.newaxis], 1.0, -1.0) * inwards
        bad = ~np.all((volumes > 0.0) & np.any(vectors, axis=-1), axis=1)
        if bad.any():
            raise GeometryError(
                f"{np.count_nonzero(bad)} faces between elements have a point where an element is "
                f"inverted or the face has no area, of element(s) {self._listed(bad)}: turn or "
                "repair them"
            )
        return np.asarray(vectors)

    def _listed(self, bad: NDArray[np.bool_]) -> str:
        faces = self.geometry.faces
        elements = faces.elements[self._side, self.start : self.stop][bad]
        numbers = faces.numbers_of(self._side)[elements]
        return ", ".join(str(e) for e in np.unique(numbers)[:5])

    @computed_once
    def _vectors(self) -> Floats:
        """Outer normals times surface elements (n, nq, dim), the same on both sides."""
        mine, theirs = self._outward, self.other._outward
        size = np.linalg.norm(mine, axis=-1).max(axis=1, initial=0.0)
        bad = np.abs(mine + theirs).max(axis=(1, 2), initial=0.0) > _MATCHING * size
        if bad.any():
            raise GeometryError(
                f"{np.count_nonzero(bad)} faces between elements are not the same seen from both "
                f"sides, of element(s) {self._listed(bad)}: correct the nodes of the mesh, or, if "
                "it is periodic by a rotation or reflection, use H1, as normals of interior faces "
                "must agree; translations alone may join faces here"
            )
        return mine

    @computed_once
    def inverse(self) -> Floats:
        """Derivatives (n, nq, dim, dim) of the turned elements' coordinates in space."""
        self._vectors  # noqa: B018  (refuses inverted elements)
        return np.asarray(self._adjugates / self._determinants[..., np.newaxis, np.newaxis])

    @computed_once
    def weighted_det(self) -> Floats:
        """Surface elements times quadrature weights, (n, nq); zero on repeated faces."""
        counted = self.geometry.faces.counted[self.start : self.stop, np.newaxis]
        return np.asarray(self.det * self.geometry.weights * counted)

    def values(self, element: Element, nodal: Nodal) -> Floats:
        """See `DomainBlock.values`. The values are limits from inside the side's elements."""
        turned = self.geometry.faces.turned(self._side, element)
        return self.geometry.on_face(turned, self._turned(element, nodal))

    def slopes(self, element: Element, nodal: Nodal) -> Floats:
        e_vec = self._turned(element, nodal)
        element = self.geometry.faces.turned(self._side, element)
        along = [self.geometry.on_face(element, e_vec, d) for d in range(self.geometry.dim)]
        return np.stack(along, axis=-1)

    def _turned(self, element: Element, nodal: Nodal) -> Floats:
        """Values (n, p1d**dim[, ncomp]) at the nodes of the side's turned elements."""
        faces, part = self.geometry.faces, (self.start, self.stop)
        elements = faces.elements[self._side, slice(*part)]
        found = nodal(elements, faces.nodes(self._side, element.order + 1, *part))
        return faces.on_parts(self._side, element, found, *part)
