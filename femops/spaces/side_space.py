"""Functions of a space on one side of the faces between elements, which count as elements."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.geometry.domain import element_blocks
from femops.geometry.interior import (
    InteriorFaces,
    SharedFaces,
    interior_faces,
    shared_faces,
)
from femops.parallel.comm import gathered
from femops.spaces.base import Space
from femops.spaces.face_space import FaceSpace, Ints
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.hanging import beside_faces, hanging_nodes
from femops.spaces.neighbours import TouchedDofs, with_neighbours
from femops_kernels.cpu.in_order import in_order
from femops_kernels.exclusive import Derived
from femops_meshes.coordinates.hanging import HangingNodes, with_larger_nodes
from femops_meshes.mesh import Mesh


@final
class SideSpace(FaceSpace):
    """Functions of a space on one side of the faces between elements.

    Each face counts as an element. Functions with derivatives need all nodes of the side's mesh
    element, which is turned to the face; see `femops.geometry.interior`. The quadrature points are
    on the face. Functions without derivatives need only the nodes on the face, if the basis has
    nodes there. The element then has one dimension less; in 1-D it is a segment of one node.

    Use `side_spaces` to make it. For the same space and side that function returns the same object,
    so that operators can compare spaces by identity.
    """

    domain: InteriorFaces | SharedFaces

    def __init__(
        self, volume: Space, faces: InteriorFaces | SharedFaces, side: int, *, slopes: bool
    ) -> None:
        super().__init__(volume, faces.cell, slopes=slopes)
        self.domain, self.side = faces, side
        self.element = faces.turned(side, self.element)
        layers, key = volume.order + 1 if slopes else 1, (side, slopes, faces.place)
        touched = _touched.get(volume, lambda: _dofs(volume, faces, side, layers), *key)
        self.restriction, self.numbering = touched.restriction, touched.numbering
        self.halo = touched.halo

    @property
    def behind(self) -> Ints:
        return np.asarray(self.domain.elements[self.side])

    @property
    def hanging_behind(self) -> HangingNodes | None:
        if isinstance(self.domain, SharedFaces):
            return None
        return hanging_nodes(self.volume, self.domain.around)

    def own_parts(self) -> Ints:
        if isinstance(self.domain, SharedFaces):
            return super().own_parts()
        half = self.domain.parts[self.side]
        some = np.flatnonzero(half >= 0)
        return np.stack([some, self.domain.codes[self.side, some], half[some]], axis=1)

    def turned_nodes(self, layers: int | None = None) -> Ints:
        return self.domain.nodes(self.side, self.order + 1, layers=layers)

    def __reduce__(self) -> tuple[Any, ...]:
        whole = self._volume.whole
        return partial(_nth, slopes=self._slopes), (whole, self._place(whole), self.side)

    def _place(self, whole: Space) -> int:
        """Place of the domain among those of a space."""
        return next(k for k, (faces, *_) in enumerate(_domains(whole)) if faces is self.domain)

    def on(self, volume: Space) -> SideSpace:
        """Return the functions of another space of the mesh on the same side of the faces."""
        whole = volume.whole
        return _nth(whole, self._place(whole), self.side, slopes=self._slopes)

    def with_slopes(self, slopes: bool) -> SideSpace:
        """Return the functions with or without derivatives; see `side_spaces`."""
        return _made(self._volume, self.domain, self.side, slopes=slopes)


_BLOCKS = 32  # usual blocks of faces that are worked on at once: nodes are found by few calls

_spaces = Derived[Space, SideSpace](weak=True)
_touched = Derived[Space, TouchedDofs]()  # kept: to make them takes messages


def _dofs(volume: Space, faces: InteriorFaces | SharedFaces, side: int, layers: int) -> TouchedDofs:
    """Dofs of the nodes near the faces of a side's elements. Collective on many ranks."""
    if volume.any_width and volume.halo is not None:
        raise SpaceError(
            "reproducible=True is not for integrals over faces between elements in an H1 space, "
            "whose dofs ranks share: leave it out, or take an L2 space"
        )
    near, elements = with_neighbours(volume), faces.elements[side]
    cell, p1d = volume.mesh.cell, volume.order + 1
    known, per_face = near.numbering, layers * p1d ** (volume.dim - 1)
    if not cell.cube:
        per_face = volume.element.size if layers > 1 or p1d == 1 else cell.face.size(volume.order)
    ghosts = np.empty(0, dtype=np.int64) if known is None else known.ghosts
    dofs = near.restriction.indices
    if known is not None and layers > 1 and isinstance(volume, L2) and cell.cube:
        dofs = _in_layers(volume, faces, side, dofs)
    indices = np.empty((len(elements), per_face), dtype=np.int64)

    def fill(ends: tuple[int, int]) -> None:
        nodes, some = faces.nodes(side, p1d, *ends, layers), slice(*ends)
        indices[some] = dofs[elements[some, np.newaxis], nodes]

    deque(in_order(fill, element_blocks(len(elements), -(-per_face // _BLOCKS))), maxlen=0)
    hanging = beside_faces(volume, faces, side, slopes=layers > 1 or p1d == 1)
    return TouchedDofs.of(volume, indices, ghosts, hanging=hanging)


def _in_layers(volume: L2, faces: InteriorFaces | SharedFaces, side: int, indices: Ints) -> Ints:
    """Dofs (n, nodes) of a rank's elements and of its ghost elements, without those never needed.

    Of a ghost element the faces need some layers of nodes, and messages have these alone. All its
    other nodes get the dof of one of them: their functions are zero on the faces.
    """
    layers, own = volume.basis.layers(slopes=True), volume.mesh.num_elements
    if layers >= volume.p1d:
        return indices
    needed = np.zeros((len(indices), indices.shape[1]), dtype=np.bool_)
    nodes = faces.nodes(side, volume.p1d, layers=layers)
    needed[faces.elements[side][:, np.newaxis], nodes] = True
    needed[:own] = True
    first = np.take_along_axis(indices, needed.argmax(axis=1)[:, np.newaxis], axis=1)
    return np.where(needed, indices, first)


def side_spaces(space: Any, side: int, *, slopes: bool = True) -> list[SideSpace]:
    """Return the functions of a space on one side of the faces between elements.

    There is one list entry, but on a mesh of several shapes one for each of `shared_faces`.
    Collective at the first call for a space that ranks share.
    """
    if not isinstance(space, Space):
        raise SpaceError(f"an integral over faces was asked for on {space!r}: take a space")
    return [_made(parts[side], faces, side, slopes=slopes) for faces, *parts in _domains(space)]


def _domains(space: Space) -> list[tuple[Any, Space, Space]]:
    """Faces between elements, with the space or part of the minus, and of the plus elements."""
    if not space.mixed:
        return [(interior_faces(space.distributed or space.mesh), space, space)]
    mesh: Any = space.distributed or space.mesh
    return [(faces, space.parts[i], space.parts[j]) for i, j, faces in shared_faces(mesh)]


def _nth(space: Space, place: int, side: int, *, slopes: bool) -> SideSpace:
    return side_spaces(space, side, slopes=slopes)[place]


def _made(
    space: Space, faces: InteriorFaces | SharedFaces, side: int, *, slopes: bool
) -> SideSpace:
    # a node of a face may hang in another face of its element, whose dofs lie off the face
    slopes = slopes or not space.has_ends or space.hangs or isinstance(faces, SharedFaces)
    make = partial(SideSpace, space, faces, side, slopes=slopes)
    return _spaces.get(space, make, side, slopes, id(faces))


Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_TORN = 1e-10  # least distance of sides at two positions, relative to the size of the mesh
_TURNED = 1e-6  # difference of an edge's two directions, relative to its length

_found = Derived[Any, bool]()


def sides_turn(space: Space) -> bool:
    """True if the mesh of a space joins sides by more than a shift. Collective.

    If sides are joined by shifts, an edge has the same direction in all elements.
    """
    return _found.get(space.mesh, partial(_look, space))


def _look(space: Space) -> bool:
    ends = list[Floats](), list[Flags]()
    for mesh in space.mesh.parts:
        cell, carrier = mesh.cell, mesh.topology.carrying[0]
        nodes = np.concatenate([cell.lattice(code, mesh.order) for code in cell.codes(0)])
        ends[0].append(mesh.coordinates[:, nodes])
        # those of degree 2 have a node each
        ends[1].append((carrier == mesh.topology.entity)[:, : cell.size(2)])
    if not _torn(space, *ends):
        return False
    corners, own = ends
    pairs = zip(space.mesh.parts, corners, strict=True)
    along = [_edges(mesh, mesh.elements, each) for mesh, each in pairs]
    if not (space.distributed or space.mesh).conforming:
        # edges that hang are compared as those of which they are parts
        mesh, (places,) = space.mesh, own
        vertices = mesh.topology.carrying[0][:, list(mesh.cell.codes(0))]
        larger = _edges(mesh, vertices, _larger_corners(space, corners[0]))
        along = [np.where(places[:, :, np.newaxis], along[0], larger)]
    turned = False
    for gaps, each in zip(_gaps(_like(space, 2), along, own), along, strict=True):
        turned |= bool((gaps > _TURNED * np.linalg.norm(each, axis=-1)).any())
    return bool(space.comm.max(int(turned)))


def _larger_corners(space: Space, corners: Floats) -> Floats:
    """Corners (ne, 2**dim, dim), with those of larger entities at hanging ones. Collective."""
    mesh, whole = space.mesh, space.distributed
    carriers = mesh.topology.carriers
    hanging = np.zeros((0, 3), dtype=np.int64) if carriers is None else carriers.hanging
    if whole is None:
        return with_larger_nodes(corners, hanging, mesh.trees.siblings)
    held = whole.part.elements
    every = np.empty((whole.num_elements, *corners.shape[1:]))
    every[gathered(space.comm, held)] = gathered(space.comm, corners)
    hanging = np.column_stack([held[hanging[:, 0]], hanging[:, 1:]])
    return with_larger_nodes(every, hanging, whole.trees.siblings)[held]


def _edges(mesh: Mesh, vertices: NDArray[np.int64], corners: Floats) -> Floats:
    """Vector (ne, n, dim) along each edge, from its lower to its higher vertex; else zero.

    The n nodes are those of degree 2.
    """
    cell = mesh.cell
    along = np.zeros((mesh.num_elements, cell.size(2), cell.dim))
    for code in cell.codes(1) if cell.dim > 1 else (1,):
        low, high = cell.entities[code][1]
        first, last = vertices[:, low], vertices[:, high]
        sign = np.where(first < last, 1.0, -1.0)  # parts number vertices in the same order
        edge = corners[:, high] - corners[:, low]
        along[:, cell.lattice(code, 2)[0]] = sign[:, np.newaxis] * edge
    return along


def _torn(space: Space, corners: list[Floats], own: list[Flags]) -> bool:
    """True if corners (ne, corners, dim) that elements share have several positions. Collective.

    `own` (ne, nodes): False for corners that hang, which come first among the nodes of degree 2 of
    cells that are no cubes.
    """
    comm, meshes = space.comm, space.mesh.parts
    places = np.concatenate([each.reshape(-1, space.dim) for each in corners])
    high, low = (comm.max((s * places).max(axis=0, initial=-np.inf)) for s in (1.0, -1.0))
    size = (high + low).max()
    if comm.size > 1:
        some = [each[:, list(mesh.cell.codes(0))] for mesh, each in zip(meshes, own, strict=True)]
        found = _gaps(_like(space, 1), corners, some)
        gaps = [one * each for one, each in zip(found, some, strict=True)]
    else:  # the same, in less time
        shared = np.empty((space.mesh.num_vertices, space.dim))
        pairs = [*zip(meshes, corners, strict=True)]
        for mesh, each in pairs:
            shared[mesh.elements] = each
        gaps = [np.abs(each - shared[mesh.elements]) for mesh, each in pairs]
    return bool(comm.max(int(any((each > _TORN * size).any() for each in gaps))))


def _like(space: Space, order: int) -> H1:
    return H1(space.distributed or space.mesh, order, space.dim)


def _gaps(space: H1, values: list[Floats], own: list[Flags]) -> list[Floats]:
    """Distance (ne, n) of values (ne, n, dim) at nodes of each part from their mean over elements.

    Nodes that hang, where `own` (ne, n) is False, are compared, but have no part in the mean.
    """
    total, count = space.zeros(), space.zeros()
    for part, each, flags in zip(space.parts, values, own, strict=True):
        shares = np.broadcast_to(flags[:, :, np.newaxis], each.shape).astype(np.float64)
        total += part.sum_elements(shares * each)
        count += part.sum_elements(shares)
    mean = space.l_vec(total / count)
    found = []
    for part, each in zip(space.parts, values, strict=True):
        there = part.restriction.entries(mean).reshape(each.shape)
        found.append(np.asarray(np.linalg.norm(each - there, axis=-1)))
    return found
